// Package disklog keeps the change memory on the local disk, for one hub that
// needs no other server. It stores blocks in Pebble: one write-ahead log and
// one group commit over all sets.
package disklog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
)

// Options are what a Log can be told. The zero value is good.
type Options struct {
	ClockSkew time.Duration    // how far a set's head may lie in the future; default 1 minute
	Reserve   uint64           // free bytes below which nothing is added; default 64 MiB
	Now       func() time.Time // default time.Now
	Existing  bool             // do not make a memory where there is none
	FS        vfs.FS           // default vfs.Default
	Logger    *slog.Logger     // default: discard

	// Fatal ends the process because a write failed, and does not return: what
	// reached the disk is unknown then, and a failed fsync must not be tried
	// again. The store recovers when it is opened the next time. The default
	// logs one line, to stderr where no Logger is given, and exits with status 1.
	Fatal func(msg string, err error)

	tune        func(*pebble.Options) // for tests
	importBytes int                   // that an Import gathers for one fsync; default 4 MiB
}

func (o Options) withDefaults() Options {
	if o.ClockSkew <= 0 {
		o.ClockSkew = time.Minute
	}
	if o.Reserve == 0 {
		o.Reserve = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.importBytes == 0 {
		o.importBytes = 4 << 20
	}
	last := io.Discard // the last word, where there is no logger to say it
	if o.Logger == nil {
		o.Logger, last = slog.New(slog.DiscardHandler), os.Stderr
	}
	if o.Fatal == nil {
		logger := o.Logger
		o.Fatal = func(msg string, err error) {
			logger.Error(msg, "err", err)
			fmt.Fprintf(last, "rshub: %s: %v\n", msg, err)
			os.Exit(1)
		}
	}
	return o
}

// A Log is a changelog.Log in a directory of the local disk.
type Log struct {
	dir  string
	opts Options
	id   string
	lock *pebble.Lock
	db   *pebble.DB

	opened atomic.Bool // from now on a write that fails ends the process
	failed atomic.Bool // one did
	ending sync.Once
	making sync.Mutex // held by who makes or deletes a set

	mu   sync.RWMutex
	sets map[string]*set
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory in a directory, which it makes when there is
// none. After a crash at any moment the memory holds everything that was
// acknowledged. Only one process may have the directory open.
func Open(dir string, opts Options) (*Log, error) {
	return openDir(dir, opts, (*Log).identify)
}

// openDir opens a directory; identify reads or writes whose memory it is.
func openDir(dir string, opts Options, identify func(*Log) error) (*Log, error) {
	l := &Log{dir: dir, opts: opts.withDefaults(), sets: make(map[string]*set)}
	if err := l.open(identify); err != nil {
		if l.db != nil {
			err = errors.Join(err, l.db.Close())
		}
		if l.lock != nil {
			err = errors.Join(err, l.lock.Close())
		}
		return nil, err
	}
	return l, nil
}

func (l *Log) open(identify func(*Log) error) (err error) {
	if err := l.exists(); err != nil {
		return err
	}
	if err := makeDir(l.opts.FS, l.dir); err != nil {
		return fmt.Errorf("the directory %s for the change memory cannot be made: %w", l.dir, err)
	}
	if l.lock, err = pebble.LockDirectory(l.dir, l.opts.FS); err != nil {
		l.lock = nil
		if inFile(err) {
			return fmt.Errorf("the change memory in %s cannot be written: %w", l.dir, err)
		}
		return fmt.Errorf("the change memory in %s is %w: %w", l.dir, ErrInUse, err)
	}
	if l.db, err = pebble.Open(l.dir, l.pebbleOptions()); err != nil {
		l.db = nil
		return fmt.Errorf("open the change memory in %s: %w", l.dir, damage(err))
	}
	l.opened.Store(true)
	if err := identify(l); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	if err := l.load(); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// ErrInUse means that another process has a directory open.
var ErrInUse = errors.New("in use by another process (or opened twice)")

// exists returns nil when there is a store, or one may be made.
func (l *Log) exists() error {
	if !l.opts.Existing {
		return nil
	}
	store, err := pebble.Peek(l.dir, l.opts.FS)
	if err == nil && !store.Exists {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("there is no change memory in %s: %w", l.dir, err)
	}
	return nil
}

// inFile tells an error about a file from one about its lock.
func inFile(err error) bool {
	_, ok := errors.AsType[*os.PathError](err)
	return ok
}

// identify reads the format and the identity, or writes them into a new store.
func (l *Log) identify() error {
	format, err := l.get(formatKey)
	if err != nil {
		return fmt.Errorf("read the format: %w", err)
	}
	if format == nil {
		l.id = rand.Text()
		return l.found(formatVersion)
	}
	if string(format) == formatUnfinished {
		return changelog.ErrUnfinished
	}
	if string(format) != formatVersion {
		return fmt.Errorf("it has format %q, and this version of rshub knows only format %s: start the version that wrote it, or a newer one", format, formatVersion)
	}
	id, err := l.get(idKey)
	if err != nil {
		return fmt.Errorf("read the identity: %w", err)
	}
	if l.id = string(id); l.id == "" {
		return fmt.Errorf("%w: it has no identity", changelog.ErrCorrupt)
	}
	return nil
}

// found makes an empty store a change memory, or what is to become one, of the
// identity l.id.
func (l *Log) found(format string) error {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return err
	}
	foreign := it.First()
	if err := it.Close(); err != nil {
		return damage(err)
	}
	if foreign {
		return errors.New("it is a Pebble store of another program")
	}
	b := l.db.NewBatch()
	put(b, formatKey, []byte(format))
	put(b, idKey, []byte(l.id))
	return l.commit(b)
}

// ID returns the identity of this memory.
func (l *Log) ID() string { return l.id }

// Check reports whether an append could succeed now: there is room, and no
// set's head lies too far in the future.
func (l *Log) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("check the change memory: %w", err)
	}
	if l.failed.Load() {
		return errFailed
	}
	if err := l.room(); err != nil {
		return err
	}
	limit := l.now() + l.opts.ClockSkew.Microseconds()
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.sets {
		if state := s.state.Load(); state != nil && state.Head.Micros > limit {
			return l.late(s.name, state.Head)
		}
	}
	return nil
}

