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

// A shard is one part of the registry that this hub has a claim on: subscriptions, and
// an inbox of requests to carry out. Its timer is due when the claim ends.
//
// A shard begins when its claim is gained. It is loaded once its subscriptions are
// read, unless the claim is lost before. It is leaving once the claim is to be
// released, whether it is loaded by then or not. It ends, and ctx with it, when the
// claim is lost or released.
type shard struct {
	timer

	// Set when the claim is gained, never changed.
	engine *Engine
	claim  *claim.Hold
	gained time.Time       // when
	ctx    context.Context // ends when the shard does
	cancel context.CancelFunc
	calls  context.Context // of all requests to callbacks: it ends with ctx, or sooner when the shard is leaving
	hangUp context.CancelFunc
	rested chan struct{} // closed when the shard is leaving and none of its tasks is busy

	// committing is locked from the choice of the changes until the result of their Commit
	// is noted. Otherwise one Commit could overtake another, and the older progress would
	// be saved last. It is locked before Engine.mu.
	committing sync.Mutex

	// deliveries is the number of the newest delivery to a subscription of the shard. It
	// begins at the claim's number, which is the time of the store's clock in microseconds,
	// or later if the shard was claimed before. So the numbers of a subscription rise even
	// if its record was lost, restored or copied, or made again. Any goroutine may add to it.
	deliveries atomic.Uint64

	loaded   bool // before that no request is carried out
	leaving  bool // no task gets a slot any more
	busy     int  // tasks that have a slot
	subs     map[subscription.ID]*sub
	requests map[subscription.ID]*requestQueue
	ended    map[subscription.ID]*endedSub // none of them is in subs

	// The rights of those who made subscriptions.
	rights    uint64 // version of them at which all subs were looked at, but those in unchecked
	unchecked []*sub

	// The inbox.
	after    uint64 // number of the last request that was taken from the inbox
	newest   uint64 // number of the newest request that is known to be in the inbox
	sent     int    // requests that this hub sent to the inbox itself
	waiting  int    // requests of the inbox that are in requests
	fetching bool   // a goroutine of fetch takes requests from the inbox

	// What the registry has to be told. save takes these lists, and owns them while it
	// commits. It brings them back when the Commit fails.
	dirty   []*sub   // subs to save soon
	skipped []*sub   // subs to save now and then
	passed  uint64   // state.publishes when all that filters had left out was last saved
	done    []uint64 // numbers of requests that were carried out and are to leave the inbox
	saving  bool     // a goroutine of saveAll saves the shard
}

// A worker is the claim.Worker on the shards of an Engine.
type worker struct{ *Engine }

// newShard returns a shard of which nothing is loaded yet.
func (e *Engine) newShard(h *claim.Hold) *shard {
	s := &shard{
		engine: e, claim: h, gained: time.Now(), rested: make(chan struct{}),
		subs: map[subscription.ID]*sub{}, requests: map[subscription.ID]*requestQueue{}, ended: map[subscription.ID]*endedSub{},
	}
	s.of = s
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	s.calls, s.hangUp = context.WithCancel(s.ctx)
	return s
}

// longestWait is the longest that an outlet has the hub wait after a failure.
const longestWait = time.Hour

// loadRetry is how long to wait before a shard that could not be loaded is
// loaded again.
const loadRetry = time.Second

// Gained begins to work on a shard, once its subscriptions are loaded.
func (e worker) Gained(h *claim.Hold) {
	s := e.newShard(h)
	st := e.lock()
	defer st.unlock()
	st.shards[h.Shard] = s // the one before was dropped: a claim is released, or lost, before it is gained again
	e.metrics.claimsGained.Inc()
	st.wakeAt(&s.timer, h.Until())
	e.wg.Go(func() {
		for !s.load() && backoff.Wait(s.ctx, loadRetry) {
		}
		s.reseal()
	})
}

// Lost drops a shard whose claim is lost. Its requests under way are cancelled.
func (e worker) Lost(h *claim.Hold) {
	st := e.lock()
	defer st.unlock()
	if s := st.shards[h.Shard]; s != nil && s.claim == h {
		st.lose(s)
	}
}

// handOverTime is how long the requests under way may go on when a shard is handed over.
// A callback that hangs must not keep the shard from the next hub.
const handOverTime = 800 * time.Millisecond

