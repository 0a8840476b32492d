package callback

import (
	"cmp"
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A sub is a subscription in a shard of this hub, or a callback with requests that may make one. It is
// a position in a log and a list of commands, and needs no goroutine while it waits.
//
// At most one goroutine at a time, the owner, executes what happens to a sub: see work. All others
// only leave something to do and wake the sub.
type sub struct {
	// Immutable.
	id    subscription.ID
	shard *shard
	host  *host

	// Guarded by shard.mu.
	stage     stage
	commands  commandList
	cancel    context.CancelFunc // cancels the call of the owner; nil if there is none
	over      subscription.Mode  // why the subscription ends: expired, ended, refused or forgotten; empty if it does not
	rightEnd  time.Time          // when the right of its maker ends, which ends the lease, too; zero if unknown
	allowed   bool               // whether its maker had the right when that was last checked
	fresh     *countKey          // what it is counted under as a subscription to be made; nil if it is not counted
	due       time.Time          // see schedule
	scheduled int                // index in shard.timers, from 1; zero if there is no timer
	entry     *queueEntry        // guarded by readyQueue.mu instead

	// Guarded by topic.mu.
	pool    *pool       // pool that contains the sub, or nil
	index   int         // index in pool
	passed  feed.Cursor // Cursor, or the head up to which the filter matched nothing while the sub waited
	since   int64       // datetime of the first entry after passed; zero if unknown
	failing bool        // whether it is counted in topic.failing

	// Written by the owner with shard.mu held. If there is no owner, by others with shard.mu held.
	about    *subscription.Subscription // shared with calls, so it is never modified; nil if there is no subscription
	topic    *topic                     // nil unless the subscription is active
	audience *audience                  // in topic

	// Used by the owner. If there is no owner, by others with shard.mu held.
	progress
	ahead    int64       // datetime of the first entry after Cursor; zero if unknown
	until    feed.Cursor // see point
	number   uint64      // see point
	standing standing
	batch    batchSize
	burst    uint64      // with about.Every, position of the last entry of the current burst; zero if there is none
	quiet    time.Time   // with about.Every, start of the next burst
	earliest time.Time   // after a failure, the earliest time of an attempt for a new change; Next is the latest
	retry    time.Time   // next attempt to end the subscription
	saved    feed.Cursor // cursor that the registry has or will have soon
}

// A stage says who may change a sub.
type stage uint8

const (
	idle   stage = iota // waits for a wakeup
	queued              // waits in the ready queue for a worker
	owned               // has an owner
	dead                // has been forgotten
)

// A task is what the owner of a sub does next.
type task struct {
	do      action
	command *command    // with execute
	head    feed.Cursor // with deliver, head of the topic
	ctx     context.Context
	end     context.CancelFunc
}

// An action is a kind of task.
type action uint8

const (
	park    action = iota // nothing: the caller does not own the sub any longer
	execute               // execute a command
	finish                // end the subscription
	deliver               // deliver changes
)

// slice is the time after which an owner returns a sub that has more to do to the ready queue.
const slice = 100 * time.Millisecond

// Reasons why the engine ends a subscription itself.
const (
	expired   subscription.Mode = "expired"   // the lease ended
	ended     subscription.Mode = "ended"     // the callback answered 410
	refused   subscription.Mode = "refused"   // its maker may no longer follow the set
	forgotten subscription.Mode = "forgotten" // it was refused, and the record is no longer needed
)

// active reports whether changes are delivered to the subscription.
func (s *sub) active() bool { return s.about != nil && s.about.Ended.IsZero() }

// wakeLocked puts an idle sub in the ready queue. The caller holds shard.mu.
func (s *sub) wakeLocked() {
	if s.stage == idle && !s.shard.leaving {
		s.stage = queued
		name, of := s.turnLocked(time.Now())
		s.shard.engine.queue.push(s, name, of)
		s.shard.engine.dispatch()
	}
}

// wake is wakeLocked for callers that do not hold shard.mu.
func (s *sub) wake() {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	s.wakeLocked()
}

// turnLocked returns the subscriber that a sub waits for in the ready queue, and the standing of its
// callback there. An operator is a subscriber without a name.
func (s *sub) turnLocked(now time.Time) (subscriber string, of standing) {
	of = s.standing
	c := s.commands.next()
	if s.about != nil && (c == nil || c.due.After(now)) {
		return s.about.By, of
	}
	switch {
	case c.attempts > 0:
		of = doubtful
	case c.confirmed != nil, c.Mode == subscription.Retry, c.Mode == subscription.Move: // no call
		of = proven
	}
	switch {
	case c.Mode.ByOperator():
		return "", of
	case s.active():
		return s.about.By, of
	}
	return c.By, of
}

// work owns a sub, which came from the ready queue, until it has nothing to do or its slice is over.
func (s *sub) work() {
	if !s.enter() {
		return
	}
	start := time.Now()
	var read feed.Cursor // head of the topic when a delivery found nothing
	nothing := false
	for {
		t := s.next(time.Since(start) > slice, nothing, read)
		nothing = false
		switch t.do {
		case park:
			return
		case execute:
			s.execute(t.ctx, t.command)
		case finish:
			s.finish(t.ctx)
		case deliver:
			nothing, read = s.deliver(t.ctx), t.head
		}
		t.end()
	}
}

// enter makes the caller the owner of a sub, and reports whether it did.
func (s *sub) enter() bool {
	sh := s.shard
	sh.mu.Lock()
	switch {
	case sh.ctx.Err() != nil:
		s.stage = dead
		sh.mu.Unlock()
		s.forget()
		return false
	case sh.leaving:
		s.stage = idle
		sh.mu.Unlock()
		return false
	}
	s.stage = owned
	sh.owned++
	sh.mu.Unlock()
	if t := s.topic; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		s.catchUp(&t.behind)
	}
	return true
}

