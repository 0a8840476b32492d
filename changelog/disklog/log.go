// Package disklog implements changelog.Log on the local disk, for one hub that needs no other
// server. It stores blocks in Pebble, with one write-ahead log and one group commit for all sets.
//
// It also stores the pages of inventories (internal/inventory.Store) next to the log that they are
// made from. Subscriptions and claims share its database through Log.Bucket. See package changelog
// for the contract, and key.go for the layout of keys. The package carries no compatibility
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

// Options configures a Log. The zero value uses the defaults.
type Options struct {
	ClockSkew time.Duration    // maximum lead of a set's head over the clock; default 1 minute
	Reserve   uint64           // free bytes on the disk below which appends fail; default 64 MiB
	Now       func() time.Time // default time.Now
	Existing  bool             // Open fails if the memory does not exist, instead of creating it
	FS        vfs.FS           // default vfs.Default
	Logger    *slog.Logger     // default: discard

	// Fatal ends the process because a write failed, and does not return. After
	// a failed write, it is unknown which data reached the disk, and a failed
	// fsync must not be retried. The store recovers when it is opened again.
	// The default logs one line (to standard error if Logger is nil), and
	// exits with status 1.
	Fatal func(msg string, err error)

	tune func(*pebble.Options) // changes Pebble's options in tests; nil if not needed
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
	last := io.Discard // output of Fatal if there is no logger
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
	// Set by Open and not modified afterwards.
	dir  string
	opts Options
	id   string
	lock *pebble.Lock
	db   *pebble.DB

	// Safe for concurrent use without a lock.
	opened      atomic.Bool                     // Pebble is open, so a failed write ends the process
	openFailure chan error                      // first error that recovery cannot survive; buffered; used until opened is true
	failed      atomic.Bool                     // a write has failed
	fatalOnce   sync.Once                       // guards the call of Fatal
	clock       atomic.Pointer[changelog.Clock] // newest record of Tick, by this or an earlier process

	makeMu sync.Mutex // held while a set is created or deleted
	tickMu sync.Mutex // held by Tick

	mu   sync.RWMutex // guards sets; held only for a map operation
	sets map[string]*set
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory in a directory. It creates the directory and the
// memory if they do not exist, unless opts.Existing is set. After a crash at any
// moment, the memory has everything that was acknowledged. Only one process can
// open the directory; for others, Open returns ErrInUse. The caller must close
// the Log.
//
// Open blocks until the memory has recovered. It returns an error if the disk has
// too little free space for recovery, and the cause of ctx if ctx is done first.
func Open(ctx context.Context, dir string, opts Options) (*Log, error) {
	l := &Log{dir: dir, opts: opts.withDefaults(), openFailure: make(chan error, 1), sets: make(map[string]*set)}
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
	if err := l.checkExisting(); err != nil {
		return err
	}
	if err := makeDir(l.opts.FS, l.dir); err != nil {
		return fmt.Errorf("create the directory %s for the change memory: %w", l.dir, err)
	}
	if l.lock, err = pebble.LockDirectory(l.dir, l.opts.FS); err != nil {
		l.lock = nil
		if isPathError(err) {
			return fmt.Errorf("lock the change memory in %s: %w", l.dir, err)
		}
		return fmt.Errorf("the change memory in %s is %w: %w", l.dir, ErrInUse, err)
	}
	if err := checkTail(l.opts.FS, l.dir); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	if err := l.openPebble(ctx); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	if err := l.loadIdentity(); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	clock, err := l.readClock()
	if err != nil {
		return fmt.Errorf("open the change memory in %s: read the recorded time: %w", l.dir, err)
	}
	l.clock.Store(&clock)
	if err := l.loadSets(); err != nil {
		return fmt.Errorf("open the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// ErrInUse reports that another process, or another Log, has the directory open.
var ErrInUse = errors.New("in use by another process (or opened twice)")

// checkExisting returns an error if opts.Existing is set and the directory has no store.
func (l *Log) checkExisting() error {
	if !l.opts.Existing {
		return nil
	}
	store, err := pebble.Peek(l.dir, l.opts.FS)
	if err == nil && !store.Exists {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("no change memory in %s: %w", l.dir, err)
	}
	return nil
}

// isPathError reports whether err is an error of the lock file itself, such as missing permission,
// rather than a lock that another process holds.
func isPathError(err error) bool {
	_, ok := errors.AsType[*os.PathError](err)
	return ok
}

// loadIdentity reads the format and the identity of the store, or writes them into a new store.
func (l *Log) loadIdentity() error {
	format, err := l.get(formatKey)
	if err != nil {
		return fmt.Errorf("read the format: %w", err)
	}
	if format == nil {
		l.id = rand.Text()
		return l.initialize()
	}
	if string(format) != formatVersion {
		return fmt.Errorf("unsupported format %q, want %s; start the version of rshub that wrote it, or a newer one", format, formatVersion)
	}
	id, err := l.get(idKey)
	if err != nil {
		return fmt.Errorf("read the identity: %w", err)
	}
	if l.id = string(id); l.id == "" {
		return fmt.Errorf("%w: identity is missing", changelog.ErrCorrupt)
	}
	return nil
}

// initialize writes the format and the identity l.id into a new store. It refuses a store that has
// data of another program.
func (l *Log) initialize() error {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return err
	}
	foreign := it.First()
	if err := it.Close(); err != nil {
		return wrapCorrupt(err)
	}
	if foreign {
		return errors.New("the directory has a Pebble store of another program")
	}
	b := l.db.NewBatch()
	put(b, formatKey, []byte(formatVersion))
	put(b, idKey, []byte(l.id))
	return l.commit(b)
}

// ID returns the identity of this memory.
func (l *Log) ID() string { return l.id }

// Secret returns the empty string, because no other hub can read this memory.
func (l *Log) Secret() string { return "" }

// Check returns nil if an append could succeed now: no write has failed, and the disk has enough
// free space. It does not compare clocks, because the hub's is the only one.
func (l *Log) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("check the change memory: %w", err)
	}
	if l.failed.Load() {
		return errWriteFailed
	}
	return l.checkSpace()
}

// checkSpace returns ErrFull if the disk has less free space than the reserve.
func (l *Log) checkSpace() error { return l.requireSpace(l.opts.Reserve, "the reserve") }

// requireSpace returns ErrFull if fewer than want bytes are free. need names their purpose in the
// error.
func (l *Log) requireSpace(want uint64, need string) error {
	free, _, err := l.Space()
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // the free space is unknown; if the disk is full, the write fails
	}
	if err == nil && free < want {
		err = fmt.Errorf("%w: disk of %s: got %d MiB free, want %d MiB for %s", feed.ErrFull, l.dir, free>>20, (want+1<<20-1)>>20, need)
	}
	return err
}

