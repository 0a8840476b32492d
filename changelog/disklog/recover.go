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
// Pebble repeats a write that fails during the replay forever, and cannot be told to stop.
// So openPebble returns after the first such failure, and some seconds after ctx is done. It
// then leaves Pebble's goroutine and the lock of the directory behind, which end with the
// process. As after a crash, the next process recovers.
func (l *Log) openPebble(ctx context.Context) error {
	if err := l.roomToRecover(); err != nil {
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
	leave := func(err error) error {
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
			return damage(r.err)
		}
		l.db = r.db
		l.opened.Store(true)
		return nil
	case err := <-l.opening:
		return leave(fmt.Errorf("replay the write-ahead log: %w", err))
	case <-ctx.Done():
	}
	select {
	case r := <-opened:
		if r.err == nil {
			_ = r.db.Close()
		}
		return context.Cause(ctx)
	case <-l.opening:
	case <-time.After(openGrace):
	}
	return leave(context.Cause(ctx))
}

// openGrace is how long openPebble waits for Pebble after it is told to stop.
const openGrace = 3 * time.Second

// recoveryRoom is what recovery writes besides the tables: a new write-ahead log, a
// manifest, and the identity of a new memory.
const recoveryRoom = 4 << 20

// roomToRecover returns an error if the disk may have too little room to replay the
// write-ahead log. The replay writes tables that are at most as large as the log.
func (l *Log) roomToRecover() error {
	size, err := sizeOf(l.opts.FS, l.dir, func(name string) bool { return strings.HasSuffix(name, ".log") })
	if err != nil {
		return err
	}
	err = l.roomFor(size+recoveryRoom, "recovery")
	if errors.Is(err, feed.ErrFull) {
		err = fmt.Errorf("%w; make room, then start again", err)
	}
	return err
}

// sizeOf returns the bytes of the files in a directory whose names are wanted.
func sizeOf(fs vfs.FS, dir string, wanted func(name string) bool) (bytes uint64, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if !wanted(name) {
			continue
		}
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // Pebble has removed it in the meantime
		}
		if err != nil {
			return 0, err
		}
		bytes += uint64(info.Size())
	}
	return bytes, nil
}
