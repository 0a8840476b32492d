package callback

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A hold is a claim that this hub has, or had.
type hold struct {
	Claim
	until    atomic.Pointer[time.Time]
	yielding bool // the worker was told so; belongs to the claims
}

// Until is how long the claim counts for this hub, by its own clock: some time
// less than in the registry, from before it was asked for. Later nothing may be
// begun under it, and what is under way must have ended. It moves on with each
// renewal.
func (h *hold) Until() time.Time { return *h.until.Load() }

// A worker does the work on the shards that this hub has. Its methods are called
// by one goroutine, one after another, and must return at once.
type worker interface {
	// gained says that work on a shard may begin, until lost or release.
	gained(h *hold)

	// lost says that work must stop at once, and nothing be committed.
	lost(h *hold)

	// yield asks that work comes to an end: nothing new is begun, what is under
	// way ends and is committed, then the worker calls claims.release.
	yield(h *hold)

	// inbox says, again and again, that requests wait in a shard's inbox, and the
	// newest one's number.
	inbox(h *hold, newest uint64)
}

// yieldAtOnce bounds how many shards are handed to other hubs in one step: most
// deliveries go on while some move.
const yieldAtOnce = 8

// claims keeps the claims of this hub: those on the shards that it should have,
// which depends on who else is alive.
type claims struct {
	registry Registry
	worker   worker
	logger   *slog.Logger

	// Those belong to who calls step.
	held   map[int]*hold
	live   []string
	wanted []int // of live

	mu       sync.Mutex
	finished []*hold // to be released
	wake     chan struct{}
}

// newClaims returns claims that has none. It does nothing until run.
func newClaims(r Registry, w worker, logger *slog.Logger) *claims {
	return &claims{registry: r, worker: w, logger: logger, held: make(map[int]*hold), wake: make(chan struct{}, 1)}
}

// every is the time between steps.
func (c *claims) every() time.Duration { return c.registry.ClaimFor() / 10 }

// within bounds a call to the registry, of which a part may not answer: what comes
// after it has to have its time too.
func (c *claims) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.counts()/4)
}

// counts is how long a claim counts for this hub. What is missing makes up for
// clocks that run at different rates, and for requests that do not end at once.
func (c *claims) counts() time.Duration { return c.registry.ClaimFor() * 4 / 5 }

// run keeps the claims until ctx ends. Then it lets others have them: it asks
// the worker to yield all, releases what is yielded, and after the grace the
// worker has lost the rest. When it returns the worker has no claim left.
func (c *claims) run(ctx context.Context, grace time.Duration) {
	tick := time.NewTicker(c.every())
	defer tick.Stop()
	for c.step(ctx); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
			c.step(ctx)
		case <-c.wake:
			c.giveUp(ctx)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	c.leave(ending, tick.C)
}

// leave yields everything and waits for it.
func (c *claims) leave(ctx context.Context, tick <-chan time.Time) {
	// First, so that others want the shards from now on.
	leaving, cancel := c.within(ctx)
	if err := c.registry.Leave(leaving); err != nil {
		c.logger.Warn("the other hubs notice late that this one ends", "err", err)
	}
	cancel()
	for _, h := range c.held {
		c.yield(h)
	}
	for c.giveUp(ctx); len(c.held) > 0 && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
			c.renew(ctx)
		case <-c.wake:
			c.giveUp(ctx)
		}
	}
	c.lose(func(*hold) bool { return true })
}

// release takes note that the worker has come to an end with a shard, asked or
// not. It may be called by any goroutine, also for a hold that is lost meanwhile.
func (c *claims) release(h *hold) {
	c.mu.Lock()
	c.finished = append(c.finished, h)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// step does what is to be done every now and then. It must be called by one
// goroutine at a time. What takes longer than it may is given up; the claims then
// end in their time.
func (c *claims) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.counts()/2)
	defer cancel()
	c.renew(ctx) // first, for it must not be late
	if c.join(ctx) {
		c.acquire(ctx)
		c.share()
	} // else who it is that lives is unknown
	c.giveUp(ctx)
}

