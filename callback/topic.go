package callback

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A Follower has the logs of sets, as hub.Hub does. All who follow a set share its batches, so
// what is delivered is read and encoded once for all.
type Follower interface {
	// Follow yields the batches of a set that follow a cursor, and waits for more until ctx
	// is done.
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]

	// Next returns what Follow would yield first, or nothing if nothing follows by now. Of what
	// it has to read from the log, it returns at most so many entries, or an error after half a
	// minute: who asks has a slot meanwhile.
	Next(ctx context.Context, set string, after feed.Cursor, most int) ([]*feed.Batch, error)
}

// A Log is the part of changelog.Log that says where the log of a set begins and ends.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
}

// A topic is a set that has subscriptions on this hub. It is followed once for all of them:
// what comes wakes them. Each then reads what is behind its own cursor, without the mutex.
type topic struct {
	// Set when the topic is made, never changed.
	set    string
	cancel context.CancelFunc // ends follow

	subs   int         // subs of this topic, in a pool or in none
	failed int         // those whose last attempt failed
	ready  bool        // head is known
	head   feed.Cursor // of the entries that came
	first  int64       // datetime of the first entry that came, if the set was not made before

	audiences feed.Audiences[pool] // all subs, by their filters; the pools have those that are at the head, and wait for what is new
	unsure    pool                 // subs that wait for the topic to be ready, or for whatever comes
	failing   pool                 // subs that wait after a failure
	behind    pool                 // subs that have a turn, or wait for one
}

// An audience is the subs of a topic that have the same filter. A publish that its filter leaves
// out costs nothing: subs of its pool are at the head without being moved. See sub.pass.
type audience = feed.Audience[pool]

// topic returns the topic of a set, which gets one more sub.
func (st *state) topic(set string) *topic {
	t, e := st.topics[set], st.engine
	if t == nil {
		ctx, cancel := context.WithCancel(e.ctx)
		t = &topic{set: set, cancel: cancel}
		st.topics[set] = t
		e.wg.Go(func() { e.follow(ctx, t) })
	}
	t.subs++
	return t
}

// leaveTopic takes a sub from a topic. A topic without subs is forgotten.
func (st *state) leaveTopic(t *topic) {
	if t.subs--; t.subs == 0 {
		t.cancel()
		delete(st.topics, t.set)
	}
}

// follow keeps a topic up to date until ctx is done. It waits for a set that is
// gone, or not made yet.
func (e *Engine) follow(ctx context.Context, t *topic) {
	for failures := 0; ctx.Err() == nil; failures++ {
		if failures > 0 && !backoff.Wait(ctx, backoff.Exponential(time.Second, 5*time.Second, failures-1)) {
			return
		}
		state, err := e.log.State(ctx, t.set)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, feed.ErrNoSet):
			e.opts.Logger.Warn("callbacks: read of the change memory failed", "set", t.set, "err", err)
			continue
		}
		e.restart(t, state.Head) // zero for a set that is not made
		for batches, err := range e.follower.Follow(ctx, t.set, state.Head) {
			if err != nil {
				if !errors.Is(err, feed.ErrGone) {
					e.opts.Logger.Warn("callbacks: follow failed", "set", t.set, "err", err)
				}
				break
			}
			failures = 0
			e.publish(t, batches)
		}
	}
}

// restart begins a topic anew at a head. The log may be another one than
// before, so each idle sub looks whether its cursor is still in it.
func (e *Engine) restart(t *topic, head feed.Cursor) {
	st := e.lock()
	defer st.unlock()
	idle := t.takeIdle()
	t.head, t.ready = head, true
	for _, s := range idle {
		st.rest(s)
	}
	st.fill()
}

// waiting reports whether any sub of an audience waits. Those that were woken do not.
func waiting(a *audience) bool { return len(a.Members) > 0 }

// takeIdle takes all subs that wait for what is new.
func (t *topic) takeIdle() []*sub {
	idle := t.unsure.take()
	for a := range t.audiences.All() {
		idle = append(idle, a.Members.take()...)
	}
	return idle
}

// publish wakes the subs of a topic for what is new.
func (e *Engine) publish(t *topic, batches []*feed.Batch) {
	st := e.lock()
	defer st.unlock()
	st.publishes++
	var idle []*sub
	first, diverged := int64(0), false
	for _, b := range batches {
		diverged = diverged || b.Diverged
		if len(b.Entries) > 0 {
			first = cmp.Or(first, b.Entries[0].Micros)
		}
		for i := range b.Entries {
			for a := range t.audiences.Matching(&b.Entries[i].Change, waiting) {
				idle = append(idle, a.Members.take()...)
			}
		}
	}
	if everybody := t.audiences.Unfiltered(); everybody != nil && first > 0 {
		idle = append(idle, everybody.Members.take()...)
	}
	for _, s := range idle {
		s.first = first
	}
	idle = append(idle, t.unsure.take()...)
	if diverged { // each looks whether its cursor is still in the log
		idle = append(idle, t.takeIdle()...)
	}
	if t.head.IsZero() {
		t.first = first
	}
	t.head = batches[len(batches)-1].Cursor
	for _, s := range idle {
		st.rest(s)
	}
	// A failing callback is tried again for what is new, but not before earliest. The
	// sub leaves the pool failing until the callback has failed again, so only one
	// change after each failure brings the next try forward.
	now := time.Now()
	for _, s := range t.failing.take() {
		t.behind.add(s)
		if s.earliest.Before(now) {
			s.earliest = now
		}
		if s.earliest.Before(s.due) {
			st.wakeAt(&s.timer, s.earliest)
		}
	}
	st.fill()
}
