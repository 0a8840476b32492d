package callback

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

// How often the inboxes are looked at, and how long one look may take.
const (
	inboxEvery = 500 * time.Millisecond
	inboxTime  = time.Second
)

// Most requests of one shard that are taken from the inbox before others are carried
// out, and most that are read at once.
const (
	maxWaiting = subscription.InboxMax + subscription.InboxMax/10 + 1 // with the room of operators
	inboxPage  = 100
)

// lookIntoInboxes asks the registry for the newest request of each shard, and fetches
// those that are new: any hub may have sent them.
func (e *Engine) lookIntoInboxes(ctx context.Context) {
	st := e.lock()
	shards := make([]int, 0, len(st.shards))
	for number, s := range st.shards {
		if s.loaded && !s.leaving {
			shards = append(shards, number)
		}
	}
	st.unlock()
	if len(shards) == 0 {
		return
	}
	looking, cancel := context.WithTimeout(ctx, inboxTime)
	defer cancel()
	newest, err := e.registry.Newest(looking, shards)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.opts.Logger.Warn("callbacks: check of inboxes failed", "err", err)
	}
	st = e.lock()
	defer st.unlock()
	for i, number := range shards {
		if s := st.shards[number]; s != nil {
			s.newest = max(s.newest, newest[i])
			st.fetch(s)
		}
	}
}

// fetch starts to take requests from the inbox of a shard, if there are any and there is
// room for them. One goroutine at a time does so for a shard.
func (st *state) fetch(s *shard) {
	if !s.loaded || s.fetching || s.leaving || s.newest <= s.after || s.waiting >= maxWaiting || s.ctx.Err() != nil {
		return
	}
	s.fetching = true
	e, after, sent := s.engine, s.after, s.sent
	e.wg.Go(func() {
		requests, err := e.registry.Inbox(s.ctx, s.claim.Shard, after, inboxPage)
		if err != nil && s.ctx.Err() == nil {
			e.opts.Logger.Warn("callbacks: read of an inbox failed", "shard", s.claim.Shard, "err", err)
		}
		st := e.lock()
		defer st.unlock()
		s.fetching = false
		if s.ctx.Err() != nil || err != nil {
			return // the next look into the inboxes fetches again
		}
		for _, r := range requests {
			s.after = max(s.after, r.Number)
			if r.Mode == "" {
				e.opts.Logger.Error("callbacks: invalid request left in the inbox", "shard", s.claim.Shard, "number", r.Number)
				continue
			}
			st.addRequest(s, r)
		}
		if len(requests) == 0 {
			s.newest = s.after // the requests left the inbox meanwhile
		}
		if s.sent != sent {
			s.newest = max(s.newest, s.after+1) // a request was sent while the inbox was read
		}
		st.fetch(s)
		st.fill()
	})
}

// Modes of requests that end a subscription. The engine makes these itself: they are
// in no inbox.
const (
	expired subscription.Mode = "expired" // the lease ended unrenewed: remove the subscription, and tell the callback (denied)
	ended   subscription.Mode = "ended"   // the callback answered 410: remove the subscription
	refused subscription.Mode = "refused" // whoever made it may not follow the set any more: end it, and tell the callback (denied)

	forgotten subscription.Mode = "forgotten" // it was refused, and nobody needs to see that any more: remove what is kept of it
)

// A requestQueue has the requests about one subscription, which are carried out one at a
// time: those of an operator first, all others in the order in which they came. Its timer
// is due when the next try is.
type requestQueue struct {
	task

	// Set when the queue is made, never changed.
	id  subscription.ID
	set string
	by  string // who made the first request

	fresh    bool       // it is to make a subscription, and counts for the limits on new ones
	requests []*request // the first is the next to be carried out; an operator's may come before the running one
	running  *request   // the one of requests that has its turn; nil: none has
}

// A request is a subscription.Request that is to be carried out, with what earlier tries
// have found out. During its turn, from takeTurn to settle, the fields tries and confirmed
// belong to handling.do. Others may then read only the subscription.Request, and compare
// the request with requestQueue.running.
type request struct {
	subscription.Request
	older     uint64        // number of the first request that this one replaced, whose Start counts
	tries     int           // tries that the callback did not answer
	confirmed *confirmation // what the callback confirmed, which is still to be kept; nil: nothing yet
}

// addRequest adds a request to the queue of its subscription.
func (st *state) addRequest(s *shard, r subscription.Request) {
	id := r.ID()
	q := s.requests[id]
	if q == nil {
		q = &requestQueue{id: id, set: r.Set, by: r.By}
		q.task = task{timer: timer{of: q}, host: st.slots.host(r.Callback), shard: s}
		s.requests[id] = q
	}
	if r.Mode == subscription.Subscribe && s.subs[id] == nil {
		st.setFresh(q, true)
	}
	st.add(q, &request{Request: r})
}

