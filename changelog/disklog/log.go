// Package disklog implements changelog.Log on the local disk, for one hub that needs no other
// server. It stores blocks in Pebble, with one write-ahead log and one group commit for all sets.
//
// It also stores the pages of inventories (internal/inventory.Store) next to the log that they are
// made from. Subscriptions and claims share its database through Log.Keep. Read package changelog
// for the contract, and log.go for the layout of keys. The package carries no compatibility
// promise.
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
	"github.com/rshub/rshub/feed"
)

// Options of a Log. Zero values are the defaults.
type Options struct {
	ClockSkew time.Duration    // how far a set's head may lie in the future; default 1 minute
	Reserve   uint64           // free bytes below which nothing is added; default 64 MiB
	Now       func() time.Time // default time.Now
	Existing  bool             // for a source of a copy: Open makes no memory but fails if there is none
	FS        vfs.FS           // default vfs.Default
	Logger    *slog.Logger     // default: discard

	// Fatal ends the process because a write failed, and does not return. After
	// a failed write, it is unknown what reached the disk. A failed fsync must
	// not be tried again. The store recovers when it is opened again. The
	// default logs one line (to standard error if there is no Logger), and
	// exits with status 1.
	Fatal func(msg string, err error)

	tune func(*pebble.Options) // changes the options of Pebble, for tests
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
	last := io.Discard // where Fatal writes when there is no logger
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
	// Set by Open, and not changed after it.
	dir  string
	opts Options
	id   string
	lock *pebble.Lock
	db   *pebble.DB

	// Any goroutine may read and set these.
	opened  atomic.Bool                     // Pebble is open, so a failed write ends the process
	opening chan error                      // why recovery cannot go on, before opened; it has room for one
	failed  atomic.Bool                     // a write has failed
	ending  sync.Once                       // calls Fatal
	clock   atomic.Pointer[changelog.Clock] // what Tick has noted, in this process or before

	making  sync.Mutex // held while a set is made or deleted
	ticking sync.Mutex // held by Tick

	mu   sync.RWMutex // guards sets; held only for a look-up or a change
	sets map[string]*set
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory in a directory. It makes the directory and the
// memory if there is none, unless opts.Existing. After a crash at any moment the
// memory holds everything that was acknowledged. Only one process may have the
// directory open: ErrInUse. The caller closes the Log.
//
// Open blocks until the memory has recovered. It returns an error if the disk has too
// little room for that, and the cause of ctx if ctx is done first.
func Open(ctx context.Context, dir string, opts Options) (*Log, error) {
	l := &Log{dir: dir, opts: opts.withDefaults(), opening: make(chan error, 1), sets: make(map[string]*set)}
	if err := l.open(ctx); err != nil {
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

func (l *Log) open(ctx context.Context) (err error) {
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
	if err := checkTail(l.opts.FS, l.dir); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	if err := l.openPebble(ctx); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	if err := l.identify(); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	clock, err := l.readClock()
	if err != nil {
		return fmt.Errorf("open the change memory in %s: read the noted time: %w", l.dir, err)
	}
	l.clock.Store(&clock)
	if err := l.load(); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// ErrInUse means that another process has a directory open.
var ErrInUse = errors.New("in use by another process (or opened twice)")

// exists returns nil when there is a store, or when Open may make one.
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

// inFile reports whether an error is about a file, and not about the lock on it.
func inFile(err error) bool {
	_, ok := errors.AsType[*os.PathError](err)
	return ok
}

// identify reads the format and the identity. It writes them into a new store.
func (l *Log) identify() error {
	format, err := l.get(formatKey)
	if err != nil {
		return fmt.Errorf("read the format: %w", err)
	}
	if format == nil {
		l.id = rand.Text()
		return l.found()
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

// found makes an empty store a change memory of the identity l.id.
func (l *Log) found() error {
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
	put(b, formatKey, []byte(formatVersion))
	put(b, idKey, []byte(l.id))
	return l.commit(b)
}

// ID returns the identity of this memory.
func (l *Log) ID() string { return l.id }

// Secret returns nothing, because no other hub can read this memory.
func (l *Log) Secret() string { return "" }

// Check reports whether an append could succeed now: no write has failed, and there is
// room. It does not check the clock, because there is only the hub's. A head in the
// future stops only appends to its own set.
func (l *Log) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("check the change memory: %w", err)
	}
	if l.failed.Load() {
		return errFailed
	}
	return l.room()
}

// room returns ErrFull when the disk has less free space than the reserve.
func (l *Log) room() error { return l.roomFor(l.opts.Reserve, "the reserve") }

// roomFor returns ErrFull if fewer than want bytes are free. need says what they are for.
func (l *Log) roomFor(want uint64, need string) error {
	free, _, err := l.Space()
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // the free space is unknown; a write to a full disk will fail
	}
	if err == nil && free < want {
		err = fmt.Errorf("%w: the disk of %s has %d MiB left, want %d MiB for %s", feed.ErrFull, l.dir, free>>20, (want+1<<20-1)>>20, need)
	}
	return err
}

// Space returns how many bytes are free on the memory's disk, and the reserve: with
// fewer free bytes than that, the memory adds nothing.
func (l *Log) Space() (free, reserve uint64, err error) {
	usage, err := l.opts.FS.GetDiskUsage(l.dir)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the free space of %s: %w", l.dir, err)
	}
	return usage.AvailBytes, l.opts.Reserve, nil
}

// FreeSpace returns how many bytes are free on the disk of a directory. The error is
// vfs.ErrUnsupported if the system cannot tell.
func FreeSpace(dir string) (bytes uint64, err error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err
}

// Kept returns about how many bytes of the disk a set takes: its log, its keys and the
// pages of its inventory, as stored on disk. It does not count the newest writes, some
// MB for all sets together.
func (l *Log) Kept(set string) (bytes int64, err error) {
	for _, prefix := range []string{"log/", "key/", "age/", "page/"} {
		from, to := bounds(prefix, set)
		n, err := l.db.EstimateDiskUsage(from, to)
		if err != nil {
			return 0, fmt.Errorf("measure set %q: %w", set, err)
		}
		bytes += int64(n)
	}
	return bytes, nil
}

// Capacity returns how many bytes the memory may take: what it takes now plus the free
// space above the reserve.
func (l *Log) Capacity() (bytes int64, err error) {
	free, reserve, err := l.Space()
	if err != nil {
		return 0, err
	}
	return int64(l.db.Metrics().DiskSpaceUsage() + free - min(free, reserve)), nil
}

// Checkpoint writes a consistent copy of the memory into a directory, which must not
// exist. The memory stays in use meanwhile. The copy has everything that was
// acknowledged before the call. Open opens it. On the same disk the copy is cheap:
// Checkpoint makes hard links to files that no longer change, and copies the others. It
// returns ErrFull, and writes nothing, if less than the reserve would then be free.
func (l *Log) Checkpoint(dir string) error {
	err := l.roomToCopy()
	if err == nil {
		err = l.checkpoint(dir)
	}
	if err != nil {
		return fmt.Errorf("copy the change memory in %s to %s: %w", l.dir, dir, err)
	}
	return nil
}

// checkpoint returns it as an error when Pebble panics because the copy's directory cannot
// be synced. Pebble releases all its locks then.
func (l *Log) checkpoint(dir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(error)
			if !ok {
				panic(r)
			}
			err = errors.Join(failed, l.opts.FS.RemoveAll(dir))
		}
	}()
	return l.db.Checkpoint(dir, pebble.WithFlushedWAL())
}

// roomToCopy returns ErrFull if there is too little room for the files that a checkpoint
// cannot link.
func (l *Log) roomToCopy() error {
	size, err := sizeOf(l.opts.FS, l.dir, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	if err != nil {
		return err
	}
	return l.roomFor(size+l.opts.Reserve, "the copy and the reserve")
}

// Close releases the store. Nothing may be called after it.
func (l *Log) Close() error {
	if err := errors.Join(l.db.Close(), l.lock.Close()); err != nil {
		return fmt.Errorf("close the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// now returns the time of the store's clock, in microseconds since 1970.
func (l *Log) now() int64 { return l.opts.Now().UnixMicro() }

// Sets returns the states of the named sets, sorted by name; without a name, of all
// sets.
func (l *Log) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list the sets: %w", err)
	}
	l.mu.RLock()
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(l.sets))
	}
	states := make([]feed.State, 0, len(names))
	for _, name := range names {
		if s := l.sets[name]; s != nil {
			if state := s.state.Load(); state != nil {
				states = append(states, *state)
			}
		}
	}
	l.mu.RUnlock()
	slices.SortFunc(states, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	return states, nil
}
