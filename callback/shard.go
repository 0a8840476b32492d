package callback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
)

// A shard is one part of the registry that this hub has a claim on: subscriptions, and
// an inbox of requests to carry out. As a task it is due when its claim ends, and it
// never gets a slot.
//
// A shard begins when its claim is gained. It is loaded once its subscriptions are
// read, unless the claim is lost before. It is leaving once the claim is to be
// released, whether it is loaded by then or not. It ends, and ctx with it, when the
// claim is lost or released.
type shard struct {
	task

	// Set when the claim is gained, never changed.
	engine *Engine
	hold   *claim.Hold
	ctx    context.Context // ends when the shard does
	cancel context.CancelFunc
	calls  context.Context // of all requests to callbacks: it ends with ctx, or sooner when the shard is leaving
	hangUp context.CancelFunc
	rested chan struct{} // closed when the shard is leaving and none of its tasks is busy

	// committing is held from the choice of the changes until the result of their Commit
	// is noted. Otherwise one Commit could overtake another, and the older progress would
	// be saved last. It is locked before Engine.mu.
	committing sync.Mutex

	// Guarded by Engine.mu.
	loaded  bool // before that no request is carried out
	leaving bool // no task gets a slot any more
	busy    int  // tasks that have a slot
	subs    map[subscription.ID]*sub
	errands map[subscription.ID]*errand
	graves  map[subscription.ID]*grave // none of them is in subs

	// The rights of those who made subscriptions; guarded by Engine.mu.
	rights    uint64 // version of them at which all subs were looked at, but those in unchecked
	unchecked []*sub

	// The inbox; guarded by Engine.mu.
	after    uint64 // number of the last request that was taken from the inbox
	newest   uint64 // number of the newest request that is known to be in the inbox
	sent     int    // requests that this hub sent to the inbox itself
	waiting  int    // requests of the inbox that are in errands
	fetching bool   // a goroutine of fetchLocked takes requests from the inbox

	// What the registry has to be told; guarded by Engine.mu. save takes these lists,
	// and owns them while it commits. It brings them back when the Commit fails.
	dirty  []*sub   // subs to save soon
	moved  []*sub   // subs to save now and then
	done   []uint64 // numbers of requests that were carried out and are to leave the inbox
	saving bool     // a goroutine of saveAll saves the shard
}

// loadRetry is how long to wait before a shard that could not be loaded is
// loaded again.
const loadRetry = time.Second

// load loads the shard's subscriptions and lets them have their turns. It returns false
// if it has to be called again.
func (s *shard) load() bool {
	e := s.engine
	var records []subscription.Record
	for r, err := range e.registry.Load(s.ctx, s.hold.Shard) {
		if err != nil {
			if s.ctx.Err() == nil {
				e.opts.Logger.Warn("callbacks: subscriptions cannot be loaded", "shard", s.hold.Shard, "err", err)
			}
			if errors.Is(err, subscription.ErrRecord) {
				continue // one bad record must not stop all other subscriptions
			}
			return false
		}
		records = append(records, r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.ctx.Err() != nil {
		return true // the claim is lost already
	}
	s.loaded = true
	for i := range records {
		if !records[i].Ended.IsZero() {
			s.buryLocked(&records[i].Subscription)
			continue
		}
		x := s.addLocked(&records[i])
		x.earliest = x.next
		x.standing = x.last.standing(x.failed)
		x.restLocked()
	}
	s.fetchLocked()
	e.fillLocked()
	return true
}

// turnLocked is never called: a shard gets no slot.
func (s *shard) turnLocked() turn { return nil }

// owner is never called: a shard gets no slot.
func (s *shard) owner() string { return "" }

// ringLocked is called when the claim ends, unless it was renewed.
func (s *shard) ringLocked() {
	if s.holdsLocked() {
		s.engine.remindLocked(&s.task, s.hold.Until())
	}
}

// holdsLocked reports whether the claim still counts. If not, it drops the shard, and
// releases the claim, because the Keeper does not know yet that the claim is over.
func (s *shard) holdsLocked() bool {
	if !s.hold.Over() {
		return true
	}
	if e := s.engine; e.shards[s.hold.Shard] == s {
		e.opts.Logger.Warn("callbacks: the claim on a shard was not renewed in time", "shard", s.hold.Shard)
		e.loseLocked(s)
		e.claims.Release(s.hold)
	}
	return false
}

// mayCall reports whether the claim still counts, so that a callback may be called. A
// machine that was suspended goes on in the middle of its work, and another hub may have
// the shard meanwhile. So every attempt calls mayCall directly before it begins.
// Engine.mu must not be held.
func (s *shard) mayCall() bool {
	if !s.hold.Over() {
		return true
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.holdsLocked()
}

// loseLocked drops a shard whose claim was lost before this hub gave it up.
func (e *Engine) loseLocked(s *shard) {
	e.metrics.claimsLost.Inc()
	e.dropLocked(s)
}

// dropLocked forgets a shard with all that is in it, and cancels its requests.
func (e *Engine) dropLocked(s *shard) {
	s.cancel()
	delete(e.shards, s.hold.Shard)
	e.schedule.remove(&s.task)
	for _, x := range s.subs {
		s.removeLocked(x)
	}
	for id, r := range s.errands {
		r.setFreshLocked(false)
		e.schedule.remove(&r.task)
		e.slots.leave(&r.task)
		delete(s.errands, id)
	}
	for id := range s.graves {
		s.unburyLocked(id)
	}
	s.dirty, s.moved, s.done, s.unchecked = nil, nil, nil, nil
}

// addLocked takes a subscription in.
func (s *shard) addLocked(r *subscription.Record) *sub {
	e := s.engine
	x := &sub{id: r.ID(), progress: newProgress(&r.Progress)}
	x.task = task{work: x, host: e.slots.host(r.Callback), shard: s, index: -1, standing: untried}
	x.topic = e.topicLocked(r.Set)
	x.filter = e.filters.of(r.Filter)
	about := r.Subscription
	about.Set, about.Filter = x.topic.set, x.filter.Filter // shared by all subs that have the same
	x.setAboutLocked(&about)
	s.unburyLocked(x.id)
	s.uncheckLocked(x)
	if x.failed > 0 {
		e.failing++
	}
	s.subs[x.id] = x
	x.host.subs++
	if made := s.errands[x.id]; made != nil {
		made.setFreshLocked(false)
	}
	return x
}

// removeLocked forgets a subscription.
func (s *shard) removeLocked(x *sub) {
	if x.running != nil {
		x.running.end()
	}
	x.leaveLocked()
	x.setFailedLocked(0)
	x.host.subs--
	s.engine.schedule.remove(&x.task)
	s.engine.slots.leave(&x.task)
	s.engine.forsakeLocked(x.topic)
	s.engine.filters.drop(x.filter)
	x.setAboutLocked(nil)
	delete(s.subs, x.id)
}