// add adds a request. The new request replaces those that want the same, so few
// requests wait, however many come for one subscription. But a request of somebody else
// that wants something different stays. A request that the callback has confirmed stays,
// too, unless an operator removes the subscription.
//
// A subscribe request takes over the start of the first one that it replaces, because the
// hub has accepted that start. The first request stays in the inbox, so that a crash does
// not forget the start.
func (st *state) add(q *requestQueue, r *request) {
	same := func(o *request) bool {
		return o.Mode == r.Mode && o.Move == r.Move && o.confirmed == nil &&
			r.May(&subscription.Subscription{Terms: o.Terms, By: o.By}) == nil
	}
	for i, o := range q.requests {
		between := slices.ContainsFunc(q.requests[i:], func(o *request) bool { return o.Mode == subscription.Unsubscribe })
		if o != q.running && same(o) && r.Mode == subscription.Subscribe && !r.Move && !between {
			r.Start, r.Diverged = o.Start, o.Diverged
			r.older, o.older = cmp.Or(o.older, o.Number), 0
		}
	}
	for _, o := range slices.Clone(q.requests) {
		if o == q.running || !same(o) && (r.Mode != subscription.Remove || o.Mode != subscription.Subscribe && o.Mode != subscription.Unsubscribe) {
			continue
		}
		if o.Number != r.older {
			st.finish(q.shard, o.Number)
		}
		st.take(q, o)
	}
	switch r.Mode {
	case subscription.Remove, subscription.Retry, subscription.Move, refused: // an operator must not wait for a callback, which may take minutes; nor may rights that ended
		q.requests = slices.Insert(q.requests, 0, r)
		st.slots.cancel(&q.task) // it does not wait in the line of a subscriber either
	default:
		q.requests = append(q.requests, r)
	}
	if r.Number > 0 {
		q.shard.waiting++
	}
	if q.stage == idle && q.requests[0] == r {
		st.queueFirst(q)
	}
}

// take takes a request out of its queue.
func (st *state) take(q *requestQueue, r *request) {
	i := slices.Index(q.requests, r)
	q.requests = slices.Delete(q.requests, i, i+1)
	if r.Number > 0 {
		q.shard.waiting--
	}
	st.finish(q.shard, r.older)
}

// finish says that the request with a number is carried out and has changed nothing. It
// does nothing with 0.
func (st *state) finish(s *shard, number uint64) {
	if number > 0 {
		s.done = append(s.done, number)
		st.engine.saves.Wake()
	}
}

// queueFirst lets the first request of a queue have its turn.
func (st *state) queueFirst(q *requestQueue) {
	q.standing = proven
	switch r := q.requests[0]; r.Mode {
	case subscription.Subscribe, subscription.Unsubscribe, subscription.Remove, expired, refused: // the callback is called
		known := q.shard.subs[q.id]
		switch {
		case r.confirmed != nil:
		case r.tries > 0:
			q.standing = doubtful
		case known != nil:
			q.standing = known.standing
		default:
			q.standing = untried
		}
	}
	st.schedule.stop(&q.timer)
	st.slots.queue(&q.task, q)
}

// removeQueue forgets a queue.
func (st *state) removeQueue(q *requestQueue) {
	st.setFresh(q, false)
	st.schedule.stop(&q.timer)
	st.slots.leave(&q.task)
	delete(q.shard.requests, q.id)
}

// setFresh notes whether a queue is to make a subscription.
func (st *state) setFresh(q *requestQueue, fresh bool) {
	n := 1
	if !fresh {
		n = -1
	}
	if q.fresh != fresh {
		q.fresh = fresh
		st.counts.add(countKey{fresh: true, host: q.host.name, set: q.set, owner: q.by}, n)
	}
}

// owner is who made the first request.
func (q *requestQueue) owner() string { return q.requests[0].By }

// wake is called when the next try is due.
func (q *requestQueue) wake(st *state) {
	if q.stage == idle {
		st.queueFirst(q)
	}
}

// takeTurn carries out the first request.
func (q *requestQueue) takeTurn(*state) turn {
	q.running = q.requests[0]
	return &handling{queue: q, request: q.running}
}

// A handling is one try to carry out a request. do sets again, and settle reads it after
// that.
type handling struct {
	*request
	queue *requestQueue
	again time.Duration // how long to wait for the next try; 0: the request is carried out
}

