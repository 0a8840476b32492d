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

// A Worker works on the shards that this hub has claimed. The Keeper calls its methods from one
// goroutine, one after another. They must not block.
type Worker interface {
	// Gained notifies the worker that it may work on a shard, until Lost is called or the worker
	// calls Keeper.Release.
	Gained(h *Hold)

	// Lost notifies the worker that it must stop work on the shard immediately. Nothing more may be
	// committed under the claim.
	Lost(h *Hold)

	// Yield asks the worker to stop its work on the shard. The worker starts nothing new, finishes
	// and commits what is in progress, and then calls Keeper.Release.
	Yield(h *Hold)
}

// maxYields is the maximum number of shards that a hub hands over in one step, so that most of the
// work continues while shards move.
const maxYields = 8

// A Keeper maintains the claims of this hub. The hubs that are alive determine which shards this
// hub should have.
type Keeper struct {
	store  Store
	worker Worker
	shards int
	logger *slog.Logger
	clock  Clock

	// Accessed only by the goroutine that calls step.
	held       map[int]*Hold
	live       []string
	assigned   []int                    // shards that this hub should have while the hubs in live are alive
	shared     bool                     // whether live has contained another hub
	lastLogged map[string]time.Duration // time when each failure was last logged

	mu       sync.Mutex
	finished []*Hold // holds on which the worker has stopped its work; to be released

	wake backoff.Wakeup // signaled when finished has grown
}

// NewKeeper returns a Keeper of claims on the shards 0 to shards-1. It claims nothing until Run is
// called. If clock is nil, the clock of the machine is used.
func NewKeeper(s Store, w Worker, shards int, clock Clock, logger *slog.Logger) *Keeper {
	if clock == nil {
		clock = sinceBoot
	}
	return &Keeper{store: s, worker: w, shards: shards, logger: logger, clock: clock, held: make(map[int]*Hold), lastLogged: make(map[string]time.Duration), wake: backoff.NewWakeup()}
}

// interval returns the time between two steps.
func (k *Keeper) interval() time.Duration { return k.store.ClaimFor() / 10 }

// withTimeout returns a context for one call to the store. If a part of the store does not respond,
// enough time remains for the calls that follow.
func (k *Keeper) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.validFor()/4)
}

// validFor returns how long a claim is valid for this hub. That is less than its lifetime in the
// store, to compensate for clocks that run at different rates and for requests that do not stop
// immediately.
func (k *Keeper) validFor() time.Duration { return k.store.ClaimFor() * 4 / 5 }

// Run maintains the claims until ctx is done. Then it hands over all shards: it asks the worker to
// yield them, and releases each one when the worker does. Claims on shards that the worker has not
// released after the grace period are dropped. When Run returns, the worker has no claims left.
func (k *Keeper) Run(ctx context.Context, grace time.Duration) {
	tick := time.NewTicker(k.interval())
	defer tick.Stop()
	for k.step(ctx); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
			k.step(ctx)
		case <-k.wake:
			k.releaseFinished(ctx)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	k.handOver(ending, tick.C)
}

// handOver yields all shards, and waits until the worker has released them or ctx is done.
func (k *Keeper) handOver(ctx context.Context, tick <-chan time.Time) {
	// Leave first, so that the shards are assigned to the other hubs from now on.
	leaving, cancel := k.withTimeout(ctx)
	if err := k.store.Leave(leaving); err != nil {
		k.logger.Warn("leaving the hubs failed; the others will notice later that this hub has stopped", "err", err)
	}
	cancel()
	for _, h := range k.held {
		k.yield(h)
	}
	for k.releaseFinished(ctx); len(k.held) > 0 && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
			k.renew(ctx)
		case <-k.wake:
			k.releaseFinished(ctx)
		}
	}
	k.dropClaims(func(*Hold) bool { return true })
}

// Release reports that the worker has stopped its work on a shard, whether or not the Keeper asked
// for that. Any goroutine may call it, even for a hold that was lost in the meantime. It does not
// block.
func (k *Keeper) Release(h *Hold) {
	k.mu.Lock()
	k.finished = append(k.finished, h)
	k.mu.Unlock()
	k.wake.Wake()
}

// step renews the claims and acquires and yields shards, once. It must not be called concurrently.
// It cancels calls to the store that take too long; the claims then expire.
func (k *Keeper) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.validFor()/2)
	defer cancel()
	k.renew(ctx) // first, because claims are lost if they are renewed too late
	if k.join(ctx) {
		k.acquire(ctx)
		k.yieldExcess()
	} // otherwise it is unknown which hubs are alive
	k.releaseFinished(ctx)
}

