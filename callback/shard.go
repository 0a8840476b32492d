package callback

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
)

const (
	longestWait  = time.Hour              // longest wait that a callback may ask for
	loadRetry    = time.Second            // wait after a shard could not be loaded
	handOverTime = 800 * time.Millisecond // time that calls in flight have when a shard is handed over

	// unsavedDeliveries is more than the deliveries of a shard whose numbers a hub that crashed had not
	// stored.
	unsavedDeliveries = 1 << 16
)

// A shard is the subscriptions and the inbox of a shard on which this hub has a claim. It ends, and
// cancels ctx, when the claim is lost or released.
type shard struct {
	// Immutable.
	engine *Engine
	claim  *claim.Hold
	gained time.Time
	writer *writer
	ctx    context.Context
	end    context.CancelFunc // cancels ctx
	calls  context.Context    // of calls and of load: canceled with ctx, or earlier when the shard is handed over
	hangUp context.CancelFunc // cancels calls
	rested chan struct{}      // closed when the shard is leaving and no sub has an owner
	clock  *time.Timer        // calls wakeDue

	// deliveries is the number of the latest delivery to a callback of the shard. It starts at the number
	// of the claim, which is the time of the store in microseconds. So numbers rise for a callback even if
	// its record was lost, restored or made again.
	deliveries atomic.Uint64

	mu      sync.Mutex
	loaded  bool // whether subs are loaded; until then no requests are read
	leaving bool // whether the shard is being handed over; then no tasks start
	owned   int  // subs that have an owner, and one more while subs are loaded
	subs    map[subscription.ID]*sub
	timers  schedule

	// Rights of the makers of subscriptions.
	rights    uint64 // version of the rights that all subs were checked with, except those in unchecked
	unchecked []*sub

	// The inbox.
	after    uint64 // number of the last request that was read
	newest   uint64 // number of the newest request that is known to be in the inbox
	sent     int    // requests that this hub has sent
	waiting  int    // requests that were read and not executed yet
	fetching bool   // whether a goroutine reads the inbox
}

// claimWorker implements claim.Worker.
type claimWorker struct{ *Engine }

// Gained starts the work on a shard, after its subscriptions are loaded.
func (w claimWorker) Gained(h *claim.Hold) {
	e := w.Engine
	sh := &shard{engine: e, claim: h, gained: time.Now(), rested: make(chan struct{}), subs: map[subscription.ID]*sub{}, owned: 1}
	sh.ctx, sh.end = context.WithCancel(e.ctx)
	sh.calls, sh.hangUp = context.WithCancel(sh.ctx)
	sh.writer = newWriter(sh)
	sh.clock = time.AfterFunc(time.Until(h.Until()), sh.wakeDue)
	e.mu.Lock()
	e.shards[h.Shard] = sh
	e.mu.Unlock()
	e.metrics.claimsGained.Inc()
	e.wg.Go(func() {
		loaded := sh.load()
		for !loaded && backoff.Wait(sh.calls, loadRetry) {
			loaded = sh.load()
		}
		sh.mu.Lock()
		sh.leaveLocked()
		sh.mu.Unlock()
		if loaded {
			sh.reseal()
		}
	})
}

// Lost ends the work on a shard, and cancels its calls in flight.
func (w claimWorker) Lost(h *claim.Hold) {
	if sh := w.shard(h.Shard); sh != nil && sh.claim == h {
		sh.lose()
	}
}

// Yield hands a shard over. It cancels calls that are still in flight after handOverTime, stores all
// progress, and releases the claim. The next hub makes the canceled calls.
func (w claimWorker) Yield(h *claim.Hold) {
	sh := w.shard(h.Shard)
	if sh == nil || sh.claim != h {
		w.claims.Release(h)
		return
	}
	sh.mu.Lock()
	sh.leaving = true
	if sh.owned == 0 {
		close(sh.rested)
	}
	sh.mu.Unlock()
	w.wg.Go(func() {
		slow := time.AfterFunc(handOverTime, sh.hangUp)
		<-sh.rested
		slow.Stop()
		sh.saveSkipped()
		for !sh.writer.save() && backoff.Wait(sh.ctx, saveRetry) { // otherwise the next hub repeats deliveries
		}
		w.removeShard(sh)
		w.claims.Release(h)
	})
}

