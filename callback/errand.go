package callback

import (
	"context"
	"errors"
	"slices"
	"time"
)

// What ends a subscription by itself. These modes are the engine's own: they are
// in no inbox.
const (
	expired Mode = "expired" // its lease ended unrenewed: remove it, and tell the callback (denied)
	ended   Mode = "ended"   // the callback said 410: remove it
)

// commitRetry is how long to wait until what the store did not take is tried
// again.
const commitRetry = time.Second

// An errand carries out the requests about one subscription, one at a time: an
// operator's first, the others in the order in which they came.
type errand struct {
	task
	id       ID
	set      string
	fresh    bool // it is to make a subscription
	requests []*pending
	running  *pending // of requests
}

// A pending is a request that is to be carried out, with what earlier tries have
// found out. It belongs to its turn while it has one.
type pending struct {
	Request
	older     uint64        // number of the first request that it replaced, which says where to start
	tries     int           // that the callback did not answer
	confirmed *confirmation // by the callback: it has only to be kept
}

// add puts a request where it belongs. Of those that want the same only the newest
// counts, so few wait, however many one subscription gets; but it starts where the
// first of them did, which was accepted then and stays in the inbox for that. What
// was confirmed is kept all the same. mu is held.
func (x *errand) add(p *pending) {
	same := func(q *pending) bool { return q.Mode == p.Mode && q.Move == p.Move && q.confirmed == nil }
	for i, q := range x.requests {
		between := slices.ContainsFunc(x.requests[i:], func(r *pending) bool { return r.Mode == Unsubscribe })
		if q != x.running && same(q) && p.Mode == Subscribe && !p.Move && !between {
			p.Start, p.Diverged = q.Start, q.Diverged
			p.older, q.older = or(q.older, q.Number), 0
		}
	}
	for _, q := range slices.Clone(x.requests) {
		if q == x.running || !same(q) && (p.Mode != Remove || q.Mode != Subscribe && q.Mode != Unsubscribe) {
			continue
		}
		if q.Number != p.older {
			x.shard.finish(&q.Request)
		}
		x.take(q)
	}
	switch p.Mode {
	case Remove, Retry, Move: // what others want may take minutes
		x.requests = slices.Insert(x.requests, 0, p)
	default:
		x.requests = append(x.requests, p)
	}
	if p.Number > 0 {
		x.shard.waiting++
	}
	if x.state == idle && x.requests[0] == p {
		x.begin()
	}
}

// take takes a request out. mu is held.
func (x *errand) take(p *pending) {
	i := slices.Index(x.requests, p)
	x.requests = slices.Delete(x.requests, i, i+1)
	if p.Number > 0 {
		x.shard.waiting--
	}
	if p.older > 0 {
		x.shard.finish(&Request{Number: p.older})
	}
}

// begin lets the errand have its turn for its first request. mu is held.
func (x *errand) begin() {
	s := x.shard
	x.proven = true
	switch p := x.requests[0]; p.Mode {
	case Subscribe, Unsubscribe, Remove, expired: // the callback is asked, or told
		known := s.subs[x.id]
		x.proven = p.confirmed != nil || known != nil && known.proven
	}
	s.engine.schedule.remove(&x.task)
	s.engine.places.queue(&x.task)
}

// ring is called when a try is due.
func (x *errand) ring() {
	if x.state == idle {
		x.begin()
	}
}

// turn carries out the first request.
func (x *errand) turn() turn {
	x.running = x.requests[0]
	return &carrying{errand: x, pending: x.running}
}

// A carrying is one try to carry out a request.
type carrying struct {
	*pending
	errand *errand
	again  time.Duration // how long to wait for the next try; 0: there is none
}

func (c *carrying) do() {
	s := c.errand.shard
	switch c.Mode {
	case Subscribe, Unsubscribe:
		c.again = s.verify(c.pending)
	case Remove:
		c.again = s.end(&c.Request, "removed by the operator of the hub")
	case expired:
		c.again = s.expire(c.errand, c.pending)
	case ended:
		c.again = s.end(&c.Request, "")
	case Retry:
		c.again = s.change(&c.Request, func(known *sub) *Record { return known.record() })
	case Move:
		c.again = s.change(&c.Request, func(known *sub) *Record {
			rec := known.record()
			rec.Progress = Progress{Cursor: c.Start, Diverged: c.Diverged, Gaps: rec.Gaps, Last: rec.Last}
			return rec
		})
	}
}

// settle goes on with what is first by now.
func (c *carrying) settle() {
	x, s := c.errand, c.errand.shard
	x.running = nil
	if x.state == dead || s.ctx.Err() != nil {
		return
	}
	if c.again > 0 && slices.ContainsFunc(x.requests, func(q *pending) bool { return q.Mode == Remove && q != c.pending }) {
		s.finish(&c.Request)
		c.again = 0
	}
	if c.again == 0 {
		x.take(c.pending)
	}
	switch {
	case len(x.requests) == 0:
		x.setFresh(false)
		delete(s.errands, x.id)
		s.engine.places.leave(&x.task)
	case x.requests[0] == c.pending:
		s.engine.remind(&x.task, time.Now().Add(c.again))
	default:
		x.begin()
	}
	s.fetch()
}

