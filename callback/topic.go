package callback

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
)

// A Follower yields the batches of a set that follow a cursor, and waits for
// more until ctx is done.
type Follower interface {
	Follow(ctx context.Context, set string, after changelog.Cursor) iter.Seq2[[]*changelog.Batch, error]
}

// A Log is the part of changelog.Log that is read by who is behind.
type Log interface {
	Since(ctx context.Context, set string, after changelog.Cursor, limit int) (*changelog.Batch, error)
	State(ctx context.Context, set string) (changelog.State, error)
}

// A topic is a set that has subscriptions on this hub. It is followed once for
// all of them, and what comes is kept for them in a window. Unless it says
// otherwise all of it is guarded by Engine.mu.
type topic struct {
	set    string
	link   string // see Engine.link
	source *source
	made   atomic.Pointer[made]  // the newest cut; needs no mutex
	making flights[order, *made] // the same
	cancel context.CancelFunc    // ends the following
	subs   int

	ready   bool             // head is known
	head    changelog.Cursor // of what was followed
	version int              // how often something new came
	window  window
	idle    pool // subs that wait for what is new
	failing pool // subs that wait after a failure, and less long when something new comes
	behind  pool // all others: those that have their turn, or wait for it
}

// topic returns the topic of a set for one more sub. mu is held.
func (e *Engine) topic(set string) *topic {
	t := e.topics[set]
	if t == nil {
		ctx, cancel := context.WithCancel(e.ctx)
		t = &topic{set: set, link: e.link(set), cancel: cancel}
		t.source = &source{
			set: set, log: e.log, readings: &e.readings,
			limits: limits{e.opts.MaxChanges, e.opts.MaxBytes},
			window: func(c changelog.Cursor, n int) ([]*page, int) {
				e.mu.Lock()
				defer e.mu.Unlock()
				return t.window.behind(c, n)
			},
		}
		e.topics[set] = t
		e.wg.Go(func() { e.follow(ctx, t) })
	}
	t.subs++
	return t
}

// forsake says that a sub of a topic is no more. mu is held.
func (e *Engine) forsake(t *topic) {
	if t.subs--; t.subs == 0 {
		t.cancel()
		delete(e.topics, t.set)
		e.readings.forget(t.set)
	}
}

// follow keeps a topic's window up to date until ctx is done. A set that is
// gone, or not made yet, is waited for.
func (e *Engine) follow(ctx context.Context, t *topic) {
	for failures := 0; ctx.Err() == nil; failures++ {
		if failures > 0 && !pause(ctx, min(time.Second<<min(failures-1, 3), 5*time.Second)) {
			return
		}
		state, err := e.log.State(ctx, t.set)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, changelog.ErrNoSet):
			e.opts.Logger.Warn("callbacks: the memory cannot be read", "set", t.set, "err", err)
			continue
		}
		e.restart(t, state.Head) // of a set that is not made: zero
		for batches, err := range e.follower.Follow(ctx, t.set, state.Head) {
			if err != nil {
				if !errors.Is(err, changelog.ErrGone) {
					e.opts.Logger.Warn("callbacks: following failed", "set", t.set, "err", err)
				}
				break
			}
			failures = 0
			e.publish(t, batches)
		}
	}
}

// restart begins a topic's window anew. Everybody looks whether he is still in
// this log.
func (e *Engine) restart(t *topic, head changelog.Cursor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.window, t.head, t.ready = window{}, head, true
	t.version++
	e.readings.forget(t.set)
	for _, s := range t.idle.take() {
		s.rest()
	}
	e.fill()
}

// publish adds what is new to a topic's window, and wakes its subs.
func (e *Engine) publish(t *topic, batches []*changelog.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.subs == 0 { // forsaken while this was on its way
		return
	}
	before, first := t.head, int64(0)
	passes := map[*filter]bool{}
	for _, b := range batches {
		if b.Diverged {
			t.window = window{}
			e.readings.forget(t.set)
			passes = nil // everybody has to look
		}
		if len(b.Entries) > 0 {
			t.window.add(b, min(windowBytes, allWindows/len(e.topics)))
			first = or(first, b.Entries[0].Micros)
		}
		t.head = b.Cursor
	}
	t.version++
	for _, s := range t.idle.take() {
		if passes != nil && s.cursor == before && s.filter.key != "" && !matches(passes, s.filter, batches) {
			s.skip(first, t.head)
			t.idle.add(s)
			continue
		}
		if passes != nil && s.cursor == before {
			s.first = first
		}
		s.rest()
	}
	// A failing callback is tried again for what is new, but not more often than
	// earliest lets it: it leaves the pool until it has failed again.
	now := time.Now()
	for _, s := range t.failing.take() {
		t.behind.add(s)
		if s.earliest.Before(now) {
			s.earliest = now
		}
		if s.earliest.Before(s.due) {
			e.remind(&s.task, s.earliest)
		}
	}
	e.fill()
}

// An order is what a cut is made for.
type order struct {
	at      place
	filter  *filter
	limit   int
	version int // of the topic: later there may be more to deliver
}

// made is a cut, with what it was made for.
type made struct {
	order
	cut       *cut
	corrected place
}

// cut is source.cut, at a version of the topic. Those that are at the same place
// get the same cut, as long as no other is made.
func (t *topic) cut(ctx context.Context, at *place, f *filter, limit, version int) (*cut, error) {
	o := order{at: *at, filter: f, limit: limit, version: version}
	m := t.made.Load()
	var err error
	if m == nil || m.order != o {
		m, err = t.making.do(ctx, o, func() (*made, error) {
			if m := t.made.Load(); m != nil && m.order == o { // by now
				return m, nil
			}
			m := &made{order: o, corrected: o.at}
			var err error
			if m.cut, err = t.source.cut(ctx, &m.corrected, f, limit, version); err == nil {
				t.made.Store(m)
			}
			return m, err
		})
		if m == nil {
			return nil, err
		}
	}
	*at = m.corrected
	return m.cut, err
}

// matches reports whether a filter lets anything of the batches pass.
func matches(known map[*filter]bool, f *filter, batches []*changelog.Batch) bool {
	m, ok := known[f]
	if ok {
		return m
	}
search:
	for _, b := range batches {
		for i := range b.Entries {
			if m = f.match(&b.Entries[i].Change); m {
				break search
			}
		}
	}
	known[f] = m
	return m
}

// pause waits about d, and reports false when ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
