// Package hub is the core of rshub: it accepts the changes that sources publish, appends them
// to the change memory, and passes them on to followers.
//
// It decodes and validates publish requests, gathers concurrent publishes into one append, and
// caches a window of recent batches for followers that are up to date. Hubs that share a
// memory announce their appends to each other over NATS.
//
// The package does not know its followers (packages subscribe, callback and
// internal/documents), nor how the memory stores changes (package changelog). A change passes
// through publish.go, queue.go, tail.go and follow.go. The package carries no compatibility
// promise.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/limit"
)

// Options configures a Hub. The zero value of each field selects its default.
type Options struct {
	Base          feed.Base             // the hub's own URL, by which ServeHub recognizes its topics
	Sets          []string              // the only sets that accept publishes; if empty, the first publish to a set creates it
	ListSize      int                   // entries in each closed Change List of a new set; default 10,000
	Retention     changelog.Retention   // retention applied by Run every minute; default: keep everything
	MaxBody       int64                 // maximum bytes of a publish, before and after decompression; default 50 MiB
	AppendTimeout time.Duration         // timeout of an append; default 30 s
	ClockSkew     time.Duration         // maximum difference between the clocks of the hubs and the memory; default 1 minute
	ReadTimeout   time.Duration         // how long a publisher may send nothing before the hub stops reading; default 60 s
	Logger        *slog.Logger          // default: discard
	Metrics       prometheus.Registerer // registry for the hub's metrics, used by only one hub; nil if not registered

	Inventories Inventories // inventories that retention waits for; nil if none
	Rights      Rights      // callers' rights to publish; nil if they never end
	Formats     []*Format   // formats of publishes in addition to the built-in ones
	Quota       Quota       // limit on the size of a set; nil if unlimited

	// Intake bounds the memory of publishes that are being read and are not yet
	// accepted. The default is ten times MaxBody, and at least 64 MiB.
	Intake *limit.Budget

	Bus          *Bus          // announcements to other hubs of the same memory; nil if none
	PollInterval time.Duration // interval at which Run checks for changes that other hubs did not announce; zero means no other hub uses the memory
}

// Inventories is implemented by readers of the logs that retention must wait for.
type Inventories interface {
	// Unread returns the cursor that retention must not pass in a set, because the inventory
	// has not read the entries after it. If ok is false, retention need not wait. Run calls
	// Unread every minute for each set from which retention may remove entries.
	Unread(ctx context.Context, set string) (after feed.Cursor, ok bool)
}

// Rights knows the rights of callers.
type Rights interface {
	// WhilePublishing calls revoked at most once, with the reason, when the caller of ctx
	// loses the right to publish to a set. It does not call revoked after release returns.
	// revoked does not block.
	WhilePublishing(ctx context.Context, set string, revoked func(reason error)) (release func())
}

// A Quota knows how much of its limit each set uses. Its methods must not block. *limit.Quota
// implements it.
type Quota interface {
	// Full reports whether a set is full, and returns the maximum number of bytes it may hold.
	Full(set string) (maxBytes int64, full bool)
	// RecordGrowth records that the memory accepted a publish to a set.
	RecordGrowth(set string)
}

// A Hub publishes changes to a change memory and lets followers read them. Its methods are
// safe for concurrent use.
type Hub struct {
	log         changelog.Log // in production a metered.Log that wraps a disklog.Log or a redislog.Log
	opts        Options
	metrics     *metrics
	pages       *pageCache
	formats     []*Format     // built-in formats and Options.Formats
	decodeSlots chan struct{} // semaphore: one element per large publish being decoded

	mu     sync.Mutex
	closed bool
	queues map[string]*queue // one per set with an append in progress
	tails  map[string]*tail  // one per set with followers

	setWatchers setWatchers    // watchers of the list of sets
	checkWakeup backoff.Wakeup // wakes watchHeads when a tail needs a check
	lastStates  lastStates     // states of the sets at the last check, to detect logs that lost their newest entries
	waitWarning rate.Sometimes // rate limit for the warning that followers wait for the memory, since thousands may wait

	wg sync.WaitGroup // goroutines that drain the queues; Add is called only while mu is held and closed is false
}