// join says that this hub lives, and finds out what it should have.
func (c *claims) join(ctx context.Context) bool {
	ctx, cancel := c.within(ctx)
	defer cancel()
	live, err := c.registry.Join(ctx)
	if errors.Is(err, ErrClock) { // others are to have what it has
		c.live, c.wanted = nil, nil
		for _, h := range c.held {
			c.yield(h)
		}
	}
	if err != nil {
		c.failed(ctx, "this hub cannot say that it is alive", err)
		return false
	}
	if !slices.Equal(live, c.live) {
		c.live, c.wanted = live, wanted(live, c.registry.Name())
		c.logger.Info("callbacks are shared", "hubs", len(live), "shards", len(c.wanted))
	}
	return true
}

// renew prolongs all claims, and drops those that are lost.
func (c *claims) renew(ctx context.Context) {
	if len(c.held) == 0 {
		return
	}
	all := make([]Claim, 0, len(c.held))
	for _, h := range c.held {
		all = append(all, h.Claim)
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	until := time.Now().Add(c.counts())
	renewed, err := c.registry.Renew(ctx, all)
	has := make(map[int]bool, len(renewed))
	for _, r := range renewed {
		h := c.held[r.Shard]
		h.until.Store(&until)
		has[r.Shard] = true
		if r.Newest > 0 && !h.yielding {
			c.worker.inbox(h, r.Newest)
		}
	}
	if err != nil {
		c.failed(ctx, "claims cannot be renewed", err)
	}
	now := time.Now()
	c.lose(func(h *hold) bool { return err == nil && !has[h.Shard] || !h.Until().After(now) })
}

// acquire claims what this hub should have and has not.
func (c *claims) acquire(ctx context.Context) {
	var missing []int
	for _, shard := range c.wanted {
		if c.held[shard] == nil {
			missing = append(missing, shard)
		}
	}
	if len(missing) == 0 {
		return
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	until := time.Now().Add(c.counts())
	got, err := c.registry.Acquire(ctx, missing)
	if err != nil {
		c.failed(ctx, "shards cannot be claimed", err)
	}
	if !until.After(time.Now()) {
		return // it took too long, and counts no more
	}
	for _, claim := range got {
		h := &hold{Claim: claim}
		h.until.Store(&until)
		c.held[claim.Shard] = h
		c.worker.gained(h)
	}
}

// share begins to hand back what other hubs should have.
func (c *claims) share() {
	n := 0
	for shard, h := range c.held {
		if _, mine := slices.BinarySearch(c.wanted, shard); mine || h.yielding {
			continue
		}
		if n++; n > yieldAtOnce {
			return
		}
		c.yield(h)
	}
}

func (c *claims) yield(h *hold) {
	if !h.yielding {
		h.yielding = true
		c.worker.yield(h)
	}
}

// lose drops the claims that are lost.
func (c *claims) lose(lost func(*hold) bool) {
	n := 0
	for shard, h := range c.held {
		if lost(h) {
			n++
			delete(c.held, shard)
			c.worker.lost(h)
		}
	}
	if n > 0 {
		c.logger.Warn("claims are lost; their deliveries stop", "shards", n)
	}
}

// giveUp releases what the worker has come to an end with.
func (c *claims) giveUp(ctx context.Context) {
	c.mu.Lock()
	finished := c.finished
	c.finished = nil
	c.mu.Unlock()
	var free []Claim
	for _, h := range finished {
		if c.held[h.Shard] == h {
			delete(c.held, h.Shard)
			free = append(free, h.Claim)
		}
	}
	if len(free) == 0 {
		return
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	if err := c.registry.Release(ctx, free); err != nil {
		c.failed(ctx, "claims cannot be released; they end in their time", err)
	}
}

// failed tells an error, but for those of a hub that ends.
func (c *claims) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != context.Canceled {
		c.logger.Warn(what, "err", err)
	}
}
