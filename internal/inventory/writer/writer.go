// Package writer builds and updates the inventories of the sets whose shards this hub claims, and marks the
// roots of their Resource Lists. Package reader serves them, on every hub.
//
// One goroutine updates all sets, one after another. It polls the heads of changing sets often, and of all
// sets sometimes. An update of a set has these steps, each of them a method of updater:
//
//	load     read the record, unless that was done recently, and drop the roots that are not needed
//	follow   read new changes of the log into memory; if it is full, write them as a run, or commit
//	commit   write a new root, if there is a reason
//	list     mark the newest root for a Resource List, if one is due
//
// Three faults are repaired in between, each by a method of its own:
//
//	passed   the log was trimmed past the root: commit a root at the log's floor, no longer complete
//	revert   the log lost entries that the root has: build it again from the whole log, or remove the changes
//	rebuild  a page is missing or damaged: build the root again from the whole log
//
// After any other error, the update is retried after a pause. If another hub has changed the record, or the set
// was created again, the updater first forgets what it has loaded (see run).
package writer

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
)

// Kind is the kind of the claims on inventories, and Shards is their number. The shard of a set depends only
// on its name.
const (
	Kind   = "inventory"
	Shards = 64
)

// A Log is the part of the change memory that a Writer needs. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Options configures a Writer. The zero value uses the defaults.
type Options struct {
	Cache        *inventory.Cache // pages, shared with the reader; default: a new one of 32 MiB
	Poll         time.Duration    // interval for polling changing sets; default 500 ms
	ListInterval time.Duration    // interval for renewing a Resource List if anything changed; default 1 h
	PendingBytes int              // memory of changes pending a commit, for all sets together; default 64 MiB

	// Scarce reports whether the store is so full that retention must not wait for inventories. Default: never.
	Scarce func(ctx context.Context) bool

	// ExchangeRequests removes the requests for the sets in done from those that hubs make to each other, adds
	// others, and returns all that remain; the values are as in Writer.Request. Default: there is one hub.
	ExchangeRequests func(ctx context.Context, done []string, add map[string]bool) (map[string]bool, error)

	// SweepDeleted removes what the inventories of deleted sets have left, for at most the given number of
	// sets, and returns the number of sets. Default: deleted sets leave nothing.
	SweepDeleted func(ctx context.Context, most int) (int, error)

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // registers the metrics of one Writer; default: none
}

func (o *Options) setDefaults() {
	if o.Cache == nil {
		o.Cache = inventory.NewCache(32 << 20)
	}
	o.Poll, o.ListInterval = cmp.Or(o.Poll, 500*time.Millisecond), cmp.Or(o.ListInterval, time.Hour)
	o.PendingBytes = cmp.Or(o.PendingBytes, 64<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Writer updates the inventories of one hub. Its methods may be called concurrently.
type Writer struct {
	// Immutable after New.
	log     Log
	store   inventory.Store
	opts    Options
	logger  *slog.Logger
	keeper  *claim.Keeper
	metrics *metrics
	started time.Time
	wake    backoff.Wakeup // signaled when requests or holds have changed

	scarceLog rate.Sometimes // limits what Unread logs while the store is nearly full

	// Accessed only by the goroutine of updateSets.
	pacer        *pacer
	sets         map[string]*updater
	active       map[string]*updater // sets that are polled often
	pendingBytes int                 // memory of all backlogs
	scanned      time.Time           // when the heads of all sets were last polled; zero means that a scan is due
	pollError    errorText           // last error of poll

	mu           sync.Mutex          // guards the following fields
	holds        [Shards]*claim.Hold // claims of this hub, by shard
	holdsChanged bool                // whether holds has changed since the last round
	requests     map[string]bool     // sets to be committed soon, by this hub or others; the value is whether a reader found damage
}

// New returns the Writer of a log and of the inventories in store. It starts nothing: call Run. The caller
// closes log and store after Run has returned.
func New(log Log, store inventory.Store, claims claim.Store, o Options) *Writer {
	o.setDefaults()
	w := &Writer{
		log: log, store: store, opts: o, logger: o.Logger, metrics: newMetrics(o.Metrics), started: time.Now(), wake: backoff.NewWakeup(),
		scarceLog: rate.Sometimes{Interval: time.Minute}, sets: map[string]*updater{}, active: map[string]*updater{}, requests: map[string]bool{},
	}
	w.pacer = &pacer{poll: w.pollActive}
	w.keeper = claim.NewKeeper(claims, worker{w}, Shards, nil, o.Logger.With("work", "inventories"))
	return w
}

// releaseTimeout is the maximum time in which Run releases the claims.
const releaseTimeout = 3 * time.Second

// Run claims shards and updates the inventories of their sets until ctx is done. Then it releases the claims, and
// returns after its goroutines have stopped. Failures are logged and retried.
func (w *Writer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { w.keeper.Run(ctx, releaseTimeout) })
	wg.Go(func() { w.updateSets(ctx) })
	if w.opts.ExchangeRequests != nil {
		wg.Go(func() { w.exchangeRequests(ctx) })
	}
	if w.opts.SweepDeleted != nil {
		wg.Go(func() { w.sweepDeleted(ctx) })
	}
	wg.Wait()
}

// Owns reports whether this hub has the claim on a set, and so updates its inventory.
func (w *Writer) Owns(set string) bool { return w.hold(set) != nil }

// hold returns the claim of this hub on a set, or nil.
func (w *Writer) hold(set string) *claim.Hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds[shardOf(set)]
}

// shardOf returns the shard of a set.
func shardOf(set string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(set)) // never fails
	return int(h.Sum32() % Shards)
}

// A worker is the claim.Worker of a Writer. It releases a shard immediately, even if a commit is in progress:
// once another hub writes under its claim, the store refuses the writes of this one.
type worker struct{ w *Writer }

func (k worker) Gained(h *claim.Hold) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.setHoldLocked(h.Shard, h)
}

func (k worker) Lost(h *claim.Hold) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if k.w.holds[h.Shard] == h { // else this hub has claimed the shard again
		k.setHoldLocked(h.Shard, nil)
	}
}

// Yield may also be called by an updater whose term has ended.
func (k worker) Yield(h *claim.Hold) {
	k.Lost(h)
	k.w.keeper.Release(h)
}

func (k worker) setHoldLocked(shard int, h *claim.Hold) {
	k.w.holds[shard], k.w.holdsChanged = h, true
	k.w.wake.Wake()
}

// Sweeps of deleted sets.
const (
	sweepPause    = 15 * time.Second // between sweeps while there may be more deleted sets
	sweepInterval = time.Hour
	sweepLimit    = 100 // sets of one sweep
)

// sweepDeleted removes what the inventories of deleted sets have left, until ctx is done.
func (w *Writer) sweepDeleted(ctx context.Context) {
	for pause := sweepPause; backoff.Sleep(ctx, pause) == nil; {
		n, err := w.opts.SweepDeleted(ctx, sweepLimit)
		if pause = sweepInterval; n == sweepLimit && err == nil {
			pause = sweepPause
		}
		if n > 0 {
			w.logger.Info("removed inventories of deleted sets", "sets", n)
		}
		if err != nil && ctx.Err() == nil {
			w.logger.Warn("removal of inventories of deleted sets failed; retrying", "err", err)
		}
	}
}
