package callback

import (
	"context"
	"fmt"
	"net/url"
	"sync"
)

// A shard is what this hub has a claim on: subscriptions, and requests to carry
// out.
type shard struct {
	engine *Engine
	claim  Claim
	ctx    context.Context // of all its requests: it ends with the claim
	cancel context.CancelFunc

	committing sync.Mutex // one Commit at a time, of what is newest; locked before Engine.mu

	// Guarded by Engine.mu.
	subs     map[ID]*sub
	errands  map[ID]*errand
	waiting  int      // requests in errands
	after    uint64   // the last request that was taken from the inbox
	newest   uint64   // that is known to be there
	fetching bool     // somebody takes requests from the inbox
	dirty    []*sub   // to be saved soon
	moved    []*sub   // to be saved some time
	done     []uint64 // requests that were carried out, to be taken out of the inbox
	running  int      // tasks that have a place
	leaving  bool     // nothing is started any more
	rested   chan struct{}
}

// gain begins to work on a shard. The claim is valid until lose or yield is
// called for it.
func (e *Engine) gain(ctx context.Context, c Claim) error {
	s := &shard{engine: e, claim: c, subs: map[ID]*sub{}, errands: map[ID]*errand{}}
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	var records []Record
	for r, err := range e.registry.Load(ctx, c.Shard) {
		if err != nil {
			s.cancel()
			return fmt.Errorf("load shard %d: %w", c.Shard, err)
		}
		records = append(records, r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.shards[c.Shard]; old != nil {
		e.drop(old)
	}
	e.shards[c.Shard] = s
	for i := range records {
		x := s.add(&records[i])
		x.earliest = x.next
		x.proven = x.failed == 0 && len(x.last) > 0
		x.rest()
	}
	e.fill()
	return nil
}

// lose drops a shard whose claim is lost. What is under way is cancelled.
func (e *Engine) lose(number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[number]; s != nil {
		e.drop(s)
	}
}

// yield gives a shard up: it starts nothing more, waits until ctx is done for
// what is under way, saves what came of it and drops the shard. Then the claim
// can be released.
func (e *Engine) yield(ctx context.Context, number int) {
	e.mu.Lock()
	s := e.shards[number]
	if s == nil {
		e.mu.Unlock()
		return
	}
	s.leaving = true
	rested := make(chan struct{})
	if s.running > 0 {
		s.rested = rested
	} else {
		close(rested)
	}
	e.mu.Unlock()
	select {
	case <-rested:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.save(ctx, true)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shards[number] == s {
		e.drop(s)
	}
}

// inbox takes in what is new in a shard's inbox, up to the request number newest
// at least.
func (e *Engine) inbox(number int, newest uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shards[number]
	if s == nil {
		return
	}
	s.newest = max(s.newest, newest)
	s.fetch()
}

// drop forgets a shard. mu is held.
func (e *Engine) drop(s *shard) {
	s.cancel()
	delete(e.shards, s.claim.Shard)
	for _, x := range s.subs {
		s.remove(x)
	}
	for id, r := range s.errands {
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
		e.stats.Failing++
	}
	s.subs[x.id] = x
	return x
}

// remove forgets a subscription. mu is held.
func (s *shard) remove(x *sub) {
	x.leave()
	x.setFailed(0)
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
	maxWaiting = 1000
	inboxPage  = 100
)

// fetch takes requests from the inbox, if there are any and there is room for
// them. mu is held.
func (s *shard) fetch() {
	if s.fetching || s.leaving || s.newest <= s.after || s.waiting >= maxWaiting || s.ctx.Err() != nil {
		return
	}
	s.fetching = true
	after := s.after
	s.engine.wg.Go(func() {
		requests, err := s.engine.registry.Inbox(s.ctx, s.claim.Shard, after, inboxPage)
		if err != nil && s.ctx.Err() == nil {
			s.engine.opts.Logger.Warn("callbacks: the inbox cannot be read", "shard", s.claim.Shard, "err", err)
		}
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		s.fetching = false
		if s.ctx.Err() != nil || err != nil {
			return // the next renewal of the claim comes by again
		}
		for _, r := range requests {
			s.after = max(s.after, r.Number)
			s.carry(r)
		}
		if len(requests) == 0 {
			s.newest = s.after // somebody took them out
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
		x = &errand{id: id}
		x.task = task{work: x, host: s.engine.places.host(hostName(r.Callback)), shard: s, index: -1}
		s.errands[id] = x
	}
	x.requests = append(x.requests, r)
	s.waiting++
	if len(x.requests) == 1 {
		x.begin()
	}
}