// New returns a Hub that uses log. It starts nothing in the background; call Run for that. The
// caller must close the Hub before log.
func New(log changelog.Log, o Options) *Hub {
	if o.ListSize == 0 {
		o.ListSize = 10_000
	}
	if o.MaxBody == 0 {
		o.MaxBody = 50 << 20
	}
	if o.Intake == nil {
		o.Intake = limit.NewBudget(max(10*o.MaxBody, 64<<20), limit.MemoryTimeout)
	}
	if o.AppendTimeout == 0 {
		o.AppendTimeout = 30 * time.Second
	}
	if o.ClockSkew == 0 {
		o.ClockSkew = time.Minute
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Hub{
		log: log, opts: o, formats: append([]*Format{xmlFormat, jsonFormat, ndjsonFormat}, o.Formats...), metrics: newMetrics(o.Metrics), pages: newPageCache(log),
		queues: map[string]*queue{}, tails: map[string]*tail{}, checkWakeup: backoff.NewWakeup(), waitWarning: rate.Sometimes{Interval: time.Minute},
		decodeSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)),
	}
}

// Run creates the configured sets and applies retention, immediately and then every minute
// until ctx is done. If other hubs use the memory, Run also checks for changes that were not
// announced. It logs failures and tries again in the next round; in the meantime the hub
// continues to serve. Run returns after its goroutines have stopped.
func (h *Hub) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.watchHeads(ctx) }) // in its own goroutine, because retention may take long
	h.maintain(ctx)
	runEvery(ctx, time.Minute, h.maintain)
}

// Close makes further publishes fail with feed.ErrUnavailable. It returns when all publishes
// in progress have been answered.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wg.Wait()
}

// makeSet creates a set if it does not exist. The caller in ctx becomes its owner.
func (h *Hub) makeSet(ctx context.Context, set string, d feed.Description) error {
	d.By = access.FromContext(ctx).Name
	err := h.log.Make(ctx, set, d, h.opts.ListSize)
	h.setWatchers.wake() // even after an error, because the set may have been created anyway
	if err != nil {
		return fmt.Errorf("make set %q: %w", set, err)
	}
	return nil
}

// Describe sets the description of a set. It ignores d.By: an existing set retains its By. If
// the set does not exist and a publish could create it, Describe creates it, and the caller in
// ctx becomes its By.
func (h *Hub) Describe(ctx context.Context, set string, d feed.Description) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	d.By = access.FromContext(ctx).Name
	defer h.setWatchers.wake() // even after an error, because the set may have been described anyway
	st, err := h.log.State(ctx, set)
	if err == nil {
		d.By = st.By
		err = h.log.Describe(ctx, set, d)
	}
	if errors.Is(err, feed.ErrNoSet) && h.Waits(set) {
		if err := countNewSet(ctx); err != nil {
			return err
		}
		if err := h.makeSet(ctx, set, d); err != nil {
			return err
		}
		// Another caller or hub may have created the set first, with a different description.
		if err = h.log.Describe(ctx, set, d); errors.Is(err, feed.ErrUnavailable) {
			err = fmt.Errorf("%w: the set was created, but then: %v", feed.ErrUnknown, err)
		}
	}
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set. Its followers receive feed.ErrGone, except those at the zero cursor.
// If ctx is done before the deletion starts, Delete returns its error and the set is
// unchanged; after that, Delete waits for the memory to answer.
func (h *Hub) Delete(ctx context.Context, set string) error {
	if err := h.enqueue(ctx, set, &request{delete: true}); err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	return nil
}

// Waits reports whether a set may be published to. Such a set can be followed before it
// exists; the first publish creates it.
func (h *Hub) Waits(set string) bool {
	return len(h.opts.Sets) == 0 || slices.Contains(h.opts.Sets, set)
}