// Yield ends the work on a shard: it starts nothing more, lets the requests under way
// end or cancels them after handOverTime, saves their results, and then releases the
// claim. The next hub sends the cancelled requests again.
func (e worker) Yield(h *claim.Hold) {
	st := e.lock()
	defer st.unlock()
	s := st.shards[h.Shard]
	if s == nil || s.claim != h {
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
		st := e.lock()
		if st.shards[h.Shard] == s {
			st.dropShard(s)
		}
		st.unlock()
		e.claims.Release(h)
	})
}

// unsaved is more than the deliveries of a shard whose numbers a hub that crashed had not
// saved.
const unsaved = 1 << 16

// load loads the shard's subscriptions and lets them have their turns. It returns false
// if it has to be called again.
func (s *shard) load() bool {
	e := s.engine
	var records []subscription.Record
	for r, err := range e.registry.Load(s.ctx, s.claim.Shard) {
		if err != nil {
			if s.ctx.Err() == nil {
				e.opts.Logger.Warn("callbacks: load of subscriptions failed", "shard", s.claim.Shard, "err", err)
			}
			if errors.Is(err, subscription.ErrRecord) {
				continue // one bad record must not stop all other subscriptions
			}
			return false
		}
		records = append(records, r)
	}
	st := e.lock()
	defer st.unlock()
	if s.ctx.Err() != nil {
		return true // the claim is lost already
	}
	s.loaded = true
	s.deliveries.Store(s.claim.Number)
	for i := range records {
		if stored := records[i].Delivery + unsaved; records[i].Delivery > 0 && stored > s.deliveries.Load() {
			s.deliveries.Store(stored) // the store's clock was ahead
		}
		if !records[i].Ended.IsZero() {
			st.keepEnded(s, &records[i].Subscription)
			continue
		}
		x := st.addSub(s, &records[i])
		x.Next = earlier(x.Next, time.Now().Add(longestWait)) // the clock may have been ahead
		x.earliest = x.Next
		x.standing = standingOf(x.Last, x.Failed)
		st.rest(x)
	}
	st.fetch(s)
	st.fill()
	return true
}

// wake is called when the claim ends, unless it was renewed.
func (s *shard) wake(st *state) {
	if st.stillHas(s) {
		st.wakeAt(&s.timer, s.claim.Until())
	}
}

// stillHas reports whether the claim on a shard still counts. If not, it drops the shard.
func (st *state) stillHas(s *shard) bool {
	if !s.claim.Expired() {
		return true
	}
	if st.shards[s.claim.Shard] == s {
		st.warnLate()
		st.lose(s)
	}
	return false
}

// warnLate logs, at most once a minute, that claims were not renewed in time: usually those
// on all shards are lost together.
func (st *state) warnLate() {
	if now := time.Now(); now.Sub(st.warned) >= time.Minute {
		st.warned = now
		st.engine.opts.Logger.Warn("callbacks: claims not renewed in time; work on their shards stops")
	}
}

// mayCall reports whether the claim still counts, so that a callback may be called. A
// machine that was suspended goes on in the middle of its work, and another hub may have
// the shard meanwhile. So every attempt calls mayCall directly before it begins.
// It locks the mutex.
func (s *shard) mayCall() bool {
	if !s.claim.Expired() {
		return true
	}
	st := s.engine.lock()
	defer st.unlock()
	return st.stillHas(s)
}

// lose drops a shard whose claim was lost before this hub gave it up. It releases the claim,
// because the Keeper may not know yet that the claim is over.
func (st *state) lose(s *shard) {
	if st.shards[s.claim.Shard] == s {
		s.engine.metrics.claimsLost.Inc()
		st.dropShard(s)
		s.engine.claims.Release(s.claim)
	}
}

// dropShard forgets a shard with all that is in it, and cancels its requests.
func (st *state) dropShard(s *shard) {
	s.cancel()
	delete(st.shards, s.claim.Shard)
	st.schedule.stop(&s.timer)
	for _, x := range s.subs {
		st.removeSub(x)
	}
	for _, q := range s.requests {
		st.removeQueue(q)
	}
	for id := range s.ended {
		st.forgetEnded(s, id)
	}
	s.dirty, s.skipped, s.done, s.unchecked = nil, nil, nil, nil
}

// commitRetry is how long to wait until a Commit that the store refused is tried
// again.
const commitRetry = time.Second

