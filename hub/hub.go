// Package hub is the middle of rshub: publishes come in, are appended to the
// change memory, and go out to everybody who follows. It decodes and validates
// what sources POST, gathers concurrent appends, and keeps a window of what is
// new for those who are up to date.
package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// Options of a Hub. Zero values are the defaults.
type Options struct {
	BaseURL       string                           // the hub's own, to know its topics by in POST /hub; without a slash at the end
	Sets          []string                         // the only sets that can be published to; empty: a first publish makes a set
	ListSize      int                              // of the Change Lists of new sets; default 10,000
	Retention     changelog.Retention              // applied each minute by Run; default: keep everything
	MaxBody       int64                            // bytes of one publish, before and after decompression; default 50 MiB
	AppendTimeout time.Duration                    // of one append; default 30 s
	ReadTimeout   time.Duration                    // a publisher that sends nothing for so long is cut; default 60 s
	Caller        func(ctx context.Context) string // who publishes: idempotency keys count per caller; default: one for all
	Logger        *slog.Logger                     // default: discard
	Metrics       prometheus.Registerer            // where the hub's metrics are registered, one hub in each; default: nowhere

	Bus    *Bus          // announces to other hubs of the same memory; default: none
	Shared time.Duration // other hubs use the memory: so often Run looks whether it moved unannounced; default: they do not
}

// A Hub publishes into a change memory and lets it be followed.
type Hub struct {
	log     changelog.Log
	opts    Options
	metrics *metrics

	mu     sync.Mutex
	closed bool
	queues map[string]*queue // of the sets that are being appended to
	tails  map[string]*tail  // of the sets that are followed
	wg     sync.WaitGroup    // of the queues' goroutines
}

// New returns a Hub on a memory, which the caller closes after Close.
func New(log changelog.Log, o Options) *Hub {
	if o.ListSize == 0 {
		o.ListSize = 10_000
	}
	if o.MaxBody == 0 {
		o.MaxBody = 50 << 20
	}
	if o.AppendTimeout == 0 {
		o.AppendTimeout = 30 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = time.Minute
	}
	if o.Caller == nil {
		o.Caller = func(context.Context) string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Hub{log: log, opts: o, metrics: newMetrics(o.Metrics), queues: map[string]*queue{}, tails: map[string]*tail{}}
}

// Run makes the configured sets and applies retention, at once and each minute
// until ctx is done. Of a shared memory it also finds what was not announced.
// What fails is logged and tried again in the next round:
// meanwhile the hub serves what it has.
func (h *Hub) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if h.opts.Shared > 0 {
		wg.Go(func() { every(ctx, h.opts.Shared, h.compare) }) // also while retention takes long
	}
	h.tidy(ctx)
	every(ctx, time.Minute, h.tidy)
	return nil
}

// every calls do at intervals until ctx is done.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tidy makes the configured sets and applies retention.
func (h *Hub) tidy(ctx context.Context) {
	for _, set := range h.opts.Sets {
		if err := h.make(ctx, set, changelog.Description{}); err != nil && ctx.Err() == nil {
			h.opts.Logger.Warn("a configured set is not there", "err", err)
		}
	}
	h.trim(ctx)
}

// trim applies retention to every set. A failure is for the log: the next round
// tries again, and keeping too much harms nobody.
func (h *Hub) trim(ctx context.Context) {
	newest := h.metrics.newest.Load()
	sets, err := h.log.Sets(ctx)
	if err != nil && ctx.Err() == nil {
		h.opts.Logger.Warn("retention", "err", err)
	}
	if err == nil {
		h.metrics.looked(sets, newest)
	}
	failed := 0
	for _, s := range sets {
		if t := h.tail(s.Set); t != nil {
			t.reaches(s.Head)
		}
		removed, err := h.log.Trim(ctx, s.Set, h.opts.Retention)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, changelog.ErrNoSet):
			h.opts.Logger.Warn("retention", "set", s.Set, "err", err)
			if failed++; failed == 3 {
				return // the memory has other troubles now
			}
		case removed > 0:
			h.metrics.removed.Add(float64(removed))
			h.opts.Logger.Info("retention removed old changes", "set", s.Set, "removed", removed)
		}
	}
}

// Close refuses further publishes as changelog.ErrUnavailable, and returns when
// those that were begun are answered.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wg.Wait()
}

// Publish appends a batch and wakes those who follow the set. When it returns
// nil the memory holds the whole batch. The changes must be valid
// (resourcesync.Change.Validate) and must not be changed any more. A key that
// is empty is replaced by one of the hub's. Errors are those of
// changelog.Log.Append; ctx is heeded until the append begins, and its error
// means that nothing was written.
func (h *Hub) Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	begin := time.Now()
	a, err := h.publish(ctx, set, p)
	h.metrics.published(a, err, time.Since(begin))
	if err != nil {
		return changelog.Appended{}, fmt.Errorf("publish to set %q: %w", set, err)
	}
	return a, nil
}

// check refuses here what a memory would refuse, for it would refuse with it
// all that is gathered into one append.
func check(set string, p *changelog.Publish) error {
	if err := changelog.CheckSet(set); err != nil {
		return err
	}
	switch n := len(p.Changes); {
	case n == 0:
		return noChange()
	case n > changelog.MaxBatch:
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: changelog.MaxBatch + 1,
			Rule: fmt.Sprintf("a batch has at most %d changes; send more in several", changelog.MaxBatch)}
	case len(p.Key) > changelog.MaxKey:
		return changelog.Invalid("an idempotency key has at most %d bytes", changelog.MaxKey)
	}
	return nil
}

func noChange() error {
	return changelog.Invalid("there is no change in it: a batch has at least one")
}

func (h *Hub) publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	if err := check(set, &p); err != nil {
		return changelog.Appended{}, err
	}
	if !h.Waits(set) {
		return changelog.Appended{}, changelog.ErrNoSet
	}
	if p.Key == "" {
		p.Key, p.Brief = rand.Text(), true
	}
	size := p.Size()
	r := &request{publish: p, size: size}
	err := h.enqueue(ctx, set, r)
	if errors.Is(err, changelog.ErrNoSet) {
		if err := h.make(ctx, set, changelog.Description{}); err != nil {
			return changelog.Appended{}, err
		}
		r = &request{publish: p, size: size}
		err = h.enqueue(ctx, set, r)
	}
	return r.result, err
}

func (h *Hub) make(ctx context.Context, set string, d changelog.Description) error {
	if err := h.log.Make(ctx, set, d, h.opts.ListSize); err != nil {
		return fmt.Errorf("make set %q: %w", set, err)
	}
	return nil
}

// Describe sets the description of a set, which it makes if a publish would.
func (h *Hub) Describe(ctx context.Context, set string, d changelog.Description) error {
	if err := changelog.CheckSet(set); err != nil {
		return err
	}
	if h.Waits(set) {
		if err := h.make(ctx, set, d); err != nil {
			return err
		}
	}
	if err := h.log.Describe(ctx, set, d); err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set; who follows it gets changelog.ErrGone, unless from the
// zero cursor. ctx is heeded as in Publish.
func (h *Hub) Delete(ctx context.Context, set string) error {
	if err := h.enqueue(ctx, set, &request{delete: true}); err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	return nil
}

// Waits reports whether a set may be published to, and be followed before it is
// made: the first publish makes it.
func (h *Hub) Waits(set string) bool {
	return len(h.opts.Sets) == 0 || slices.Contains(h.opts.Sets, set)
}
