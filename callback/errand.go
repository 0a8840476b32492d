package callback

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/changelog"
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

// An errand carries out the requests about one subscription, in order. requests
// and tries belong to its turn while it has one, except that carry adds at the
// end with Engine.mu held.
type errand struct {
	task
	id       ID
	set      string
	fresh    bool // it is to make a subscription
	requests []Request
	tries    int // of the first, that failed
}

// begin lets the errand have its turn for its first request. mu is held.
func (x *errand) begin() {
	s := x.shard
	known := s.subs[x.id]
	switch x.requests[0].Mode {
	case Subscribe, Unsubscribe, expired:
		x.proven = known != nil && known.proven
	default: // no request, or one that nobody waits for
		x.proven = true
	}
	s.engine.places.queue(&x.task)
}

// ring is called when a try is due.
func (x *errand) ring() {
	if x.state == idle {
		x.begin()
	}
}

// turn carries out the first request.
func (x *errand) turn() turn { return &carrying{errand: x, request: x.requests[0]} }

// A carrying is one try to carry out an errand's first request.
type carrying struct {
	errand  *errand
	request Request
	again   time.Duration // how long to wait for the next try; 0: there is none
}

func (c *carrying) do() {
	s, r := c.errand.shard, &c.request
	switch r.Mode {
	case Subscribe, Unsubscribe:
		c.again = s.verify(r, c.errand.tries)
	case Remove:
		s.end(r, "removed by the operator of the hub")
	case expired:
		s.end(r, s.engine.whyExpired(s.ctx, r.Set))
	case ended:
		s.end(r, "")
	case Retry:
		s.change(r, func(known *sub) *Record { return known.record() })
	case Move:
		s.change(r, func(known *sub) *Record {
			rec := known.record()
			rec.Progress = Progress{Cursor: r.Start, Diverged: r.Diverged, Gaps: rec.Gaps, Last: rec.Last}
			return rec
		})
	}
}

// settle goes on with the next request, or with the first one again after a
// while.
func (c *carrying) settle() {
	x, s := c.errand, c.errand.shard
	if x.state == dead || s.ctx.Err() != nil {
		return
	}
	if c.again > 0 {
		x.tries++
		s.engine.remind(&x.task, time.Now().Add(c.again))
		return
	}
	x.requests, x.tries = x.requests[1:], 0
	s.waiting--
	if len(x.requests) > 0 {
		x.begin()
		return
	}
	x.setFresh(false)
	delete(s.errands, x.id)
	s.engine.places.leave(&x.task)
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
// turn. One that is not there is left so. It returns when the store has it, or
// the shard is lost.
func (s *shard) change(r *Request, edit func(known *sub) *Record) {
	e := s.engine
	s.commitSoon(r, func() Changes {
		known := s.subs[r.ID()]
		if known == nil {
			return Changes{}
		}
		return Changes{Put: []Record{*edit(known)}}
	}, func(c Changes) {
		for i := range c.Put {
			s.put(&c.Put[i], r.Move || r.Mode == Move)
		}
		e.fill()
	})
}

// end removes a subscription, and then tells its callback why, unless reason is
// empty.
func (s *shard) end(r *Request, reason string) {
	e := s.engine
	removed := false
	s.commitSoon(r, func() Changes {
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
}

// commitSoon makes changes and takes the request out of the inbox, in one step.
// make and apply are called with mu held, the latter once the store has it. It
// tries until it could or the shard is lost.
func (s *shard) commitSoon(r *Request, build func() Changes, apply func(Changes)) {
	for {
		err := s.commitNow(r, build, apply)
		if err == nil || s.ctx.Err() != nil {
			return
		}
		s.engine.opts.Logger.Warn("callbacks: a request waits for the store", "shard", s.hold.Shard, "mode", r.Mode, "err", err)
		if !pause(s.ctx, commitRetry) {
			return
		}
	}
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
	if f != known.filter {
		known.until = changelog.Cursor{}
	}
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
