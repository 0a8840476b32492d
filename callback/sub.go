package callback

import (
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A sub is a subscription that this hub works on: a point in a log and a wake-up.
//
// Its pool says what it waits for:
//
//	topic.idle     for what is published next
//	topic.failing  for its next try after a failure; a new change may bring that forward
//	topic.quiet    for the end of the interval that it asked for
//	topic.behind   for its turn, for the end of its turn, or, if it left failing, for earliest
//	none           for nothing: over says why it ends
//
// During its turn, a delivery works with a copy of the sub's state, and
// delivery.settleLocked brings the result back.
type sub struct {
	task

	// Set when the sub is made, never changed.
	id    subscription.ID
	topic *topic

	// What is subscribed to; guarded by Engine.mu.
	about  *subscription.Subscription // replaced, but never changed: deliveries share it
	filter *filter

	// Where the sub stands; guarded by Engine.mu.
	progress
	allowed  bool  // this hub knows that whoever made it had the right
	first    int64 // datetime of the entry behind cursor; 0: not known
	moves    int   // how often the sub was made to go on elsewhere: a delivery that began before moves nothing
	appetite appetite

	// With about.Every, changes are delivered in bursts; guarded by Engine.mu.
	burst uint64    // position up to which the present one goes; 0: there is none
	quiet time.Time // the next one begins no sooner

	// What the sub waits for; guarded by Engine.mu.
	pool     *pool             // of topic
	at       int               // index in pool
	running  *delivery         // under way; nil: none
	earliest time.Time         // a new change may bring the next try forward to this time
	over     subscription.Mode // why the sub ends: expired, ended or refused; empty: it does not end

	// Which lists of the shard the sub is in; guarded by Engine.mu.
	dirty bool
	moved bool
}

// restLocked decides what a sub that is idle waits for.
func (s *sub) restLocked() {
	if s.state != idle {
		return
	}
	e := s.shard.engine
	now := time.Now()
	s.leaveLocked()
	switch {
	case s.over != "":
		e.schedule.remove(&s.task)
	case !s.about.LeaseEnd.After(now):
		s.endLocked(expired)
	case s.next.After(now):
		s.topic.failing.add(s)
		e.remindLocked(&s.task, earlier(s.next, s.about.LeaseEnd))
	case !s.topic.ready, s.cursor == s.topic.head:
		s.waitLocked()
	case s.quiet.After(now):
		s.topic.quiet.add(s)
		e.remindLocked(&s.task, earlier(s.quiet, s.about.LeaseEnd))
	default:
		e.queueLocked(s)
	}
}

// calmLocked ends a burst of deliveries that has reached what there was when it began. What
// comes meanwhile is delivered together.
func (s *sub) calmLocked() {
	if s.about.Every > 0 && s.cursor.Position >= s.burst {
		s.burst, s.quiet = 0, time.Now().Add(s.about.Every)
	}
}

// owner is who made the subscription.
func (s *sub) owner() string { return s.about.By }

// waitLocked lets an idle sub wait for what is published next.
func (s *sub) waitLocked() {
	s.leaveLocked()
	s.topic.idle.add(s)
	s.shard.engine.remindLocked(&s.task, s.about.LeaseEnd)
}

// queueLocked lets a sub have its turn as soon as it may.
func (e *Engine) queueLocked(s *sub) {
	s.leaveLocked()
	s.topic.behind.add(s)
	e.remindLocked(&s.task, s.about.LeaseEnd)
	e.slots.queue(&s.task)
}

// retryLocked lets a sub have its turn, whatever it waits for.
func (s *sub) retryLocked() {
	s.next, s.earliest = time.Time{}, time.Time{}
	if s.state == idle && s.over == "" {
		s.shard.engine.queueLocked(s)
	}
}

// ringLocked is called when the lease is over, or the wait after a failure.
func (s *sub) ringLocked() {
	switch {
	case s.state == running: // settleLocked finds out what is next
	case !s.about.LeaseEnd.After(time.Now()):
		s.shard.engine.slots.cancel(&s.task)
		s.restLocked()
	case s.state == idle:
		s.next = time.Time{}
		s.shard.engine.queueLocked(s)
	}
}

// endLocked begins to remove a sub, to which nothing is delivered any more.
func (s *sub) endLocked(why subscription.Mode) {
	s.over = why
	s.leaveLocked()
	s.shard.engine.schedule.remove(&s.task)
	s.shard.carryLocked(subscription.Request{Mode: why, Set: s.about.Set, Callback: s.about.Callback})
}

// soilLocked says that a sub has to be saved.
func (s *sub) soilLocked() {
	if !s.dirty && s.state != dead {
		s.dirty = true
		s.shard.dirty = append(s.shard.dirty, s)
		s.shard.engine.saver.want()
	}
}

// skipLocked moves an idle sub over new entries that its filter leaves out, which
// begin at a datetime. The new point is saved only now and then: a hub that begins
// from the point that was saved leaves the same entries out again.
func (s *sub) skipLocked(begins int64, to feed.Cursor) {
	s.from, s.cursor = s.begin(), to
	if s.from.IsZero() {
		s.from.Micros = begins - 1 // as builder.done does
	}
	if !s.moved {
		s.moved = true
		s.shard.moved = append(s.shard.moved, s)
	}
}

// recordLocked returns the sub as it is to be kept.
func (s *sub) recordLocked() *subscription.Record {
	return &subscription.Record{Subscription: *s.about, Progress: s.unpack()}
}

// putLocked takes into memory what was kept of a subscription, and lets the sub have
// its turn: it was just made, renewed or moved.
func (s *shard) putLocked(r *subscription.Record, moved bool) {
	known := s.subs[r.ID()]
	if known == nil {
		s.addLocked(r).restLocked()
		return
	}
	e := s.engine
	known.over = "" // a renewal came in time
	renewed := r.Subscription
	f := e.filters.of(r.Filter)
	e.filters.drop(known.filter)
	known.filter = f
	renewed.Set, renewed.Filter = known.topic.set, f.Filter
	known.setAboutLocked(&renewed)
	known.appetite, known.burst, known.quiet = appetite{}, 0, time.Time{}
	s.uncheckLocked(known)
	if moved {
		known.moves++
		known.setFailedLocked(0)
		known.progress, known.first = newProgress(&r.Progress), 0
	}
	known.retryLocked()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