// finish says that a request is carried out, with nothing changed. mu is held.
func (s *shard) finish(r *Request) {
	if r.Number > 0 {
		s.done = append(s.done, r.Number)
		s.engine.saver.want()
	}
}

// change replaces a subscription by what edit returns, and lets it have its
// turn. One that is not there is left so. It returns what commitSoon does.
func (s *shard) change(r *Request, edit func(known *sub) *Record) (again time.Duration) {
	return s.commitSoon(r, func() Changes {
		known := s.subs[r.ID()]
		if known == nil {
			return Changes{}
		}
		return Changes{Put: []Record{*edit(known)}}
	}, func(c Changes) {
		for i := range c.Put {
			s.put(&c.Put[i], r.Mode == Move)
		}
		s.engine.fill()
	})
}

// expire ends a subscription whose lease is over. If it was asked to be renewed
// meanwhile, perhaps in time, that is carried out first.
func (s *shard) expire(x *errand, p *pending) (again time.Duration) {
	e := s.engine
	e.mu.Lock()
	after := s.after
	e.mu.Unlock()
	newer, err := e.registry.Inbox(s.ctx, s.hold.Shard, after, 1)
	if err != nil {
		return jitter(commitRetry)
	}
	e.mu.Lock()
	if len(newer) > 0 {
		s.newest = max(s.newest, newer[0].Number)
		s.fetch()
		e.mu.Unlock()
		return jitter(commitRetry)
	}
	if x.state != dead && slices.ContainsFunc(x.requests, func(q *pending) bool { return q.Mode == Subscribe }) {
		x.take(p)
		x.requests = append(x.requests, p)
		e.mu.Unlock()
		return jitter(commitRetry)
	}
	e.mu.Unlock()
	return s.end(&p.Request, e.whyExpired(s.ctx, p.Set))
}

// end removes a subscription, and then tells its callback why, unless reason is
// empty. It returns what commitSoon does.
func (s *shard) end(r *Request, reason string) (again time.Duration) {
	e := s.engine
	removed := false
	again = s.commitSoon(r, func() Changes {
		known := s.subs[r.ID()]
		if known == nil || r.Mode != Remove && known.over == "" { // it was renewed in time
			return Changes{}
		}
		return Changes{Delete: []ID{r.ID()}}
	}, func(c Changes) {
		known := s.subs[r.ID()]
		if len(c.Delete) == 0 || known == nil {
			return
		}
		removed = true
		e.metrics.ended[r.Mode].Inc()
		e.opts.Logger.Info("callbacks: a subscription ended", "id", known.id, "set", r.Set, "host", known.host.name, "why", r.Mode)
		s.remove(known)
	})
	if removed && reason != "" {
		s.deny(r, reason)
	}
	return again
}

// commitSoon makes changes and takes the request out of the inbox, in one step.
// build and apply are called with mu held, the latter once the store has it. It
// returns how long to wait until it should be tried again; 0 when it is done, or
// the shard is lost.
func (s *shard) commitSoon(r *Request, build func() Changes, apply func(Changes)) (again time.Duration) {
	err := s.commitNow(r, build, apply)
	if err == nil || s.ctx.Err() != nil {
		return 0
	}
	s.engine.opts.Logger.Warn("callbacks: a request waits for the store", "shard", s.hold.Shard, "mode", r.Mode, "err", err)
	return jitter(commitRetry)
}

func (s *shard) commitNow(r *Request, build func() Changes, apply func(Changes)) error {
	e := s.engine
	s.committing.Lock()
	defer s.committing.Unlock()
	e.mu.Lock()
	c := build()
	e.mu.Unlock()
	if r.Number > 0 {
		c.Done = append(c.Done, r.Number)
	}
	if len(c.Put)+len(c.Delete)+len(c.Done) > 0 {
		ctx, cancel := context.WithTimeout(s.ctx, saveTime)
		defer cancel()
		if err := s.commit(ctx, c); errors.Is(err, ErrClaimLost) {
			return nil // the next hub does it again
		} else if err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.ctx.Err() == nil {
		apply(c)
	}
	return nil
}

// record returns the sub as it is to be kept. mu is held.
func (s *sub) record() *Record { return &Record{Subscription: *s.about, Progress: s.unpack()} }

// put takes what was kept of a subscription into memory, and lets it have its
// turn: it was just made, renewed or moved. mu is held.
func (s *shard) put(r *Record, moved bool) {
	known := s.subs[r.ID()]
	if known == nil {
		s.add(r).rest()
		return
	}
	e := s.engine
	known.over = "" // a renewal came in time
	renewed := r.Subscription
	f := e.filters.of(r.Filter)
	e.filters.drop(known.filter)
	known.filter = f
	renewed.Set, renewed.Filter = known.topic.set, f.Filter
	known.about, known.limit = &renewed, 0
	if moved {
		known.moves++
		known.setFailed(0)
		known.progress, known.first = newProgress(&r.Progress), 0
	}
	known.retry()
}