// Space returns the number of free bytes on the memory's disk, and the reserve. If fewer bytes than
// the reserve are free, the memory refuses new data.
func (l *Log) Space() (free, reserve uint64, err error) {
	usage, err := l.opts.FS.GetDiskUsage(l.dir)
	if err != nil {
		return 0, 0, fmt.Errorf("get free space of %s: %w", l.dir, err)
	}
	return usage.AvailBytes, l.opts.Reserve, nil
}

// FreeSpace returns the number of free bytes on the disk of a directory. The error is
// vfs.ErrUnsupported if the system does not report it.
func FreeSpace(dir string) (bytes uint64, err error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err
}

// SetSize returns an estimate of the disk space in bytes that a set uses for its log, its keys and
// the pages of its inventory. It does not count the newest writes, which are some MB for all sets
// together.
func (l *Log) SetSize(set string) (bytes int64, err error) {
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

// Capacity returns the number of bytes that the memory may use: its present size plus the free space
// above the reserve.
func (l *Log) Capacity() (bytes int64, err error) {
	free, reserve, err := l.Space()
	if err != nil {
		return 0, err
	}
	return int64(l.db.Metrics().DiskSpaceUsage() + free - min(free, reserve)), nil
}

// Checkpoint writes a consistent copy of the memory into a directory, which must not exist. The
// memory can be used during the call. The copy has everything that was acknowledged before the call,
// and can be opened with Open. On the same disk the copy is cheap, because Checkpoint makes hard links
// to files that no longer change, and copies only the others. If the copy would leave less free space
// than the reserve, Checkpoint writes nothing and returns ErrFull.
func (l *Log) Checkpoint(dir string) error {
	err := l.checkCopySpace()
	if err == nil {
		err = l.checkpoint(dir)
	}
	if err != nil {
		return fmt.Errorf("copy the change memory in %s to %s: %w", l.dir, dir, err)
	}
	return nil
}

// checkpoint writes the copy. If the copy's directory cannot be synced, Pebble panics, after it has
// released all its locks; checkpoint returns that panic as an error.
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

// checkCopySpace returns ErrFull if the disk has too little free space for the files that a
// checkpoint must copy because it cannot link them.
func (l *Log) checkCopySpace() error {
	size, err := totalSize(l.opts.FS, l.dir, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	if err != nil {
		return err
	}
	return l.requireSpace(size+l.opts.Reserve, "the copy and the reserve")
}

// Close releases the store. No method may be called after it.
func (l *Log) Close() error {
	if err := errors.Join(l.db.Close(), l.lock.Close()); err != nil {
		return fmt.Errorf("close the change memory in %s: %w", l.dir, err)
	}
	return nil
}

// now returns the time of the store's clock, in microseconds since 1970.
func (l *Log) now() int64 { return l.opts.Now().UnixMicro() }

// Sets returns the states of the named sets, or of all sets without names, sorted by name.
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
