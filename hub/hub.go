// Package hub is the center of rshub: it accepts what sources publish, appends it to the change
// memory, and passes it on to followers.
//
// It decodes and validates what sources POST, gathers concurrent publishes into one append, and
// caches a window of recent batches for followers that are up to date. Hubs that share a memory
// announce to each other over NATS what they appended.
//
// The package does not know who follows (packages subscribe, callback and internal/documents do),
// nor how the memory stores changes (package changelog). The path of a change is publish.go,
// queue.go, tail.go and follow.go. The package carries no compatibility promise.
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

// Options of a Hub. Zero values are the defaults.
type Options struct {
	Base          feed.Base             // the hub's own URL, by which ServeHub recognizes its topics
	Sets          []string              // the only sets that can be published to; empty: the first publish to a set makes it
	ListSize      int                   // K, the entries in each closed Change List of new sets; default 10,000
	Retention     changelog.Retention   // applied by Run each minute; default: keep everything
	MaxBody       int64                 // bytes of one publish, before and after decompression; default 50 MiB
	AppendTimeout time.Duration         // of one append; default 30 s
	ClockSkew     time.Duration         // by how much the clocks of hubs and of the memory may differ; default 1 minute
	ReadTimeout   time.Duration         // how long a publisher may be silent before it is cut off; default 60 s
	Logger        *slog.Logger          // default: discard
	Metrics       prometheus.Registerer // where the hub's metrics are registered; a registry takes one hub; default: nowhere

	Inventories Inventories // what retention waits for; default: for nothing
	Rights      Rights      // how long callers may publish; default: for ever
	Forms       []*Form     // of publishes, besides the hub's own; default: none
	Quota       Quota       // how much a set may keep; default: any number of bytes

	// Intake bounds the memory of publishes that are being read and not yet
	// accepted. Default: ten times MaxBody, and at least 64 MiB.
	Intake *limit.Budget

	Bus    *Bus          // announces to other hubs of the same memory; default: none
	Shared time.Duration // if other hubs use the memory: how often Run looks whether it moved without an announcement; default 0: no other hub does
}

// Inventories read the log of each set.
type Inventories interface {
	// Unread returns the cursor that retention must not pass in a set, because the
	// inventory has not read what follows. ok is false if retention need not wait. Run asks
	// each minute, for every set of which retention may remove something.
	Unread(ctx context.Context, set string) (after feed.Cursor, ok bool)
}

// Rights know what callers may do.
type Rights interface {
	// WhilePublishing calls end once, with why, when the caller of ctx may not publish to
	// a set any more. After release it does not call end. end does not block.
	WhilePublishing(ctx context.Context, set string, end func(why error)) (release func())
}

// A Quota knows how much each set keeps. Its methods do not block. It is a *limit.Quota.
type Quota interface {
	// Full reports whether a set is full, and how many bytes it may keep.
	Full(set string) (most int64, full bool)
	// Grew notes that the memory accepted a publish to a set.
	Grew(set string)
}

// A Hub publishes into a change memory and lets followers read it.
type Hub struct {
	log     changelog.Log // in the program a metered.Log around a disklog.Log or a redislog.Log
	opts    Options
	metrics *metrics
	pages   *pages
	forms   []*Form       // all of them
	turns   chan struct{} // holds one element for each large publish that is being decoded

	mu     sync.Mutex
	closed bool
	queues map[string]*queue // one for each set with an append under way
	tails  map[string]*tail  // one for each set that is followed

	doubted backoff.Wakeup // wakes watch because tails may be in doubt
	glances glances        // show that a log has lost its newest entries
	waiting rate.Sometimes // the log line that followers wait for the memory: thousands may

	wg sync.WaitGroup // of the goroutines that drain the queues; one is added only while mu is held and closed is false
}

// New returns a Hub on a memory. It does nothing in the background until Run.
// The caller closes the memory after the Hub.
func New(log changelog.Log, o Options) *Hub {
	if o.ListSize == 0 {
		o.ListSize = 10_000
	}
	if o.MaxBody == 0 {
		o.MaxBody = 50 << 20
	}
	if o.Intake == nil {
		o.Intake = limit.NewBudget(max(10*o.MaxBody, 64<<20), limit.Patience)
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
		log: log, opts: o, forms: append([]*Form{xmlForm, jsonForm, ndjsonForm}, o.Forms...), metrics: newMetrics(o.Metrics), pages: newPages(log),
		queues: map[string]*queue{}, tails: map[string]*tail{}, doubted: backoff.NewWakeup(), waiting: rate.Sometimes{Interval: time.Minute},
		turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)),
	}
}

// Run makes the configured sets and applies retention, at once and then each
// minute until ctx is done. If the memory is shared, it also looks for changes
// that were not announced. A failure is logged and the next round tries again;
// meanwhile the hub serves what it has.
func (h *Hub) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.watch(ctx) }) // also while retention takes long
	h.tidy(ctx)
	every(ctx, time.Minute, h.tidy)
}

// Close refuses further publishes with feed.ErrUnavailable. It returns when all
// publishes that have begun are answered.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wg.Wait()
}

// make makes a set, unless it exists.
func (h *Hub) make(ctx context.Context, set string, d feed.Description) error {
	d.By = access.FromContext(ctx).Name
	if err := h.log.Make(ctx, set, d, h.opts.ListSize); err != nil {
		return fmt.Errorf("make set %q: %w", set, err)
	}
	return nil
}

// Describe sets the description of a set. It ignores d.By: an existing set keeps its By.
// If there is no set and a publish would make it, Describe makes it, and the caller in
// ctx becomes its By.
func (h *Hub) Describe(ctx context.Context, set string, d feed.Description) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	d.By = access.FromContext(ctx).Name
	st, err := h.log.State(ctx, set)
	if err == nil {
		d.By = st.By
		err = h.log.Describe(ctx, set, d)
	}
	if errors.Is(err, feed.ErrNoSet) && h.Waits(set) {
		if err := mayMake(ctx); err != nil {
			return err
		}
		if err := h.make(ctx, set, d); err != nil {
			return err
		}
		// Another caller or hub may have made the set first, with another description.
		if err = h.log.Describe(ctx, set, d); errors.Is(err, feed.ErrUnavailable) {
			err = fmt.Errorf("%w: it was made, and then: %v", feed.ErrUnknown, err)
		}
	}
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set. Its followers get feed.ErrGone, except those that are
// at the zero cursor. ctx has the same effect as in Publish.
func (h *Hub) Delete(ctx context.Context, set string) error {
	if err := h.enqueue(ctx, set, &request{delete: true}); err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	return nil
}

// Waits reports whether a set may be published to. Such a set can be followed
// before it is made; the first publish makes it.
func (h *Hub) Waits(set string) bool {
	return len(h.opts.Sets) == 0 || slices.Contains(h.opts.Sets, set)
}