// join announces that this hub is alive, and updates the assigned shards. It reports whether they
// are known.
func (k *Keeper) join(ctx context.Context) bool {
	ctx, cancel := k.withTimeout(ctx)
	defer cancel()
	live, err := k.store.Join(ctx)
	if errors.Is(err, ErrClock) { // the other hubs must take over the shards
		k.live, k.assigned = nil, nil
		for _, h := range k.held {
			k.yield(h)
		}
	}
	if err != nil {
		k.logFailure(ctx, "joining the hubs failed", err)
		return false
	}
	if !slices.Equal(live, k.live) {
		k.live, k.assigned = live, assignedShards(live, k.store.Name(), k.shards)
		if alone := len(live) < 2; !alone || k.shared { // do not log if the hub was always alone
			k.shared = !alone
			k.logger.Info("shards are divided among hubs", "hubs", len(live), "shards", len(k.assigned))
		}
	}
	return true
}

// renew renews all claims and drops those that are lost.
func (k *Keeper) renew(ctx context.Context) {
	if len(k.held) == 0 {
		return
	}
	all := make([]Claim, 0, len(k.held))
	for _, h := range k.held {
		all = append(all, h.Claim)
	}
	ctx, cancel := k.withTimeout(ctx)
	defer cancel()
	until := k.deadlineIn(k.validFor())
	renewed, err := k.store.Renew(ctx, all)
	for _, r := range renewed {
		k.held[r.Shard].until.Store(until)
	}
	if err != nil {
		k.logFailure(ctx, "renewing claims failed", err)
	}
	late := until.passed(k.clock) // the response took so long that the renewed claims have ended, too
	k.dropClaims(func(h *Hold) bool {
		if h.until.Load() == until {
			return late
		}
		return err == nil || h.Expired()
	})
}

// acquire claims the assigned shards that this hub does not have.
func (k *Keeper) acquire(ctx context.Context) {
	var missing []int
	for _, shard := range k.assigned {
		if k.held[shard] == nil {
			missing = append(missing, shard)
		}
	}
	if len(missing) == 0 {
		return
	}
	ctx, cancel := k.withTimeout(ctx)
	defer cancel()
	until := k.deadlineIn(k.validFor())
	got, err := k.store.Acquire(ctx, missing)
	if err != nil {
		k.logFailure(ctx, "claiming shards failed", err)
	}
	if until.passed(k.clock) {
		return // the response took so long that the claims have ended
	}
	for _, claim := range got {
		h := &Hold{Claim: claim, clock: k.clock}
		h.until.Store(until)
		k.held[claim.Shard] = h
		k.worker.Gained(h)
	}
}

// yieldExcess yields shards that are assigned to other hubs.
func (k *Keeper) yieldExcess() {
	n := 0
	for shard, h := range k.held {
		if _, mine := slices.BinarySearch(k.assigned, shard); mine || h.yielding {
			continue
		}
		if n++; n > maxYields {
			return
		}
		k.yield(h)
	}
}

// yield asks the worker once to yield a shard.
func (k *Keeper) yield(h *Hold) {
	if !h.yielding {
		h.yielding = true
		k.worker.Yield(h)
	}
}

// dropClaims drops the claims for which lost returns true, and stops the work under them.
func (k *Keeper) dropClaims(lost func(*Hold) bool) {
	n := 0
	for shard, h := range k.held {
		if lost(h) {
			n++
			delete(k.held, shard)
			k.worker.Lost(h)
		}
	}
	if n > 0 {
		k.logger.Warn("claims lost; work on their shards is stopped", "shards", n)
	}
}

// releaseFinished releases the shards on which the worker has stopped its work.
func (k *Keeper) releaseFinished(ctx context.Context) {
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
	ctx, cancel := k.withTimeout(ctx)
	defer cancel()
	if err := k.store.Release(ctx, free); err != nil {
		k.logFailure(ctx, "releasing claims failed; they will expire", err)
	}
}

// logFailure logs an error, unless the call failed because this hub is stopping, or the same
// message was logged within the last minute: there are two steps per second.
func (k *Keeper) logFailure(ctx context.Context, what string, err error) {
	now := k.clock()
	if last, ok := k.lastLogged[what]; ctx.Err() == context.Canceled || ok && now-last < time.Minute {
		return
	}
	k.lastLogged[what] = now
	k.logger.Warn(what, "err", err)
}