// commit makes changes and takes the request out of the inbox, in one step, and with it what
// it may have replaced: after a crash that would be carried out after it. build returns
// the changes; apply brings them into memory once the store has them. In between the mutex
// is free, and the state may change, so apply has to look at it again.
//
// commit returns how long to wait until it is to be tried again; 0 when the changes are made,
// or the claim is lost: then the next hub carries the request out.
func (s *shard) commit(r *subscription.Request, build func(*state) subscription.Changes, apply func(*state, subscription.Changes)) (again time.Duration) {
	s.committing.Lock()
	defer s.committing.Unlock()
	st := s.engine.lock()
	c, done := build(st), s.done
	s.done = nil
	st.unlock()
	if c.Done = append(c.Done, done...); r.Number > 0 {
		c.Done = append(c.Done, r.Number)
	}
	if len(c.Put)+len(c.Delete)+len(c.Done) > 0 {
		if err := s.store(s.ctx, c); err != nil && s.ctx.Err() == nil {
			st = s.engine.lock()
			s.done = append(s.done, done...)
			st.engine.saves.Wake()
			st.unlock()
			s.engine.opts.Logger.Warn("callbacks: commit failed; retrying", "shard", s.claim.Shard, "mode", r.Mode, "err", err)
			return backoff.Jitter(commitRetry)
		}
	}
	st = s.engine.lock()
	defer st.unlock()
	if s.ctx.Err() == nil {
		apply(st, c)
	}
	return 0
}

// How late progress is saved. After a crash the next hub delivers again what was
// delivered and not saved.
const (
	saveEvery = 100 * time.Millisecond // after a delivery
	skipEvery = 10 * time.Second       // after a filter left something out
	saveAgain = time.Second            // after a Commit that failed
	saveTime  = 5 * time.Second        // for one Commit
)

// store commits changes, with committing locked. It drops a shard whose claim is lost.
func (s *shard) store(ctx context.Context, changes subscription.Changes) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	err := s.engine.registry.Commit(ctx, s.claim.Claim, changes)
	if errors.Is(err, claim.ErrLost) {
		st := s.engine.lock()
		defer st.unlock()
		st.lose(s)
	}
	return err
}

// saveLoop saves the progress of all shards, each in one Commit, a moment after
// something changed. It ends with ctx.
func (e *Engine) saveLoop(ctx context.Context) {
	skips := time.NewTicker(skipEvery)
	defer skips.Stop()
	for {
		all := false
		select {
		case <-e.saves:
			if backoff.Sleep(ctx, saveEvery) != nil {
				return
			}
		case <-skips.C:
			all = true
		case <-ctx.Done():
			return
		}
		e.saveAll(ctx, all)
	}
}

// saveAll begins to save the shards that have something dirty or done, and with all also
// what a filter left out. Each shard is saved in a goroutine of its own: a store that is slow
// for one shard delays no other.
func (e *Engine) saveAll(ctx context.Context, all bool) {
	st := e.lock()
	defer st.unlock()
	for _, s := range st.shards {
		if s.saving || len(s.dirty)+len(s.done) == 0 && (!all || len(s.skipped) == 0 && s.passed == st.publishes) {
			continue
		}
		s.saving = true
		e.wg.Go(func() {
			if !s.save(ctx, all) {
				backoff.Wait(ctx, saveAgain)
			}
			st := e.lock()
			defer st.unlock()
			s.saving = false
			if len(s.dirty)+len(s.done) > 0 {
				e.saves.Wake()
			}
		})
	}
}

// save commits a shard's progress. It returns false when the Commit failed: what was to
// be saved is kept for the next time.
func (s *shard) save(ctx context.Context, all bool) bool {
	s.committing.Lock()
	defer s.committing.Unlock()
	st := s.engine.lock()
	if all {
		s.passed = st.publishes
		for _, x := range s.subs {
			x.pass()
		}
	}
	dirty, done := s.dirty, s.done
	s.dirty, s.done = nil, nil
	for _, x := range dirty {
		x.pass()
		x.dirty = false
	}
	if all {
		for _, x := range s.skipped {
			x.skipped = false
		}
		dirty, s.skipped = append(dirty, s.skipped...), nil
	}
	changes := subscription.Changes{Progress: make(map[subscription.ID]subscription.Progress, len(dirty)), Done: done}
	for _, x := range dirty {
		if x.stage != dead {
			changes.Progress[x.id] = x.Progress
		}
	}
	st.unlock()
	if len(changes.Progress)+len(done) == 0 {
		return true
	}
	err := s.store(ctx, changes)
	if err == nil || errors.Is(err, claim.ErrLost) {
		return true
	}
	s.engine.opts.Logger.Warn("callbacks: save of progress failed; retrying", "shard", s.claim.Shard, "err", err)
	st = s.engine.lock()
	defer st.unlock()
	if s.ctx.Err() == nil {
		s.done = append(s.done, done...)
		for _, x := range dirty {
			st.markDirty(x)
		}
		return false
	}
	return true
}