// catchUp moves a sub to another pool, and its cursor past what its filter left out while it waited in
// the pool before. The caller holds topic.mu, and shard.mu if the sub has no owner.
func (s *sub) catchUp(to *pool) {
	s.moveTo(to)
	s.ahead = s.since
	if s.passed != s.Cursor {
		s.From = cmp.Or(s.From, s.Cursor)
		if s.From.IsZero() {
			s.From.Micros = s.topic.first - 1 // the zero cursor would mean that nothing was left out
		}
		s.Cursor = s.passed
	}
}

// next returns the next task of the owner. If there is none, or the owner has to yield, the caller no
// longer owns the sub. nothing means that a delivery found nothing when read was the head of the topic.
func (s *sub) next(yield, nothing bool, read feed.Cursor) task {
	t, forget := s.nextOrForget(yield, nothing, read)
	if forget {
		s.forget()
	}
	return t
}

func (s *sub) nextOrForget(yield, nothing bool, read feed.Cursor) (_ task, forget bool) {
	if t := s.topic; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.update(s)
	}
	sh := s.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.cancel = nil
	do, wake, to := s.plan(time.Now(), nothing, read)
	switch {
	case sh.ctx.Err() != nil, do == park && s.about == nil && len(s.commands) == 0:
		s.stage, forget = dead, true
		sh.timers.remove(s)
		delete(sh.subs, s.id)
	case sh.leaving:
		s.stage = idle
	case do == park:
		s.stage = idle
		s.moveTo(to)
		sh.setTimer(s, wake)
	case yield:
		s.stage = idle
		s.wakeLocked()
	default:
		return s.begin(do), false
	}
	sh.leaveLocked()
	return task{}, forget
}

// begin returns a task for the owner. The caller holds topic.mu and shard.mu.
func (s *sub) begin(do action) task {
	t := task{do: do}
	t.ctx, t.end = context.WithCancel(s.shard.calls)
	s.cancel = t.end
	switch do {
	case execute:
		t.command = s.commands.next()
		s.commands.remove(t.command)
	case deliver:
		t.head = s.topic.head
	}
	return t
}

// plan decides what to do with a sub. If that is nothing now, it returns when to wake the sub, or zero,
// and in which pool it waits, or nil. The caller holds topic.mu and shard.mu.
func (s *sub) plan(now time.Time, nothing bool, read feed.Cursor) (do action, wake time.Time, to *pool) {
	c := s.commands.next()
	if c != nil && s.over != refused && s.over != ended {
		if !c.due.After(now) {
			return execute, now, nil
		}
		wake = c.due
	}
	if s.about == nil {
		return park, wake, nil
	}
	if s.over == "" && !s.leaseEnd().After(now) {
		if s.over = expired; !s.active() {
			s.over = forgotten
		}
	}
	switch {
	case s.over == "":
		wake = earlier(wake, s.leaseEnd())
	case s.over == expired && s.commands.contains(subscription.Subscribe): // it may be renewed
		return park, wake, nil
	case s.retry.After(now):
		return park, earlier(wake, s.retry), nil
	default:
		return finish, now, nil
	}
	if !s.active() {
		return park, wake, nil
	}
	switch t := s.topic; {
	case s.Next.After(now):
		return park, earlier(wake, s.Next), &t.failed
	case t.ready && s.Cursor == t.head:
		return park, wake, &s.audience.Members
	case !t.ready:
		return park, wake, &t.unsure
	case nothing && read == t.head:
		if s.Cursor.Position < t.head.Position { // the follower is late
			wake = earlier(wake, now.Add(memoryRetry))
		}
		return park, wake, &t.unsure
	case s.quiet.After(now):
		return park, earlier(wake, s.quiet), nil
	}
	return deliver, now, nil
}

