package callback

import (
	"time"

	"github.com/rshub/rshub/changelog"
)

// A sub is a subscription that this hub works on: a place in a log and a
// wake-up. Unless it says otherwise all of it is guarded by Engine.mu.
type sub struct {
	task
	id    ID
	topic *topic
	pool  *pool // of topic, that it waits in; nil: it waits in none
	at    int   // there

	about   *Subscription // replaced, never changed
	filter  *filter
	running *delivery

	progress
	first    int64     // datetime of the entry behind cursor; 0: not known
	earliest time.Time // a new change may bring the next try forward to then
	moves    int       // how often it was made to go on elsewhere: what was begun before does not count
	limit    int       // changes in a delivery, as few as the callback takes
	over     Mode      // why it ends: expired or ended; empty: it does not
	dirty    bool      // it is in shard.dirty
	moved    bool      // it is in shard.moved
}

// progress is a Progress as it is worked with.
type progress struct {
	place
	gap    changelog.Cursor
	gaps   int
	failed int
	next   time.Time
	last   attempts
}

func newProgress(p *Progress) progress {
	return progress{
		place: place{cursor: p.Cursor, from: p.From, diverged: p.Diverged},
		gap:   p.Gap, gaps: p.Gaps, failed: p.Failed, next: p.Next, last: packAll(p.Last),
	}
}

func (p *progress) unpack() Progress {
	return Progress{
		Cursor: p.cursor, From: p.from, Diverged: p.diverged,
		Gap: p.gap, Gaps: p.gaps, Failed: p.failed, Next: p.next, Last: p.last.unpack(),
	}
}

// A pool holds the subs of a topic that wait for the same.
type pool []*sub

func (p *pool) add(s *sub) {
	s.pool, s.at = p, len(*p)
	*p = append(*p, s)
}

// take empties the pool and returns who was in it.
func (p *pool) take() []*sub {
	all := *p
	*p = nil
	for _, s := range all {
		s.pool = nil
	}
	return all
}

// leave takes a sub out of the pool that it is in.
func (s *sub) leave() {
	if s.pool == nil {
		return
	}
	all := *s.pool
	n := len(all) - 1
	all[s.at] = all[n]
	all[s.at].at = s.at
	all[n] = nil
	*s.pool, s.pool = all[:n], nil
}

// rest decides what a sub that is idle waits for.
func (s *sub) rest() {
	if s.state != idle {
		return
	}
	e := s.shard.engine
	now := time.Now()
	s.leave()
	switch {
	case s.over != "":
		e.schedule.remove(&s.task)
	case !s.about.LeaseEnd.After(now):
		s.end(expired)
	case s.next.After(now):
		s.topic.failing.add(s)
		e.remind(&s.task, earlier(s.next, s.about.LeaseEnd))
	case !s.topic.ready, s.cursor == s.topic.head:
		s.wait()
	default:
		e.queue(s)
	}
}

// wait lets an idle sub wait for what is published next.
func (s *sub) wait() {
	s.leave()
	if len(s.topic.behind) == 0 {
		s.topic.window = window{} // nobody needs it: memory is for sets with somebody behind
		s.topic.made.Store(nil)
	}
	s.topic.idle.add(s)
	s.shard.engine.remind(&s.task, s.about.LeaseEnd)
}

// queue lets a sub have its turn as soon as it may.
func (e *Engine) queue(s *sub) {
	s.leave()
	s.topic.behind.add(s)
	e.remind(&s.task, s.about.LeaseEnd)
	e.places.queue(&s.task)
}

// retry lets a sub have its turn, whatever it waits for.
func (s *sub) retry() {
	s.next, s.earliest = time.Time{}, time.Time{}
	if s.state == idle && s.over == "" {
		s.shard.engine.queue(s)
	}
}

// ring is called when a lease or the wait after a failure is over.
func (s *sub) ring() {
	switch {
	case s.state == running: // what follows its turn sees to it
	case !s.about.LeaseEnd.After(time.Now()):
		s.state = idle
		s.rest()
	case s.state == idle:
		s.next = time.Time{}
		s.shard.engine.queue(s)
	}
}

// end begins to remove a sub: nothing is delivered any more.
func (s *sub) end(why Mode) {
	s.over = why
	s.leave()
	s.shard.engine.schedule.remove(&s.task)
	s.shard.carry(Request{Mode: why, Set: s.about.Set, Callback: s.about.Callback})
}

// soil says that a sub has to be saved.
func (s *sub) soil() {
	if !s.dirty && s.state != dead {
		s.dirty = true
		s.shard.dirty = append(s.shard.dirty, s)
		s.shard.engine.saver.want()
	}
}

// skip moves an idle sub over what its filter leaves out, which begins at a
// datetime. That is saved only now and then: whoever has to begin from what was
// saved leaves it out again.
func (s *sub) skip(begins int64, to changelog.Cursor) {
	s.from, s.cursor = s.begin(), to
	if s.from.IsZero() {
		s.from.Micros = begins - 1 // as cut does
	}
	if !s.moved {
		s.moved = true
		s.shard.moved = append(s.shard.moved, s)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