// leaveLocked notes that a sub no longer has an owner, or that subs are no longer loaded. The caller holds
// mu.
func (sh *shard) leaveLocked() {
	if sh.owned--; sh.owned == 0 && sh.leaving {
		close(sh.rested)
	}
}

// load loads the subscriptions. It reports false if it must be called again.
func (sh *shard) load() bool {
	e := sh.engine
	var records []subscription.Record
	for r, err := range e.registry.Load(sh.calls, sh.claim.Shard) {
		if err != nil {
			if sh.calls.Err() == nil {
				e.opts.Logger.Warn("callbacks: load of subscriptions failed", "shard", sh.claim.Shard, "err", err)
			}
			if errors.Is(err, subscription.ErrRecord) {
				continue // one invalid record does not prevent the other subscriptions
			}
			return false
		}
		records = append(records, r)
	}
	number := sh.claim.Number
	for i := range records {
		if d := records[i].Delivery; d > 0 {
			number = max(number, d+unsavedDeliveries) // the clock of the store was ahead
		}
	}
	sh.deliveries.Store(number)
	for i := range records {
		sh.add(&records[i])
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.loaded = true
	sh.fetchLocked()
	return true
}

// add adds the sub of a record that was loaded.
func (sh *shard) add(r *subscription.Record) {
	s := &sub{id: r.ID(), shard: sh, host: sh.engine.queue.host(r.Callback), stage: owned, standing: standingOf(r.Last, r.Failed)}
	sh.mu.Lock()
	sh.subs[s.id] = s
	sh.owned++
	sh.mu.Unlock()
	if r.Ended.IsZero() {
		if latest := time.Now().Add(longestWait); r.Next.After(latest) { // the clock was ahead
			r.Next = latest
		}
		s.adopt(r)
	} else {
		s.retire(&r.Subscription)
	}
	s.next(true, false, s.Cursor)
}

// lose ends a shard whose claim was lost.
func (sh *shard) lose() {
	e := sh.engine
	if e.removeShard(sh) {
		e.metrics.claimsLost.Inc()
		e.claims.Release(sh.claim) // the Keeper may not know yet that the claim is lost
	}
}

// removeShard ends a shard with all that is in it. It reports false if that was done before.
func (e *Engine) removeShard(sh *shard) bool {
	e.mu.Lock()
	if e.shards[sh.claim.Shard] != sh {
		e.mu.Unlock()
		return false
	}
	delete(e.shards, sh.claim.Shard)
	e.mu.Unlock()
	sh.mu.Lock()
	sh.end()
	sh.clock.Stop()
	var forgotten []*sub
	for _, s := range sh.subs {
		if s.stage == idle || s.stage == queued && e.queue.remove(s) { // other subs are forgotten by their owners
			s.stage = dead
			forgotten = append(forgotten, s)
		}
	}
	sh.mu.Unlock()
	for _, s := range forgotten {
		s.forget()
	}
	return true
}

// mayCall reports whether a callback may be called under the claim. It must be called immediately
// before each call: a machine that was suspended resumes in the middle of its work, when another hub
// may have the shard.
func (sh *shard) mayCall() bool {
	if sh.ctx.Err() == nil && sh.claim.Expired() {
		sh.engine.warnLate()
		sh.lose()
	}
	return sh.ctx.Err() == nil
}

// setTimer wakes a sub at a time, or not if that is zero. The caller holds mu.
func (sh *shard) setTimer(s *sub, due time.Time) {
	if due.IsZero() {
		sh.timers.remove(s)
		return
	}
	if s.scheduled > 0 && s.due.Equal(due) {
		return
	}
	sh.timers.set(s, due)
	if s.scheduled == 1 {
		sh.clock.Reset(time.Until(earlier(due, sh.claim.Until())))
	}
}

// wakeDue wakes subs that are due, and ends the shard if its claim has ended. The clock calls it.
func (sh *shard) wakeDue() {
	if !sh.mayCall() {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := time.Now()
	for s := sh.timers.popDue(now); s != nil; s = sh.timers.popDue(now) {
		s.wakeLocked()
	}
	next := sh.claim.Until()
	if len(sh.timers) > 0 {
		next = earlier(next, sh.timers[0].due)
	}
	sh.clock.Reset(time.Until(next))
}
