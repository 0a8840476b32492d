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
)

// pebbleOptions are modest: the hub is meant to sit beside other programs.
func (l *Log) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:     guard{l.opts.FS, l.failedLog},
		Lock:   l.lock,
		Logger: chatter{l},
		// A store cannot go back to an older format, so it is named here and not
		// what is newest in the library. This one tells a torn end of the
		// write-ahead log from damage in its middle.
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// What followers read again and again is in the hub's window, a catch-up
		// reads everything once: the cache serves indexes, filters and tips.
		CacheSize: 16 << 20,
		// It grows from 256 KiB to this as needed. Open replays at most so much.
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                500,
		FlushDelayDeleteRange:       10 * time.Second, // then retention gives its room back
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { l.opts.Logger.Error("the change memory failed in the background", "err", err) },
			WALCreated: func(info pebble.WALCreateInfo) {
				if info.Err != nil {
					l.failedLog(info.Err)
				}
			},
			// Pebble would end the process. Who reads the damage is told, and the
			// rest stays available.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				l.opts.Logger.Error("a file of the change memory is damaged", "file", info.Path, "err", info.Details)
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10 // logs are read in ranges
		// A publish with a new key asks for it and finds nothing.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if l.opts.tune != nil {
		l.opts.tune(o)
	}
	return o
}

var errFailed = fmt.Errorf("%w: a write to the disk failed, and the process must end", changelog.ErrUnavailable)

// fail ends the process. Nobody gets further before it did, and nothing is
// acknowledged.
func (l *Log) fail(err error) {
	l.failed.Store(true)
	l.ending.Do(func() {
		l.opts.Fatal("a write to the change memory in "+l.dir+" failed; it recovers at the next start", err)
	})
}

// failedLog ends the process because the write-ahead log failed, but for Open,
// which can return it.
func (l *Log) failedLog(err error) {
	if l.opened.Load() {
		l.fail(err)
	}
}

// apply gives a batch its place in the order of all writes. It is readable in
// the store from then on, and durable when wait returned nil.
func (l *Log) apply(b *pebble.Batch) error {
	if l.failed.Load() {
		return errFailed
	}
	if err := l.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return fmt.Errorf("%w: %w", changelog.ErrUnknown, err)
	}
	return nil
}

// wait returns when a batch that was applied is durable, and with it all that
// were applied before. It shares the fsync with whoever else waits.
func (l *Log) wait(b *pebble.Batch) error {
	err := b.SyncWait()
	if err != nil {
		l.fail(err)
	}
	if err != nil || l.failed.Load() { // a Fatal that returns must not make it an answer
		return fmt.Errorf("%w: %w", changelog.ErrUnknown, errors.Join(err, errFailed))
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

// damage marks an error of Pebble that says that a file is damaged.
func damage(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", changelog.ErrCorrupt, err)
	}
	return err
}

// What is put into a batch stays in memory until the batch is applied, so
// these cannot fail.
func put(b *pebble.Batch, key, value []byte)       { _ = b.Set(key, value, nil) }
func remove(b *pebble.Batch, key []byte)           { _ = b.Delete(key, nil) }
func removeRange(b *pebble.Batch, from, to []byte) { _ = b.DeleteRange(from, to, nil) }

// chatter takes what Pebble logs.
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