// leaseEnd returns the end of the lease, or of the right of its maker if that is earlier.
func (s *sub) leaseEnd() time.Time { return earlier(s.rightEnd, s.about.LeaseEnd) }

// earlier returns the earlier of two times. A zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// hasten brings the next attempt of a failing sub forward, because a new change came.
func (s *sub) hasten() {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.stage != idle || s.over != "" || !s.earliest.Before(s.Next) {
		return
	}
	s.Next = s.earliest
	if s.Next.After(time.Now()) {
		s.shard.setTimer(s, earlier(s.due, s.Next))
	} else {
		s.wakeLocked()
	}
}

// adopt makes r the state of a sub: its subscription was just made, renewed or moved, or read from the
// registry. The caller is the owner.
func (s *sub) adopt(r *subscription.Record) {
	e := s.shard.engine
	if s.topic == nil {
		t := e.topic(r.Set)
		s.shard.mu.Lock()
		s.topic = t
		s.shard.mu.Unlock()
	}
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	s.setFreshLocked(nil)
	before := s.audience
	s.audience = t.audiences.Join(r.Filter)
	if before != nil {
		e.counts.addSub(s, -1)
		t.audiences.Leave(before)
	} else {
		t.subs++
		s.moveTo(&t.behind)
	}
	about := r.Subscription
	about.Set, about.Filter = t.set, s.audience.Filter // shared by all subs that have the same
	s.about = &about
	e.counts.addSub(s, 1)
	if before != s.audience || s.Cursor != r.Cursor || s.From != r.From || s.Diverged != r.Diverged {
		s.ahead, s.until, s.number = 0, feed.Cursor{}, 0 // the next cut is another one
	}
	s.Progress = r.Progress
	s.history, s.Last = newHistory(r.Last), nil
	if s.over != refused {
		s.over = ""
	}
	s.batch, s.burst, s.quiet, s.earliest, s.rightEnd = batchSize{}, 0, time.Time{}, r.Next, time.Time{}
	s.saved = s.Cursor
	s.shard.unchecked = append(s.shard.unchecked, s)
	t.update(s)
}

// retire makes a sub one without a subscription, or with one that has ended. The caller is the owner.
func (s *sub) retire(about *subscription.Subscription) {
	if t := s.topic; t != nil {
		s.leaveTopic()
	}
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	s.about, s.over, s.rightEnd, s.allowed = about, "", time.Time{}, false
	s.Progress, s.history, s.standing = subscription.Progress{}, nil, untried
	s.until, s.number = feed.Cursor{}, 0
}

// leaveTopic removes a sub from its topic.
func (s *sub) leaveTopic() {
	e, t := s.shard.engine, s.topic
	t.mu.Lock()
	s.Failed = 0
	t.update(s)
	s.moveTo(nil)
	t.audiences.Leave(s.audience)
	t.subs--
	t.mu.Unlock()
	e.counts.addSub(s, -1)
	s.shard.mu.Lock()
	s.topic, s.audience = nil, nil
	s.shard.mu.Unlock()
	e.releaseTopic(t)
}

// forget removes what the engine has of a dead sub outside its shard.
func (s *sub) forget() {
	s.shard.mu.Lock()
	s.setFreshLocked(nil)
	s.shard.mu.Unlock()
	if s.topic != nil {
		s.leaveTopic()
	}
	s.shard.engine.queue.leaveHost(s.host)
}

// setFreshLocked sets what a sub is counted under as a subscription to be made. The caller holds
// shard.mu.
func (s *sub) setFreshLocked(k *countKey) {
	if s.fresh != nil {
		s.shard.engine.counts.add(*s.fresh, -1)
	}
	if s.fresh = k; k != nil {
		s.shard.engine.counts.add(*k, 1)
	}
}

// record returns the subscription as the registry is to store it.
func (s *sub) record() subscription.Record {
	return subscription.Record{Subscription: *s.about, Progress: s.stored()}
}

// save has the progress stored soon.
func (s *sub) save() {
	s.saved = s.Cursor
	s.shard.writer.saveProgress(s.id, s.progress)
}
