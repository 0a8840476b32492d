package callback

import (
	"cmp"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A sub is a subscription that this hub works on: a point in a log and a wake-up.
//
// Its pool says what it waits for:
//
//	of audience    for what is published next and passes its filter
//	topic.unsure   for whatever is published next, or for the topic to be ready
//	topic.failing  for its next try after a failure; a new change may bring that forward
//	topic.behind   for its turn, for the end of its turn, or, if it left failing, for earliest
//	none           for the end of the interval that it asked for; or for nothing: over says why it ends
//
// During its turn, a delivery works with a copy of the sub's state, and delivery.settle
// brings the result back.
type sub struct {
	task

	// Set when the sub is made, never changed.
	id    subscription.ID
	topic *topic

	// What is subscribed to.
	about    *subscription.Subscription // replaced, but never changed: deliveries share it
	audience *audience                  // of the topic

	// Where the sub stands.
	subscription.Progress
	until    feed.Cursor // see point
	number   uint64      // see point
	rightEnd time.Time   // when the right of whoever made it ends; zero: not known
	first    int64       // datetime of the entry behind cursor; 0: not known
	moves    int         // how often the sub was made to go on elsewhere: a delivery that began before moves nothing
	batch    batchSize

	// With about.Every, changes are delivered in bursts.
	burst uint64    // position up to which the present one goes; 0: there is none
	quiet time.Time // the next one begins no sooner

	// What the sub waits for.
	pool     *pool             // of topic, or of audience
	index    int               // in pool
	running  *delivery         // under way; nil: none
	earliest time.Time         // a new change may bring the next try forward to this time
	over     subscription.Mode // why the sub ends: expired, ended or refused; empty: it does not end

	// Which lists of the shard the sub is in.
	dirty   bool
	skipped bool

	allowed bool // this hub knows that whoever made it had the right
}

// owner is who made the subscription.
func (s *sub) owner() string { return s.about.By }

// record returns the sub as it is to be kept.
func (s *sub) record() *subscription.Record {
	return &subscription.Record{Subscription: *s.about, Progress: s.kept()}
}

// kept returns the progress of the sub as it is to be kept.
func (s *sub) kept() subscription.Progress {
	s.pass()
	return s.Progress
}

// withAttempt returns the newest attempts, oldest first, with one more. It changes nothing of
// last, which a Commit may be reading, and has no spare room: most subscriptions have few.
func withAttempt(last []subscription.Attempt, a subscription.Attempt) []subscription.Attempt {
	last = last[max(0, len(last)+1-subscription.MaxAttempts):]
	all := make([]subscription.Attempt, len(last)+1)
	copy(all, last)
	all[len(last)] = a
	return all
}

// A pool holds the subs of a topic that wait for the same thing.
type pool []*sub

func (p *pool) add(s *sub) {
	s.pool, s.index = p, len(*p)
	*p = append(*p, s)
}

// take empties the pool and returns the subs that were in it.
func (p *pool) take() []*sub {
	all := slices.Clone(*p)
	for _, s := range all {
		s.leave()
	}
	return all
}

// leave takes a sub out of the pool that it is in.
func (s *sub) leave() {
	if s.pool == nil {
		return
	}
	s.pass()
	all := *s.pool
	n := len(all) - 1
	all[s.index] = all[n]
	all[s.index].index = s.index
	all[n] = nil
	*s.pool, s.pool = all[:n], nil
}

// addSub takes a subscription in.
func (st *state) addSub(s *shard, r *subscription.Record) *sub {
	x := &sub{id: r.ID(), Progress: r.Progress, topic: st.topic(r.Set)}
	x.task = task{timer: timer{of: x}, host: st.slots.host(r.Callback), shard: s, standing: untried}
	st.setAbout(x, &r.Subscription)
	st.forgetEnded(s, x.id)
	x.uncheck()
	if x.Failed > 0 {
		x.topic.failed++
	}
	s.subs[x.id] = x
	if q := s.requests[x.id]; q != nil {
		st.setFresh(q, false)
	}
	return x
}

// removeSub forgets a subscription.
func (st *state) removeSub(x *sub) {
	if x.running != nil {
		x.running.end()
	}
	x.leave()
	x.setFailed(0)
	st.schedule.stop(&x.timer)
	st.slots.leave(&x.task)
	st.leaveTopic(x.topic)
	st.setAbout(x, nil)
	delete(x.shard.subs, x.id)
}

// removeEnded forgets a subscription that has ended.
func (st *state) removeEnded(x *sub, mode subscription.Mode, why string) {
	st.engine.metrics.ended[mode].Inc()
	st.engine.opts.Logger.Info("callbacks: subscription ended", "id", x.id, "set", x.about.Set, "host", x.host.name, "why", why)
	st.removeSub(x)
}

// setAbout replaces what a sub is about, its audience, and what is counted of it. nil: the sub is
// removed.
func (st *state) setAbout(s *sub, about *subscription.Subscription) {
	waits := s.waits()
	if s.about != nil {
		st.countSub(s, -1)
		if waits {
			s.leave()
		}
		s.topic.audiences.Leave(s.audience)
		s.about, s.audience = nil, nil
	}
	if about != nil {
		s.audience = s.topic.audiences.Join(about.Filter)
		if waits {
			s.audience.Members.add(s)
		}
		shared := *about
		shared.Set, shared.Filter = s.topic.set, s.audience.Filter // of all subs that have the same
		s.about = &shared
		st.countSub(s, 1)
	}
}

// countSub counts n more of a sub: by who made it, and by what its secrets wait for.
func (st *state) countSub(s *sub, n int) {
	st.counts.add(countKey{host: s.host.name, set: s.topic.set, owner: s.about.By}, n)
	if s.about.Stale {
		st.stale += n
	}
	if key := s.about.Sealed; key != "" {
		st.countMissing(key, n)
	}
}

// put takes into memory what was kept of a subscription, and lets the sub have its turn:
// it was just made, renewed or moved.
func (st *state) put(s *shard, r *subscription.Record, moved bool) {
	known := s.subs[r.ID()]
	if known == nil {
		st.rest(st.addSub(s, r))
		return
	}
	if known.stage == idle {
		known.leave() // before it stands elsewhere
	}
	known.over = "" // a renewal came in time
	st.setAbout(known, &r.Subscription)
	known.batch, known.burst, known.quiet = batchSize{}, 0, time.Time{}
	known.rightEnd = time.Time{} // looked up anew: an operator may have moved it
	known.uncheck()
	if moved {
		known.moves++
		known.setFailed(r.Failed)
		known.Progress, known.until, known.number, known.first = r.Progress, feed.Cursor{}, 0, 0
	}
	known.Next, known.earliest = time.Time{}, time.Time{}
	if known.stage == idle {
		st.queue(known)
	}
}

// rest decides what a sub that is idle waits for.
func (st *state) rest(s *sub) {
	if s.stage != idle {
		return
	}
	now := time.Now()
	s.leave()
	switch {
	case s.over != "":
		st.schedule.stop(&s.timer)
	case !s.leaseEnd().After(now):
		st.end(s, expired)
	case s.Next.After(now):
		s.topic.failing.add(s)
		st.wakeAt(&s.timer, earlier(s.Next, s.leaseEnd()))
	case !s.topic.ready, s.Cursor == s.topic.head:
		st.await(s)
	case s.quiet.After(now):
		st.wakeAt(&s.timer, earlier(s.quiet, s.leaseEnd()))
	default:
		st.queue(s)
	}
}

// await lets an idle sub wait for what is published next.
func (st *state) await(s *sub) {
	s.leave()
	if s.topic.ready && s.Cursor == s.topic.head {
		s.audience.Members.add(s)
	} else {
		s.topic.unsure.add(s)
	}
	st.wakeAt(&s.timer, s.leaseEnd())
}

// queue lets a sub have its turn as soon as it may.
func (st *state) queue(s *sub) {
	s.leave()
	s.topic.behind.add(s)
	st.wakeAt(&s.timer, s.leaseEnd())
	st.slots.queue(&s.task, s)
}

// wake is called when the lease is over, or the wait after a failure; too early if the right of
// whoever made the sub was to end, and does not end any more.
func (s *sub) wake(st *state) {
	now := time.Now()
	switch {
	case s.stage == running: // settle finds out what is next
	case !s.leaseEnd().After(now):
		st.slots.cancel(&s.task)
		st.rest(s)
	case s.stage == idle && (s.quiet.After(now) || s.earliest.After(now)):
		st.rest(s)
	case s.stage == idle:
		s.Next = time.Time{}
		st.queue(s)
	}
}

// end begins to remove a sub, to which nothing is delivered any more.
func (st *state) end(s *sub, why subscription.Mode) {
	s.over = why
	s.leave()
	st.schedule.stop(&s.timer)
	st.addRequest(s.shard, subscription.Request{Mode: why, Set: s.about.Set, Form: s.about.Form, Callback: s.about.Callback})
}

// markDirty has a sub saved soon.
func (st *state) markDirty(s *sub) {
	if !s.dirty && s.stage != dead {
		s.dirty = true
		s.shard.dirty = append(s.shard.dirty, s)
		st.engine.saves.Wake()
	}
}

// markSkipped has a sub saved some time: a hub that begins from the point that was saved
// leaves the same entries out again.
func (s *sub) markSkipped() {
	if !s.dirty && !s.skipped {
		s.skipped = true
		s.shard.skipped = append(s.shard.skipped, s)
	}
}

// waits reports whether a sub is at the head of its topic, and waits for what its filter wants.
func (s *sub) waits() bool { return s.audience != nil && s.pool == &s.audience.Members }

// pass moves a sub that waits over what its filter has left out since. It has to be called before
// progress is read, or the sub leaves the pool.
func (s *sub) pass() {
	if !s.waits() || s.Cursor == s.topic.head {
		return
	}
	s.From, s.Cursor = cmp.Or(s.From, s.Cursor), s.topic.head
	if s.From.IsZero() {
		s.From.Micros = s.topic.first - 1 // as builder.done does
	}
	s.markSkipped()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
