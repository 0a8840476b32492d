package callback

import (
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

// Modes of requests that end a subscription. The engine makes these itself: they are
// in no inbox.
const (
	expired subscription.Mode = "expired" // the lease ended unrenewed: remove the subscription, and tell the callback (denied)
	ended   subscription.Mode = "ended"   // the callback answered 410: remove the subscription
	refused subscription.Mode = "refused" // whoever made it may not follow the set any more: end it, and tell the callback (denied)

	forgotten subscription.Mode = "forgotten" // it was refused, and nobody needs to see that any more: remove what is kept of it
)

// A carrying is one try to carry out a request. do sets again, and settleLocked reads
// again after that.
type carrying struct {
	*pending
	errand *errand
	again  time.Duration // how long to wait for the next try; 0: the request is carried out
}

func (c *carrying) do() {
	s := c.errand.shard
	switch c.Mode {
	case subscription.Subscribe, subscription.Unsubscribe:
		c.again = s.verify(c.pending)
	case subscription.Remove:
		c.again = s.end(&c.Request, "removed by the operator of the hub")
	case expired:
		c.again = s.expire(c.errand, c.pending)
	case ended:
		c.again = s.end(&c.Request, "")
	case refused:
		c.again = s.refuse(&c.Request)
	case forgotten:
		c.again = s.forget(&c.Request)
	case subscription.Retry:
		c.again = s.change(&c.Request, func(known *sub) *subscription.Record { return known.recordLocked() })
	case subscription.Prove:
		c.again = s.prove(&c.Request)
	case subscription.Move:
		c.again = s.change(&c.Request, func(known *sub) *subscription.Record {
			rec := known.recordLocked()
			rec.Progress = subscription.Progress{Cursor: c.Start, Diverged: c.Diverged, Gaps: rec.Gaps, Last: rec.Last}
			return rec
		})
	}
}

// settleLocked goes on with the first request of the errand. It may be another one than
// before: a request of an operator goes first.
func (c *carrying) settleLocked() {
	x, s := c.errand, c.errand.shard
	x.running = nil
	if x.state == dead || s.calls.Err() != nil {
		return
	}
	if c.again > 0 && slices.ContainsFunc(x.requests, func(q *pending) bool { return q.Mode == subscription.Remove && q != c.pending }) {
		s.finishLocked(&c.Request)
		c.again = 0
	}
	if c.again == 0 {
		x.takeLocked(c.pending)
	}
	switch {
	case len(x.requests) == 0:
		x.setFreshLocked(false)
		delete(s.errands, x.id)
		s.engine.slots.leave(&x.task)
	case x.requests[0] == c.pending:
		s.engine.remindLocked(&x.task, time.Now().Add(c.again))
	default:
		x.beginLocked()
	}
	s.fetchLocked()
}

// finishLocked says that a request is carried out and has changed nothing.
func (s *shard) finishLocked(r *subscription.Request) {
	if r.Number > 0 {
		s.done = append(s.done, r.Number)
		s.engine.saver.want()
	}
}

// change replaces a subscription by what editLocked returns, and lets it have its turn. A
// subscription that is not there is not made. change returns what commitSoon does.
func (s *shard) change(r *subscription.Request, editLocked func(known *sub) *subscription.Record) (again time.Duration) {
	return s.commitSoon(r, func() subscription.Changes {
		known := s.subs[r.ID()]
		if known == nil {
			return subscription.Changes{}
		}
		return subscription.Changes{Put: []subscription.Record{*editLocked(known)}}
	}, func(c subscription.Changes) {
		for i := range c.Put {
			s.putLocked(&c.Put[i], r.Mode == subscription.Move)
		}
		s.engine.fillLocked()
	})
}

// expire ends a subscription whose lease is over. If a request to renew the lease waits,
// it is carried out first, because it may have come in time.
func (s *shard) expire(x *errand, p *pending) (again time.Duration) {
	e := s.engine
	e.mu.Lock()
	after := s.after
	e.mu.Unlock()
	newer, err := e.registry.Inbox(s.ctx, s.hold.Shard, after, 1)
	if err != nil {
		return backoff.Jitter(commitRetry)
	}
	e.mu.Lock()
	if len(newer) > 0 {
		s.newest = max(s.newest, newer[0].Number)
		s.fetchLocked()
		e.mu.Unlock()
		return backoff.Jitter(commitRetry)
	}
	if x.state != dead && slices.ContainsFunc(x.requests, func(q *pending) bool { return q.Mode == subscription.Subscribe }) {
		x.takeLocked(p)
		x.requests = append(x.requests, p)
		e.mu.Unlock()
		return backoff.Jitter(commitRetry)
	}
	e.mu.Unlock()
	return s.end(&p.Request, e.whyExpired(s.ctx, p.Set))
}

// end removes a subscription, and then tells its callback why, unless reason is
// empty. It returns what commitSoon does.
func (s *shard) end(r *subscription.Request, reason string) (again time.Duration) {
	e := s.engine
	removed, about := false, (*subscription.Subscription)(nil)
	again = s.commitSoon(r, func() subscription.Changes {
		known := s.subs[r.ID()]
		if known == nil && r.Mode == subscription.Remove && s.graves[r.ID()] != nil {
			return subscription.Changes{Delete: []subscription.ID{r.ID()}}
		}
		if known == nil || r.Mode != subscription.Remove && known.over == "" { // the lease was renewed in time
			return subscription.Changes{}
		}
		return subscription.Changes{Delete: []subscription.ID{r.ID()}}
	}, func(c subscription.Changes) {
		known := s.subs[r.ID()]
		if len(c.Delete) == 0 {
			return
		}
		if s.unburyLocked(r.ID()); known == nil {
			return
		}
		removed, about = true, known.about
		e.metrics.ended[r.Mode].Inc()
		e.opts.Logger.Info("callbacks: a subscription ended", "id", known.id, "set", r.Set, "host", known.host.name, "why", r.Mode)
		s.removeLocked(known)
	})
	if removed && reason != "" {
		s.deny(about, reason)
	}
	return again
}
