package claim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// A Worker works on the shards that this hub has. The Keeper calls its methods
// from one goroutine, one after another. They must return at once.
type Worker interface {
	// Gained says that work on a shard may begin. It may go on until Lost is
	// called or the worker calls Keeper.Release.
	Gained(h *Hold)

	// Lost says that work on the shard must stop at once. Nothing more may be
	// committed under the claim.
	Lost(h *Hold)

	// Yield asks the worker to end its work on the shard. It begins nothing
	// new, ends and commits what is under way, and then calls Keeper.Release.
	Yield(h *Hold)
}

// yieldAtOnce bounds how many shards a hub hands over in one step, so that most
// of the work goes on while some shards move.
const yieldAtOnce = 8

// A Keeper keeps the claims of this hub. Which shards the hub should have
// follows from which hubs are alive.
type Keeper struct {
	store  Store
	worker Worker
	shards int
	logger *slog.Logger
	clock  Clock

	// Only the goroutine that calls step uses these.
	held   map[int]*Hold
	live   []string
	wanted []int                    // the shards that this hub should have while the hubs in live are alive
	shared bool                     // another hub was in live
	said   map[string]time.Duration // when each failure was logged last

	mu       sync.Mutex
	finished []*Hold // the worker has ended its work on them; they have to be released

	wake backoff.Wakeup // says that finished has grown
}

// NewKeeper returns a Keeper of claims on the shards 0 to shards-1. It has no
// claim and does nothing until Run. A nil clock is the machine's own.
func NewKeeper(s Store, w Worker, shards int, clock Clock, logger *slog.Logger) *Keeper {
	if clock == nil {
		clock = sinceBoot
	}
	return &Keeper{store: s, worker: w, shards: shards, logger: logger, clock: clock, held: make(map[int]*Hold), said: make(map[string]time.Duration), wake: backoff.NewWakeup()}
}

// every returns the time between two steps.
func (k *Keeper) every() time.Duration { return k.store.ClaimFor() / 10 }

// within bounds one call to the store. If a part of the store does not answer,
// the calls that follow still need time.
func (k *Keeper) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.counts()/4)
}

// counts returns how long a claim is valid for this hub. That is shorter than
// the claim lasts in the store. The difference makes up for clocks that run at
// different rates, and for requests that do not stop at once.
func (k *Keeper) counts() time.Duration { return k.store.ClaimFor() * 4 / 5 }

// Run keeps the claims until ctx ends. Then it hands all shards over: it asks
// the worker to yield all shards, and releases each one that the worker gives
// back. Shards that the worker still has after the grace time are lost. When
// Run returns, the worker has no claim left.
func (k *Keeper) Run(ctx context.Context, grace time.Duration) {
	tick := time.NewTicker(k.every())
	defer tick.Stop()
	for k.step(ctx); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
			k.step(ctx)
		case <-k.wake:
			k.giveUp(ctx)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	k.leave(ending, tick.C)
}

// leave yields all shards and waits until the worker has given them back, or
// ctx ends.
func (k *Keeper) leave(ctx context.Context, tick <-chan time.Time) {
	// This comes first, so that the other hubs want the shards from now on.
	leaving, cancel := k.within(ctx)
	if err := k.store.Leave(leaving); err != nil {
		k.logger.Warn("the store cannot be told that this hub ends; the other hubs notice it later", "err", err)
	}
	cancel()
	for _, h := range k.held {
		k.yield(h)
	}
	for k.giveUp(ctx); len(k.held) > 0 && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
			k.renew(ctx)
		case <-k.wake:
			k.giveUp(ctx)
		}
	}
	k.lose(func(*Hold) bool { return true })
}

// Release says that the worker has ended its work on a shard, whether the
// Keeper asked for that or not. Any goroutine may call it, also for a hold that
// was lost meanwhile. It does not block.
func (k *Keeper) Release(h *Hold) {
	k.mu.Lock()
	k.finished = append(k.finished, h)
	k.mu.Unlock()
	k.wake.Wake()
}

// step renews the claims and takes and gives shards, once. Only one goroutine
// at a time may call it. A call to the store that takes too long is given up;
// the claims then expire.
func (k *Keeper) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.counts()/2)
	defer cancel()
	k.renew(ctx) // first, because a late renewal loses the claims
	if k.join(ctx) {
		k.acquire(ctx)
		k.share()
	} // without an answer, nobody knows which hubs are alive
	k.giveUp(ctx)
}

