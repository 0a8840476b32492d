package callback

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"
)

// A shard is what this hub has a claim on: subscriptions, and requests to carry
// out. As a task it is rung when its claim counts no more.
type shard struct {
	task
	engine *Engine
	hold   *hold
	ctx    context.Context // of all its requests: it ends with the claim
	cancel context.CancelFunc

	committing sync.Mutex // one Commit at a time, of what is newest; locked before Engine.mu

	// Guarded by Engine.mu.
	loaded   bool // before that nothing is carried out
	subs     map[ID]*sub
	errands  map[ID]*errand
	waiting  int           // requests of the inbox in errands
	after    uint64        // the last request that was taken from the inbox
	newest   uint64        // that is known to be there
	sent     int           // requests that this hub put there itself
	fetching bool          // somebody takes requests from the inbox
	dirty    []*sub        // to be saved soon
	moved    []*sub        // to be saved some time
	done     []uint64      // requests that were carried out, to be taken out of the inbox
	saving   bool          // saveAll sees to it
	busy     int           // tasks that have a place
	leaving  bool          // nothing is started any more
	rested   chan struct{} // closed when it is leaving and nothing is busy
}

// gained begins to work on a shard, once its subscriptions are loaded.
func (e *Engine) gained(h *hold) {
	s := &shard{engine: e, hold: h, subs: map[ID]*sub{}, errands: map[ID]*errand{}, rested: make(chan struct{})}
	s.task = task{work: s, shard: s, index: -1}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	if old := e.shards[h.Shard]; old != nil {
		e.drop(old)
	}
	e.shards[h.Shard] = s
	e.metrics.claimsGained.Inc()
	e.remind(&s.task, h.Until())
	e.wg.Go(func() {
		for !s.load() && pause(s.ctx, loadRetry) {
		}
	})
}

// loadRetry is how long to wait before a shard that could not be loaded is
// loaded again.
const loadRetry = time.Second

