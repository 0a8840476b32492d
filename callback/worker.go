package callback

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/internal/backoff"
)

// A worker is the claim.Worker on the shards of an Engine.
type worker struct{ *Engine }

// Gained begins to work on a shard, once its subscriptions are loaded.
func (e worker) Gained(h *claim.Hold) {
	s := &shard{engine: e.Engine, hold: h, subs: map[subscription.ID]*sub{}, errands: map[subscription.ID]*errand{}, graves: map[subscription.ID]*grave{}, rested: make(chan struct{})}
	s.task = task{work: s, shard: s, index: -1}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	s.calls, s.hangUp = context.WithCancel(s.ctx)
	if old := e.shards[h.Shard]; old != nil {
		e.dropLocked(old)
	}
	e.shards[h.Shard] = s
	e.metrics.claimsGained.Inc()
	e.remindLocked(&s.task, h.Until())
	e.wg.Go(func() {
		for !s.load() && backoff.Wait(s.ctx, loadRetry) {
		}
		s.reseal()
	})
}

// Lost drops a shard whose claim is lost. Its requests under way are cancelled.
func (e worker) Lost(h *claim.Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[h.Shard]; s != nil && s.hold == h {
		e.loseLocked(s)
	}
}

// handOverTime is how long the requests under way may go on when a shard is handed over.
// A callback that hangs must not keep the shard from the next hub.
const handOverTime = 800 * time.Millisecond

// Yield ends the work on a shard: it starts nothing more, lets the requests under way
// end or cancels them after handOverTime, saves their results, and then releases the
// claim. The next hub sends the cancelled requests again.
func (e worker) Yield(h *claim.Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shards[h.Shard]
	if s == nil || s.hold != h {
		e.claims.Release(h)
		return
	}
	s.leaving = true
	if s.busy == 0 {
		close(s.rested)
	}
	e.wg.Go(func() {
		slow := time.AfterFunc(handOverTime, s.hangUp)
		<-s.rested
		slow.Stop()
		// The next hub delivers again what is not saved now.
		for !s.save(context.WithoutCancel(s.ctx), true) && backoff.Wait(s.ctx, saveAgain) {
		}
		e.mu.Lock()
		if e.shards[h.Shard] == s {
			e.dropLocked(s)
		}
		e.mu.Unlock()
		e.claims.Release(h)
	})
}