// join says that this hub is alive, and finds out which shards it should have.
// It reports whether it knows them now.
func (k *Keeper) join(ctx context.Context) bool {
	ctx, cancel := k.within(ctx)
	defer cancel()
	live, err := k.store.Join(ctx)
	if errors.Is(err, ErrClock) { // the other hubs have to take its shards
		k.live, k.wanted = nil, nil
		for _, h := range k.held {
			k.yield(h)
		}
	}
	if err != nil {
		k.failed(ctx, "this hub cannot say that it is alive", err)
		return false
	}
	if !slices.Equal(live, k.live) {
		k.live, k.wanted = live, wanted(live, k.store.Name(), k.shards)
		if alone := len(live) < 2; !alone || k.shared { // say nothing if the hub was always alone
			k.shared = !alone
			k.logger.Info("the work is shared", "hubs", len(live), "shards", len(k.wanted))
		}
	}
	return true
}

// renew prolongs all claims, and drops those that are lost.
func (k *Keeper) renew(ctx context.Context) {
	if len(k.held) == 0 {
		return
	}
	all := make([]Claim, 0, len(k.held))
	for _, h := range k.held {
		all = append(all, h.Claim)
	}
	ctx, cancel := k.within(ctx)
	defer cancel()
	until := k.in(k.counts())
	renewed, err := k.store.Renew(ctx, all)
	for _, r := range renewed {
		k.held[r.Shard].until.Store(until)
	}
	if err != nil {
		k.failed(ctx, "claims cannot be renewed", err)
	}
	late := until.over(k.clock) // the answer took so long that the renewed claims have ended, too
	k.lose(func(h *Hold) bool {
		if h.until.Load() == until {
			return late
		}
		return err == nil || h.Over()
	})
}

// acquire claims the shards that this hub should have and does not have.
func (k *Keeper) acquire(ctx context.Context) {
	var missing []int
	for _, shard := range k.wanted {
		if k.held[shard] == nil {
			missing = append(missing, shard)
		}
	}
	if len(missing) == 0 {
		return
	}
	ctx, cancel := k.within(ctx)
	defer cancel()
	until := k.in(k.counts())
	got, err := k.store.Acquire(ctx, missing)
	if err != nil {
		k.failed(ctx, "shards cannot be claimed", err)
	}
	if until.over(k.clock) {
		return // it took so long that the claims have ended
	}
	for _, claim := range got {
		h := &Hold{Claim: claim, clock: k.clock}
		h.until.Store(until)
		k.held[claim.Shard] = h
		k.worker.Gained(h)
	}
}

// share begins to hand over shards that other hubs should have.
func (k *Keeper) share() {
	n := 0
	for shard, h := range k.held {
		if _, mine := slices.BinarySearch(k.wanted, shard); mine || h.yielding {
			continue
		}
		if n++; n > yieldAtOnce {
			return
		}
		k.yield(h)
	}
}

// yield asks the worker for a shard, once.
func (k *Keeper) yield(h *Hold) {
	if !h.yielding {
		h.yielding = true
		k.worker.Yield(h)
	}
}

// lose drops the claims for which lost reports true, and stops the work under
// them.
func (k *Keeper) lose(lost func(*Hold) bool) {
	n := 0
	for shard, h := range k.held {
		if lost(h) {
			n++
			delete(k.held, shard)
			k.worker.Lost(h)
		}
	}
	if n > 0 {
		k.logger.Warn("claims lost; work on their shards stops", "shards", n)
	}
}

// giveUp releases the shards on which the worker has ended its work.
func (k *Keeper) giveUp(ctx context.Context) {
	k.mu.Lock()
	finished := k.finished
	k.finished = nil
	k.mu.Unlock()
	var free []Claim
	for _, h := range finished {
		if k.held[h.Shard] == h {
			delete(k.held, h.Shard)
			free = append(free, h.Claim)
		}
	}
	if len(free) == 0 {
		return
	}
	ctx, cancel := k.within(ctx)
	defer cancel()
	if err := k.store.Release(ctx, free); err != nil {
		k.failed(ctx, "claims cannot be released; they expire", err)
	}
}

// failed logs an error, unless the call failed because this hub ends, or the same was logged
// in the last minute: there are two steps a second.
func (k *Keeper) failed(ctx context.Context, what string, err error) {
	now := k.clock()
	if last, ok := k.said[what]; ctx.Err() == context.Canceled || ok && now-last < time.Minute {
		return
	}
	k.said[what] = now
	k.logger.Warn(what, "err", err)
}