// load loads the shard's subscriptions and lets them have their turns. It
// reports whether that could be done.
func (s *shard) load() bool {
	e := s.engine
	var records []Record
	for r, err := range e.registry.Load(s.ctx, s.hold.Shard) {
		if err != nil {
			if s.ctx.Err() == nil {
				e.opts.Logger.Warn("callbacks: subscriptions cannot be loaded", "shard", s.hold.Shard, "err", err)
			}
			if errors.Is(err, ErrRecord) {
				continue // the others should not suffer from it
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
		x := s.add(&records[i])
		x.earliest = x.next
		x.proven = x.failed == 0 && x.last.delivered()
		x.rest()
	}
	s.fetch()
	e.fill()
	return true
}

// lost drops a shard whose claim is lost. What is under way is cancelled.
func (e *Engine) lost(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[h.Shard]; s != nil && s.hold == h {
		e.lose(s)
	}
}

// lose drops a shard that this hub had not given up. mu is held.
func (e *Engine) lose(s *shard) {
	e.metrics.claimsLost.Inc()
	e.drop(s)
}

// yield comes to an end with a shard: it starts nothing more, lets what is under
// way end, saves what came of it, and then releases the claim.
func (e *Engine) yield(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shards[h.Shard]
	if s == nil || s.hold != h {
		e.claims.release(h)
		return
	}
	s.leaving = true
	if s.busy == 0 {
		close(s.rested)
	}
	e.wg.Go(func() {
		<-s.rested // each turn has an end
		// What is not saved the next hub repeats.
		for !s.save(context.WithoutCancel(s.ctx), true) && pause(s.ctx, saveAgain) {
		}
		e.mu.Lock()
		if e.shards[h.Shard] == s {
			e.drop(s)
		}
		e.mu.Unlock()
		e.claims.release(h)
	})
}

// inbox takes in what is new in a shard's inbox, up to the request number newest
// at least.
func (e *Engine) inbox(h *hold, newest uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[h.Shard]; s != nil && s.hold == h {
		s.newest = max(s.newest, newest)
		s.fetch()
	}
}

// turn is never called: a shard gets no place.
func (s *shard) turn() turn { return nil }

// ring is called when the claim ends, unless it was renewed.
func (s *shard) ring() {
	if until := s.hold.Until(); until.After(time.Now()) {
		s.engine.remind(&s.task, until)
		return
	}
	s.engine.opts.Logger.Warn("callbacks: a claim was not renewed in time", "shard", s.hold.Shard)
	s.engine.lose(s)
	s.engine.claims.release(s.hold)
}

// drop forgets a shard. mu is held.
func (e *Engine) drop(s *shard) {
	s.cancel()
	delete(e.shards, s.hold.Shard)
	e.schedule.remove(&s.task)
	for _, x := range s.subs {
		s.remove(x)
	}
	for id, r := range s.errands {
		r.setFresh(false)
		e.schedule.remove(&r.task)
		e.places.leave(&r.task)
		delete(s.errands, id)
	}
	s.dirty, s.moved, s.done = nil, nil, nil
}

// add takes a subscription in. mu is held.
func (s *shard) add(r *Record) *sub {
	e := s.engine
	x := &sub{id: r.ID(), progress: newProgress(&r.Progress)}
	x.task = task{work: x, host: e.places.host(hostName(r.Callback)), shard: s, index: -1}
	x.topic = e.topic(r.Set)
	x.filter = e.filters.of(r.Filter)
	x.about = &Subscription{}
	*x.about = r.Subscription
	x.about.Set, x.about.Filter = x.topic.set, x.filter.Filter // one for all
	if x.failed > 0 {
		e.failing++
	}
	s.subs[x.id] = x
	x.host.subs++
	if made := s.errands[x.id]; made != nil {
		made.setFresh(false)
	}
	return x
}

// remove forgets a subscription. mu is held.
func (s *shard) remove(x *sub) {
	if x.running != nil {
		x.running.end()
	}
	x.leave()
	x.setFailed(0)
	x.host.subs--
	s.engine.schedule.remove(&x.task)
	s.engine.places.leave(&x.task)
	s.engine.forsake(x.topic)
	s.engine.filters.drop(x.filter)
	delete(s.subs, x.id)
}

func hostName(callback string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return ""
	}
	return hostOf(u)
}

// Requests of one shard that are taken from the inbox before others are done.
const (
	maxWaiting = inboxMax
	inboxPage  = 100
)

// fetch takes requests from the inbox, if there are any and there is room for
// them. mu is held.
func (s *shard) fetch() {
	if !s.loaded || s.fetching || s.leaving || s.newest <= s.after || s.waiting >= maxWaiting || s.ctx.Err() != nil {
		return
	}
	s.fetching = true
	after, sent := s.after, s.sent
	s.engine.wg.Go(func() {
		requests, err := s.engine.registry.Inbox(s.ctx, s.hold.Shard, after, inboxPage)
		if err != nil && s.ctx.Err() == nil {
			s.engine.opts.Logger.Warn("callbacks: the inbox cannot be read", "shard", s.hold.Shard, "err", err)
		}
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		s.fetching = false
		if s.ctx.Err() != nil || err != nil {
			return // the next renewal of the claim comes by again
		}
		for _, r := range requests {
			s.after = max(s.after, r.Number)
			if r.Mode == "" {
				s.engine.opts.Logger.Error("callbacks: a request cannot be read; it stays in the inbox", "shard", s.hold.Shard, "number", r.Number)
				continue
			}
			s.carry(r)
		}
		if len(requests) == 0 {
			s.newest = s.after // somebody took them out
		}
		if s.sent != sent {
			s.newest = max(s.newest, s.after+1) // it came too late for this look
		}
		s.fetch()
		s.engine.fill()
	})
}

// carry adds a request to the errand of its subscription. mu is held.
func (s *shard) carry(r Request) {
	id := r.ID()
	x := s.errands[id]
	if x == nil {
		x = &errand{id: id, set: r.Set}
		x.task = task{work: x, host: s.engine.places.host(hostName(r.Callback)), shard: s, index: -1}
		s.errands[id] = x
	}
	if r.Mode == Subscribe && s.subs[id] == nil {
		x.setFresh(true)
	}
	x.add(&pending{Request: r})
}
