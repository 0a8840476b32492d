// Package live maintains the inventories of one hub, and provides them to readers.
//
// The maker follows the logs of the sets whose shard this hub claims, and commits the waiting
// changes. One goroutine does that for all sets, one after another. Two hubs that make the same
// inventory do no harm: a claim only saves work.
//
// Readers need no claim. On every hub, a reader gets the newest root of a set, or one that others
// already read, and the log after it. States are cached for a while, because audits and pages
// request them again.
//
// The terms, on the way from the store to a reader:
//   - A root is a tree that a maker has committed. A baseline and a Resource List are a root as it is.
//   - An overlay is what the log has after a root, in memory. Both together are a state: what the set
//     held at a cursor.
//   - A snapshot is a root that readers of this hub use. A pin in the store keeps it from being dropped.
//   - A view is all that this hub has of a set for its readers: snapshots, an overlay, and cached states.
package live

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
)

// Kind is the kind of the claims on inventories, and Shards is how many shards
// there are. The shard of a set follows from its name.
const (
	Kind   = "inventory"
	Shards = 64
)

var (
	// ErrIncomplete means that no publisher said that the hub knows all resources of
	// the set, or that this is not true any more.
	ErrIncomplete = &feed.Error{Code: "incomplete", Status: 404, Text: "the inventory is not complete",
		Detail: `the hub has no Resource List of this set, because it may not know all resources; a publisher declares the set complete: PUT /sets/NAME with {"complete":true}`}

	// ErrBehind means that the inventory has not reached the cursor that the caller
	// asks for. It is being made from a long log, or the log itself has not reached
	// the cursor.
	ErrBehind = &feed.Error{Code: "behind", Status: 503, RetryAfter: 5, Text: "the inventory is behind",
		Detail: "the inventory of this set has not reached the cursor yet; try again soon"}

	// ErrTooMany means that the maximum number of readers read inventories now.
	// The maximum of one user is half of that.
	ErrTooMany = &feed.Error{Code: "too-many", Status: 429, RetryAfter: 5, Text: "too many readers of inventories",
		Detail: "too many baselines or audits are in progress; try again soon"}

	// errOff is the feed.ErrNoInventory of a set whose source wants none.
	errOff = &feed.Error{Code: feed.ErrNoInventory.Code, Status: feed.ErrNoInventory.Status, Text: "the inventory of the set is turned off",
		Detail: `the description of this set has "inventory":"off", so there are no baselines, lists of resources and audits`}
)

// A Log is what Live needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Options of a Live. Zero values are the defaults.
type Options struct {
	Poll time.Duration // how often the maker looks at changing sets, and at all sets if there are few; default 500 ms
	List time.Duration // how often a Resource List is renewed if anything changed; default an hour

	WaitBytes  int // memory of changes that wait for a commit, for all sets together; default 64 MiB
	StateBytes int // memory of kept states without their roots, for all sets together; default 128 MiB

	Baselines int // how many baselines may be read at a time; default 128
	States    int // how many states may be read at a time, for audits and listings; default 128

	// Scarce reports whether the store has so little room left that retention must not
	// wait for inventories. Default: it has room.
	Scarce func(ctx context.Context) bool

	// SweepDeleted removes the remains of the inventories of deleted sets, for at most
	// most sets, and returns for how many it did. Default: deleted sets leave nothing.
	SweepDeleted func(ctx context.Context, most int) (int, error)

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Live; default: nowhere
}

func (o *Options) defaults() {
	o.Poll, o.List = cmp.Or(o.Poll, 500*time.Millisecond), cmp.Or(o.List, time.Hour)
	o.WaitBytes, o.StateBytes = cmp.Or(o.WaitBytes, 64<<20), cmp.Or(o.StateBytes, 128<<20)
	o.Baselines, o.States = cmp.Or(o.Baselines, 128), cmp.Or(o.States, 128)
	if o.Scarce == nil {
		o.Scarce = func(context.Context) bool { return false }
	}
	if o.SweepDeleted == nil {
		o.SweepDeleted = func(context.Context, int) (int, error) { return 0, nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// cacheBytes is the memory of cached pages.
const cacheBytes = 32 << 20

// A Live keeps the inventories of one hub. Its methods may be called concurrently.
type Live struct {
	// Set by New, never changed.
	log     Log
	store   inventory.Store
	opts    Options
	logger  *slog.Logger
	holder  string // holder of this hub's pins
	cache   *inventory.Cache
	keeper  *claim.Keeper
	maker   *maker
	metrics *metrics
	started time.Time
	scarce  rate.Sometimes // the log line that the store has little room

	mu sync.Mutex

	// Guarded by mu.
	shards  map[int]*claim.Hold // the claims of this hub
	views   map[string]*view    // one for each set that is read
	bytes   int                 // memory of all kept states and overlays
	reading [2]int              // how many readers read now, by kind of reader
	of      map[reads]int       // the same, of each user
}

// New returns the Live of a log and the inventories beside it. It makes no inventory
// until Run, but readers may use it at once. The caller closes log and store after
// Run has returned and all readers have released what they hold.
func New(log Log, store inventory.Store, claims claim.Store, o Options) *Live {
	o.defaults()
	l := &Live{
		log: log, store: store, opts: o, logger: o.Logger, holder: claims.Name(), cache: inventory.NewCache(cacheBytes),
		metrics: newMetrics(o.Metrics), started: time.Now(), scarce: rate.Sometimes{Interval: time.Minute}, shards: map[int]*claim.Hold{}, views: map[string]*view{}, of: map[reads]int{},
	}
	l.maker = newMaker(l)
	l.keeper = claim.NewKeeper(claims, worker{l}, Shards, nil, o.Logger.With("work", "inventories"))
	newGauges(o.Metrics, l)
	return l
}

// releaseWithin is how long Run takes at most to give up claims and pins.
const releaseWithin = 3 * time.Second

// Run makes the inventories of the sets whose shard this hub claims, until ctx is
// done. Then it gives up its claims and its pins. A failure is logged, and the maker
// tries again. When Run returns, none of its goroutines is left.
func (l *Live) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { l.keeper.Run(ctx, releaseWithin) })
	wg.Go(func() { l.maker.run(ctx) })
	wg.Go(func() { l.tidy(ctx) })
	wg.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	l.renew(ending, true)
}

// inventory returns the inventory of a set for a reader. If a read finds damage, the
// maker is told.
func (l *Live) inventory(set string) *inventory.Inventory {
	return inventory.New(l.store, set, inventory.Options{Cache: l.cache, Damaged: func(error) { l.maker.ask(set, true) }})
}
