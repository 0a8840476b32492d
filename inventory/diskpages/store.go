// Package diskpages keeps inventories in a directory of the local disk. It is for
// programs that hold a copy of a set and want to prove it, see client.Replica: they
// have no change memory that could keep the pages.
package diskpages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// Options are what a Store can be told. The zero value is good.
type Options struct {
	// Log is the log that the inventories are made from. Default: none is at hand, as with
	// a destination. Then every set exists, its log began at 0, and it holds every cursor.
	Log inventory.Log

	Now    func() time.Time // default time.Now
	FS     vfs.FS           // default vfs.Default
	Logger *slog.Logger     // default: discard

	// Fatal ends the process because a write failed, and does not return. After a
	// failed write nobody knows what reached the disk. The store recovers when it is
	// opened the next time. The default logs one line (to standard error if there is no
	// Logger), and exits with status 1.
	Fatal func(msg string, err error)
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	last := io.Discard // where Fatal writes when there is no logger
	if o.Logger == nil {
		o.Logger, last = slog.New(slog.DiscardHandler), os.Stderr
	}
	if o.Fatal == nil {
		logger := o.Logger
		o.Fatal = func(msg string, err error) {
			logger.Error(msg, "err", err)
			fmt.Fprintf(last, "%s: %v\n", msg, err)
			os.Exit(1)
		}
	}
	return o
}

// A Store is an inventory.Store in a directory. A crash of the process or of the machine
// may undo the newest steps, but none that came before a Swap that is Durable or that has
// a cursor.
type Store struct {
	dir  string
	opts Options
	db   *pebble.DB

	mu sync.Mutex // held while a record is looked at and then written by
}

var _ inventory.Store = (*Store)(nil)

// The store has one key with its format, one record for each set, and the pages.
// Numbers are big-endian, so pages lie in their order.
const (
	formatKey     = "format"
	formatVersion = "1"
	recordPrefix  = "record/" // and the set
	pagePrefix    = "page/"   // and the set, a slash, and the number
)

// Open opens the store in a directory. It makes the directory and the store if there is
// none. Only one process may have the directory open. The caller closes the Store.
func Open(dir string, o Options) (*Store, error) {
	s := &Store{dir: dir, opts: o.withDefaults()}
	var err error
	if s.db, err = pebble.Open(dir, s.pebbleOptions()); err != nil {
		return nil, fmt.Errorf("open the inventories in %s: %w", dir, err)
	}
	if err := s.identify(); err != nil {
		return nil, fmt.Errorf("open the inventories in %s: %w", dir, errors.Join(err, s.db.Close()))
	}
	return s, nil
}

// pebbleOptions are modest: the program around the store has other things to do.
func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                          s.opts.FS,
		Logger:                      chatter{s},
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		CacheSize:                   8 << 20,
		MemTableSize:                8 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                100,
		// Without this, Pebble would end the process. A read of the damaged file
		// returns an error.
		EventListener: &pebble.EventListener{
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.opts.Logger.Error("a file of the inventories is damaged", "file", info.Path, "err", info.Details)
			},
			// Pebble writes what waits again and again while the disk is full, and its
			// Open does not return meanwhile.
			BackgroundError: func(err error) {
				if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
					chatter{s}.Fatalf("%w", err)
				}
			},
		},
	}
	// The default one looks ten times a second whether more compactions than before may run
	// at the same time. That keeps an idle program busy, and here it is always one.
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	return o
}

// identify checks the format. It writes it into a new store.
func (s *Store) identify() error {
	format, err := s.get([]byte(formatKey))
	switch {
	case err != nil:
		return fmt.Errorf("read the format: %w", err)
	case string(format) == formatVersion:
		return nil
	case format != nil:
		return fmt.Errorf("it has format %q, and this version of rshub knows only format %s", format, formatVersion)
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	foreign := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if foreign {
		return errors.New("it is a Pebble store of another program")
	}
	return s.db.Set([]byte(formatKey), []byte(formatVersion), pebble.Sync)
}

// Close releases the store. Nothing may be called after it.
func (s *Store) Close() error {
	if err := errors.Join(s.db.Flush(), s.db.Close()); err != nil {
		return fmt.Errorf("close the inventories in %s: %w", s.dir, err)
	}
	return nil
}

// Copy makes a copy of the store, as it is now, in a directory that does not exist yet. It
// takes moments, and little room as long as the store changes little.
func (s *Store) Copy(dir string) error {
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the inventories in %s to %s: %w", s.dir, dir, err)
	}
	return nil
}

// get returns a copy of a value, nil when there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	v, done, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v = slices.Clone(v)
	if v == nil {
		v = []byte{}
	}
	return v, done.Close()
}

// known returns the error of a write that may have happened or not.
func (s *Store) known(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return nil
}

// chatter passes the log messages of Pebble on to the Logger.
type chatter struct{ store *Store }

func (c chatter) Infof(format string, args ...any) {
	if l := c.store.opts.Logger; l.Enabled(context.Background(), slog.LevelDebug) {
		l.Debug("inventories: " + fmt.Sprintf(format, args...))
	}
}

func (c chatter) Errorf(format string, args ...any) {
	c.store.opts.Logger.Error("inventories: " + fmt.Sprintf(format, args...))
}

func (c chatter) Fatalf(format string, args ...any) {
	c.store.opts.Fatal("a write to the inventories in "+c.store.dir+" failed; they recover at the next start", fmt.Errorf(format, args...))
}