// late is the error for a head too far in the future.
func (l *Log) late(set string, head changelog.Cursor) error {
	return fmt.Errorf("%w: the newest entry of set %q is of %s and now is %s", changelog.ErrClock, set,
		head.Time().Format(time.RFC3339), l.opts.Now().UTC().Format(time.RFC3339))
}

// room returns ErrFull when the disk is.
func (l *Log) room() error {
	free, reserve, err := l.Space()
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // nobody knows; the write will tell
	}
	if err != nil {
		return err
	}
	if free < reserve {
		return fmt.Errorf("%w: the disk of %s has %d MiB left, less than the reserve of %d MiB", changelog.ErrFull, l.dir, free>>20, reserve>>20)
	}
	return nil
}

// Space returns the bytes that are free on the memory's disk, and those below
// which nothing is added.
func (l *Log) Space() (free, reserve uint64, err error) {
	usage, err := l.opts.FS.GetDiskUsage(l.dir)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the free space of %s: %w", l.dir, err)
	}
	return usage.AvailBytes, l.opts.Reserve, nil
}

// Checkpoint writes a consistent copy of the memory, with all that was
// acknowledged before, into a directory that must not exist, while it is in
// use. The copy can be opened as it is. On the same disk it costs little: what
// does not change any more is linked.
func (l *Log) Checkpoint(dir string) error {
	if err := l.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the change memory in %s to %s: %w", l.dir, dir, err)
	}
	return nil
}

// Close releases the store. Nothing may be called after it.
func (l *Log) Close() error {
	if err := errors.Join(l.db.Close(), l.lock.Close()); err != nil {
		return fmt.Errorf("close the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// now is the store's clock in microseconds.
func (l *Log) now() int64 { return l.opts.Now().UnixMicro() }

// Sets returns the states of the sets with the names, without one of all sets,
// sorted by name.
func (l *Log) Sets(ctx context.Context, names ...string) ([]changelog.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list the sets: %w", err)
	}
	l.mu.RLock()
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(l.sets))
	}
	states := make([]changelog.State, 0, len(names))
	for _, name := range names {
		if s := l.sets[name]; s != nil {
			if state := s.state.Load(); state != nil {
				states = append(states, *state)
			}
		}
	}
	l.mu.RUnlock()
	slices.SortFunc(states, func(a, b changelog.State) int { return strings.Compare(a.Set, b.Set) })
	return states, nil
}
