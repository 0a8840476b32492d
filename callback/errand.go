package callback

import (
	"cmp"
	"slices"

	"github.com/rshub/rshub/callback/subscription"
)

// An errand carries out the requests about one subscription, one at a time: those of
// an operator first, all others in the order in which they came.
type errand struct {
	task

	// Set when the errand is made, never changed.
	id  subscription.ID
	set string
	by  string // of its first request

	// Guarded by Engine.mu.
	fresh    bool       // the errand is to make a subscription, and counts as one in crowds
	requests []*pending // the first is the next to be carried out; an operator's may come before the running one
	running  *pending   // the one of requests that has its turn; nil: none has
}

// A pending is a request that is to be carried out, with what earlier tries have
// found out. Engine.mu guards it. During its turn, from errand.turnLocked to
// carrying.settleLocked, the fields tries and confirmed belong to carrying.do. Others may
// then read only the request, and compare the pending with errand.running.
type pending struct {
	subscription.Request
	older     uint64        // number of the first request that this one replaced, whose Start counts
	tries     int           // tries that the callback did not answer
	confirmed *confirmation // what the callback confirmed, which is still to be kept; nil: nothing yet
}

// addLocked adds a request. The new request replaces those that want the same, so few
// requests wait, however many come for one subscription. But a request of somebody else
// that wants something different stays. A request that the callback has confirmed stays,
// too, unless an operator removes the subscription.
//
// A subscribe request takes over the start of the first one that it replaces, because the
// hub has accepted that start. The first request stays in the inbox, so that a crash does
// not forget the start.
func (x *errand) addLocked(p *pending) {
	same := func(q *pending) bool {
		return q.Mode == p.Mode && q.Move == p.Move && q.confirmed == nil &&
			p.May(&subscription.Subscription{Secret: q.Secret, Filter: q.Filter, Every: q.Every, By: q.By}) == nil
	}
	for i, q := range x.requests {
		between := slices.ContainsFunc(x.requests[i:], func(r *pending) bool { return r.Mode == subscription.Unsubscribe })
		if q != x.running && same(q) && p.Mode == subscription.Subscribe && !p.Move && !between {
			p.Start, p.Diverged = q.Start, q.Diverged
			p.older, q.older = cmp.Or(q.older, q.Number), 0
		}
	}
	for _, q := range slices.Clone(x.requests) {
		if q == x.running || !same(q) && (p.Mode != subscription.Remove || q.Mode != subscription.Subscribe && q.Mode != subscription.Unsubscribe) {
			continue
		}
		if q.Number != p.older {
			x.shard.finishLocked(&q.Request)
		}
		x.takeLocked(q)
	}
	switch p.Mode {
	case subscription.Remove, subscription.Retry, subscription.Move, refused: // an operator must not wait for a callback, which may take minutes; nor may rights that ended
		x.requests = slices.Insert(x.requests, 0, p)
	default:
		x.requests = append(x.requests, p)
	}
	if p.Number > 0 {
		x.shard.waiting++
	}
	if x.state == idle && x.requests[0] == p {
		x.beginLocked()
	}
}

// takeLocked takes a request out.
func (x *errand) takeLocked(p *pending) {
	i := slices.Index(x.requests, p)
	x.requests = slices.Delete(x.requests, i, i+1)
	if p.Number > 0 {
		x.shard.waiting--
	}
	if p.older > 0 {
		x.shard.finishLocked(&subscription.Request{Number: p.older})
	}
}

// beginLocked lets the errand have its turn for its first request.
func (x *errand) beginLocked() {
	s := x.shard
	x.standing = proven
	switch p := x.requests[0]; p.Mode {
	case subscription.Subscribe, subscription.Unsubscribe, subscription.Remove, expired, refused: // the callback is called
		known := s.subs[x.id]
		switch {
		case p.confirmed != nil:
		case p.tries > 0:
			x.standing = doubtful
		case known != nil:
			x.standing = known.standing
		default:
			x.standing = untried
		}
	}
	s.engine.schedule.remove(&x.task)
	s.engine.slots.queue(&x.task)
}

// owner is who made the first request.
func (x *errand) owner() string { return x.requests[0].By }

// ringLocked is called when the next try is due.
func (x *errand) ringLocked() {
	if x.state == idle {
		x.beginLocked()
	}
}

// turnLocked carries out the first request.
func (x *errand) turnLocked() turn {
	x.running = x.requests[0]
	return &carrying{errand: x, pending: x.running}
}

// setFreshLocked notes whether the errand is to make a subscription.
func (x *errand) setFreshLocked(fresh bool) {
	if x.fresh == fresh {
		return
	}
	x.fresh = fresh
	by := x.shard.engine.fresh
	if fresh {
		x.host.setFresh(x.by, 1)
		by[x.set]++
		return
	}
	x.host.setFresh(x.by, -1)
	if by[x.set]--; by[x.set] == 0 {
		delete(by, x.set)
	}
}
