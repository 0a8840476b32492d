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

// pebbleOptions returns Pebble's options. They use little memory, because the hub runs next to other
// programs.
func (l *Log) pebbleOptions() *pebble.Options {
	retrier := &retrier{logger: l.opts.Logger}
	o := &pebble.Options{
		FS:     guard{l.opts.FS, l.dir, l.failWAL, l.fail, retrier},
		Lock:   l.lock,
		Logger: pebbleLogger{l},
		// A store cannot be converted back to an older format. So the format is fixed
		// here, and not chosen by the version of the library. This format distinguishes
		// a torn end of the write-ahead log from damage in its middle.
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// The cache is for indexes, filters and tips, not for blocks of changes: the
		// hub's window has the blocks that many followers read, and a follower that
		// catches up reads each block once.
		CacheSize: 16 << 20,
		// A memtable grows from 256 KiB to this size, which also limits how much of
		// the write-ahead log Open replays for each memtable.
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                500,
		FlushDelayDeleteRange:       10 * time.Second, // maximum time until the space of removed entries is free
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				retrier.logOccasionally("change memory: background work failed", err)
				if !l.opened.Load() {
					select {
					case l.openFailure <- err:
					default:
					}
				}
			},
			WALCreated: func(info pebble.WALCreateInfo) {
				if info.Err != nil {
					l.failWAL(info.Err)
				}
			},
			// Without this function, Pebble would end the process. Reads of the damaged
			// file return ErrCorrupt, and all other data stays available.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				l.opts.Logger.Error("change memory: damaged file", "file", info.Path, "err", info.Details)
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10 // logs are read in ranges
		// Nearly every idempotency key of a publish is new, so the filter saves a
		// read.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if l.opts.tune != nil {
		l.opts.tune(o)
	}
	return o
}

var errWriteFailed = fmt.Errorf("%w: a write to the disk failed, so the process must exit", feed.ErrUnavailable)

// fail ends the process. Concurrent callers block until the process has ended, so nothing is
// acknowledged after a failed write.
func (l *Log) fail(err error) {
	l.failed.Store(true)
	l.fatalOnce.Do(func() {
		l.opts.Fatal("a write to the change memory in "+l.dir+" failed; it recovers at the next start", err)
	})
}

// failWAL ends the process because a write to the write-ahead log failed. During Open, it does
// nothing, because Open returns the error.
func (l *Log) failWAL(err error) {
	if l.opened.Load() {
		l.fail(err)
	}
}

// apply writes a batch after all earlier writes, and makes it visible to readers of the store. The
// batch is durable only after waitDurable has returned nil.
func (l *Log) apply(b *pebble.Batch) error {
	if l.failed.Load() {
		return errWriteFailed
	}
	if err := l.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return nil
}

// applyLazily is like apply, but does not request an fsync, for a batch that no caller waits for.
func (l *Log) applyLazily(b *pebble.Batch) error {
	if l.failed.Load() {
		return errWriteFailed
	}
	if err := l.db.Apply(b, pebble.NoSync); err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return b.Close()
}

// waitDurable blocks until an applied batch is durable, together with all batches that were applied
// before it. Concurrent callers share one fsync.
func (l *Log) waitDurable(b *pebble.Batch) error {
	err := b.SyncWait()
	if err != nil {
		l.fail(err)
	}
	if err != nil || l.failed.Load() { // in tests, Fatal may return; the write must not be acknowledged anyway
		return fmt.Errorf("%w: %w", feed.ErrUnknown, errors.Join(err, errWriteFailed))
	}
	return b.Close()
}

// commit applies a batch and waits until it is durable.
func (l *Log) commit(b *pebble.Batch) error {
	if err := l.apply(b); err != nil {
		return err
	}
	return l.waitDurable(b)
}

// get returns a copy of the value of a key, or nil if the key does not exist.
func (l *Log) get(key []byte) ([]byte, error) {
	v, done, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, wrapCorrupt(err)
	}
	v = slices.Clone(v)
	return v, done.Close()
}

// wrapCorrupt adds ErrCorrupt to Pebble's error about a damaged file. It returns any other error
// unchanged.
func wrapCorrupt(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", changelog.ErrCorrupt, err)
	}
	return err
}

// A batch is in memory until it is applied, so put, remove and removeRange cannot fail.
func put(b *pebble.Batch, key, value []byte)       { _ = b.Set(key, value, nil) }
func remove(b *pebble.Batch, key []byte)           { _ = b.Delete(key, nil) }
func removeRange(b *pebble.Batch, from, to []byte) { _ = b.DeleteRange(from, to, nil) }

// A pebbleLogger forwards Pebble's log messages to the logger of a Log.
type pebbleLogger struct{ log *Log }

func (c pebbleLogger) Infof(format string, args ...any) {
	if logger := c.log.opts.Logger; logger.Enabled(context.Background(), slog.LevelDebug) {
		logger.Debug("store: " + fmt.Sprintf(format, args...))
	}
}

func (c pebbleLogger) Errorf(format string, args ...any) {
	c.log.opts.Logger.Error("store: " + fmt.Sprintf(format, args...))
}

func (c pebbleLogger) Fatalf(format string, args ...any) { c.log.fail(fmt.Errorf(format, args...)) }