func (h *handling) do() {
	s, r := h.queue.shard, &h.Request
	switch h.Mode {
	case subscription.Subscribe, subscription.Unsubscribe:
		h.again = s.verify(h.request)
	case subscription.Remove:
		h.again = s.end(r, "removed by the operator of the hub")
	case expired:
		h.again = s.expire(h.queue, h.request)
	case ended, forgotten:
		h.again = s.end(r, "")
	case refused:
		h.again = s.refuse(r)
	case subscription.Retry:
		h.again = s.edit(r, func(*subscription.Progress) {})
	case subscription.Move:
		h.again = s.edit(r, func(p *subscription.Progress) {
			*p = subscription.Progress{Cursor: h.Start, Diverged: h.Diverged, Gaps: p.Gaps, Last: p.Last}
		})
	}
}

// settle goes on with the first request of the queue. It may be another one than
// before: a request of an operator goes first.
func (h *handling) settle(st *state) {
	q, s := h.queue, h.queue.shard
	q.running = nil
	if q.stage == dead || s.calls.Err() != nil {
		return
	}
	overtaken := func(o *request) bool { // a removal or, for a move, a later one came, and goes first
		return o != h.request && (o.Mode == subscription.Remove || o.Mode == subscription.Move && h.Mode == subscription.Move)
	}
	if h.again > 0 && slices.ContainsFunc(q.requests, overtaken) {
		st.finish(s, h.Number)
		h.again = 0
	}
	if h.again == 0 {
		st.take(q, h.request)
	}
	switch {
	case len(q.requests) == 0:
		st.removeQueue(q)
	case q.requests[0] == h.request:
		st.wakeAt(&q.timer, time.Now().Add(h.again))
	default:
		st.queueFirst(q)
	}
	st.fetch(s)
}

// edit changes where a subscription stands, and lets it have its turn. A subscription that
// is not there is not made. edit returns what commit does.
func (s *shard) edit(r *subscription.Request, change func(*subscription.Progress)) (again time.Duration) {
	return s.commit(r, func(*state) (c subscription.Changes) {
		if known := s.subs[r.ID()]; known != nil {
			rec := known.record()
			change(&rec.Progress)
			c.Put = []subscription.Record{*rec}
		}
		return c
	}, func(st *state, c subscription.Changes) {
		for i := range c.Put {
			st.put(s, &c.Put[i], r.Mode == subscription.Move)
		}
		st.fill()
	})
}

// expire ends a subscription whose lease is over. If a request to renew the lease waits,
// it is carried out first, because it may have come in time.
func (s *shard) expire(q *requestQueue, r *request) (again time.Duration) {
	st := s.engine.lock()
	after := s.after
	st.unlock()
	newer, err := s.engine.registry.Inbox(s.ctx, s.claim.Shard, after, 1)
	if err != nil {
		return backoff.Jitter(commitRetry)
	}
	st = s.engine.lock()
	wait := len(newer) > 0
	if wait {
		s.newest = max(s.newest, newer[0].Number)
		st.fetch(s)
	} else if q.stage != dead && slices.ContainsFunc(q.requests, func(o *request) bool { return o.Mode == subscription.Subscribe }) {
		st.take(q, r)
		q.requests = append(q.requests, r)
		wait = true
	}
	st.unlock()
	if wait {
		return backoff.Jitter(commitRetry)
	}
	return s.end(&r.Request, s.engine.whyExpired(s.ctx, r.Set))
}

// end removes a subscription, or what is kept of one that has ended. Then it tells the
// callback why, unless reason is empty. It returns what commit does.
func (s *shard) end(r *subscription.Request, reason string) (again time.Duration) {
	id := r.ID()
	var about *subscription.Subscription // of what was removed
	again = s.commit(r, func(*state) (c subscription.Changes) {
		remove := r.Mode == subscription.Remove // also one that only the store knows: its answer was lost
		switch known := s.subs[id]; {
		case known != nil: // if it is not over, it was renewed in time, or made anew
			remove = remove || known.over != "" && r.Mode != forgotten
		case s.ended[id] != nil:
			remove = remove || r.Mode == forgotten
		}
		if remove {
			c.Delete = []subscription.ID{id}
		}
		return c
	}, func(st *state, c subscription.Changes) {
		if len(c.Delete) == 0 {
			return
		}
		st.forgetEnded(s, id)
		if known := s.subs[id]; known != nil {
			about = known.about
			st.removeEnded(known, r.Mode, string(r.Mode))
		}
	})
	if about != nil && reason != "" {
		s.deny(about, "", reason)
	}
	return again
}
