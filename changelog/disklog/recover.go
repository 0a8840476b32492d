package disklog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/feed"
)

// openPebble opens l.db, which replays the write-ahead log.
//
// If a write fails during the replay, Pebble retries it forever, and offers no way to stop it. So
// openPebble returns after the first such failure, and at most openGrace after ctx is done. It
// then abandons Pebble's goroutine and the lock of the directory, which end with the process. The
// next process recovers as after a crash.
func (l *Log) openPebble(ctx context.Context) error {
	if err := l.checkRecoverySpace(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	type result struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan result, 1)
	go func() {
		db, err := pebble.Open(l.dir, l.pebbleOptions())
		opened <- result{db, err}
	}()
	abandon := func(err error) error {
		lock := l.lock
		l.lock = nil
		go func() {
			if r := <-opened; r.err == nil {
				_ = r.db.Close()
			}
			_ = lock.Close()
		}()
		return err
	}
	select {
	case r := <-opened:
		if r.err != nil {
			return wrapCorrupt(r.err)
		}
		l.db = r.db
		l.opened.Store(true)
		return nil
	case err := <-l.openFailure:
		return abandon(fmt.Errorf("replay the write-ahead log: %w", err))
	case <-ctx.Done():
	}
	select {
	case r := <-opened:
		if r.err == nil {
			_ = r.db.Close()
		}
		return context.Cause(ctx)
	case <-l.openFailure:
	case <-time.After(openGrace):
	}
	return abandon(context.Cause(ctx))
}

// openGrace is the time for which openPebble still waits for Pebble after ctx is done.
const openGrace = 3 * time.Second

// recoverySpace is the number of bytes that recovery needs in addition to the tables: a new
// write-ahead log, a manifest, and the identity of a new memory.
const recoverySpace = 4 << 20

// checkRecoverySpace returns an error if the disk may have too little free space to replay the
// write-ahead log. The replay writes tables that are at most as large as the log.
func (l *Log) checkRecoverySpace() error {
	size, err := totalSize(l.opts.FS, l.dir, func(name string) bool { return strings.HasSuffix(name, ".log") })
	if err != nil {
		return err
	}
	err = l.requireSpace(size+recoverySpace, "recovery")
	if errors.Is(err, feed.ErrFull) {
		err = fmt.Errorf("%w; free some space, then start again", err)
	}
	return err
}

// totalSize returns the total size of the files in a directory whose names match.
func totalSize(fs vfs.FS, dir string, match func(name string) bool) (bytes uint64, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if !match(name) {
			continue
		}
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed by Pebble in the meantime
		}
		if err != nil {
			return 0, err
		}
		bytes += uint64(info.Size())
	}
	return bytes, nil
}
