package disklog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// pebbleOptions use little memory, because the hub runs beside other programs.
func (l *Log) pebbleOptions() *pebble.Options {
	patience := &patience{logger: l.opts.Logger}
	o := &pebble.Options{
		FS:     guard{l.opts.FS, l.dir, l.failedLog, l.fail, patience},
		Lock:   l.lock,
		Logger: chatter{l},
		// A store cannot go back to an older format. So the format is fixed here,
		// and a newer version of the library does not choose it. This format can
		// tell a torn end of the write-ahead log from damage in its middle.
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// The cache need not hold blocks of changes. The hub's window has those that
		// many followers read, and a follower that catches up reads each block once.
		// So the cache is for indexes, filters and tips.
		CacheSize: 16 << 20,
		// A memtable grows from 256 KiB to this size. Open replays at most this much
		// of the write-ahead log for each memtable.
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                500,
		FlushDelayDeleteRange:       10 * time.Second, // after retention has removed entries, their space is free this soon
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				patience.say("the change memory failed in the background", err)
				if !l.opened.Load() {
					select {
					case l.opening <- err:
					default:
					}
				}
			},
			WALCreated: func(info pebble.WALCreateInfo) {
				if info.Err != nil {
					l.failedLog(info.Err)
				}
			},
			// Without this, Pebble would end the process. A read of the damaged file
			// returns ErrCorrupt, and everything else stays available.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				l.opts.Logger.Error("a file of the change memory is damaged", "file", info.Path, "err", info.Details)
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10 // logs are read in ranges
		// Nearly every idempotency key that a publish looks for is new, so the
		// filter saves a read.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if l.opts.tune != nil {
		l.opts.tune(o)
	}
	return o
}

var errFailed = fmt.Errorf("%w: a write to the disk failed, and the process must end", feed.ErrUnavailable)

// fail ends the process. Callers of fail block until the process has ended, so
// nothing is acknowledged after a failed write.
func (l *Log) fail(err error) {
	l.failed.Store(true)
	l.ending.Do(func() {
		l.opts.Fatal("a write to the change memory in "+l.dir+" failed; it recovers at the next start", err)
	})
}

// failedLog ends the process because a write to the write-ahead log failed. While
// Open runs, it does nothing: Open returns the error.
func (l *Log) failedLog(err error) {
	if l.opened.Load() {
		l.fail(err)
	}
}

// apply writes a batch after all earlier writes. From then on the store's
// readers see it. It is durable only after wait has returned nil.
func (l *Log) apply(b *pebble.Batch) error {
	if l.failed.Load() {
		return errFailed
	}
	if err := l.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return nil
}

// applyLazily is apply for a batch that no caller waits for. It asks for no fsync.
func (l *Log) applyLazily(b *pebble.Batch) error {
	if l.failed.Load() {
		return errFailed
	}
	if err := l.db.Apply(b, pebble.NoSync); err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return b.Close()
}

// wait blocks until a batch that was applied is durable. All batches that were
// applied before it are then durable, too. Callers that wait at the same time share
// one fsync.
func (l *Log) wait(b *pebble.Batch) error {
	err := b.SyncWait()
	if err != nil {
		l.fail(err)
	}
	if err != nil || l.failed.Load() { // in tests Fatal may return; the write is still not acknowledged
		return fmt.Errorf("%w: %w", feed.ErrUnknown, errors.Join(err, errFailed))
	}
	return b.Close()
}

// commit makes a batch durable.
func (l *Log) commit(b *pebble.Batch) error {
	if err := l.apply(b); err != nil {
		return err
	}
	return l.wait(b)
}

// get returns a copy of a value, nil when there is none.
func (l *Log) get(key []byte) ([]byte, error) {
	v, done, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, damage(err)
	}
	v = slices.Clone(v)
	return v, done.Close()
}

// damage adds ErrCorrupt to an error of Pebble that says that a file is damaged. It
// returns any other error as it is.
func damage(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", changelog.ErrCorrupt, err)
	}
	return err
}

// A batch is in memory until it is applied, so these three cannot fail.
func put(b *pebble.Batch, key, value []byte)       { _ = b.Set(key, value, nil) }
func remove(b *pebble.Batch, key []byte)           { _ = b.Delete(key, nil) }
func removeRange(b *pebble.Batch, from, to []byte) { _ = b.DeleteRange(from, to, nil) }

// chatter passes the log messages of Pebble on to the Log's Logger.
type chatter struct{ log *Log }

func (c chatter) Infof(format string, args ...any) {
	if logger := c.log.opts.Logger; logger.Enabled(context.Background(), slog.LevelDebug) {
		logger.Debug("store: " + fmt.Sprintf(format, args...))
	}
}

func (c chatter) Errorf(format string, args ...any) {
	c.log.opts.Logger.Error("store: " + fmt.Sprintf(format, args...))
}

func (c chatter) Fatalf(format string, args ...any) { c.log.fail(fmt.Errorf(format, args...)) }
