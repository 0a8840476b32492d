package callback

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A Follower reads the logs of sets. All followers of a set share its batches, so that an entry is read
// and encoded once for all of them. hub.Hub is a Follower.
type Follower interface {
	// Follow yields the batches after a cursor and waits for more until ctx is canceled. An error, such
	// as feed.ErrGone, ends the sequence.
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]

	// Next returns the batches that Follow yields first, without waiting for any. It reads at most limit
	// entries from the log, and fails after half a minute.
	Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error)
}

// A Log is the part of changelog.Log that returns where the log of a set begins and ends.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
}

// A topic is a set that has subscriptions in the shards of this hub. It is followed once for all of
// them. A publish only wakes them; each reads the log from its own cursor.
type topic struct {
	// Immutable.
	set    string
	cancel context.CancelFunc // ends follow

	users int // subs with this topic; guarded by Engine.mu

	mu        sync.Mutex
	ready     bool // whether head is known
	head      feed.Cursor
	first     int64 // datetime of the first entry, if that came when the set did not exist; otherwise zero
	subs      int
	failing   int                  // subs whose last delivery failed
	audiences feed.Audiences[pool] // subs by filter; the pools have those that wait at the head
	unsure    pool                 // subs that wait for any entry, or until the topic is ready
	failed    pool                 // subs that wait for the next attempt after a failure
	behind    pool                 // subs that have an owner, or were woken
}

// An audience is the subs of a topic that have the same filter. A publish that the filter does not match
// costs nothing: the subs in the pool are at the head without being touched. See sub.catchUp.
type audience = feed.Audience[pool]

// A pool is a set of subs of a topic that wait for the same event. It is guarded by topic.mu.
type pool []*sub

// moveTo moves a sub to another pool, or to none. The caller holds topic.mu.
func (s *sub) moveTo(to *pool) {
	if s.pool == to {
		return
	}
	if from := s.pool; from != nil {
		if s.audience != nil && from == &s.audience.Members {
			s.passed = s.topic.head
		}
		n := len(*from) - 1
		moved := (*from)[n]
		(*from)[s.index], (*from)[n] = moved, nil
		moved.index, *from = s.index, (*from)[:n]
	}
	if s.pool = to; to != nil {
		s.index = len(*to)
		*to = append(*to, s)
	}
}

// update copies the state of a sub from its owner to its topic. The caller holds topic.mu.
func (t *topic) update(s *sub) {
	s.passed, s.since = s.Cursor, s.ahead
	if failing := s.Failed > 0; failing != s.failing {
		s.failing = failing
		if failing {
			t.failing++
		} else {
			t.failing--
		}
	}
}

// wakePool moves the subs of a pool to behind and appends them to woken. The caller holds mu.
func (t *topic) wakePool(woken []*sub, p *pool) []*sub {
	for len(*p) > 0 {
		s := (*p)[len(*p)-1]
		s.moveTo(&t.behind)
		woken = append(woken, s)
	}
	return woken
}

// restart sets the head of a topic. The log may not be the same as before, so each waiting sub that is
// not at the head checks whether the log still has its cursor.
func (t *topic) restart(head feed.Cursor) {
	t.mu.Lock()
	woken := t.wakePool(nil, &t.unsure)
	for a := range t.audiences.All() {
		woken = t.wakePool(woken, &a.Members)
	}
	t.head, t.ready = head, true
	n := 0
	for _, s := range woken {
		if s.passed == head {
			s.moveTo(&s.audience.Members)
		} else {
			woken[n] = s
			n++
		}
	}
	t.mu.Unlock()
	for _, s := range woken[:n] {
		s.wake()
	}
}

// publish wakes the subs of a topic that want new entries.
func (t *topic) publish(batches []*feed.Batch) {
	woken, failed := t.advance(batches)
	for _, s := range woken {
		s.wake()
	}
	for _, s := range failed {
		s.hasten()
	}
}

// advance sets the head of a topic to the end of batches. It returns the subs that want their entries,
// and those that wait after a failure. A failed sub is returned once after each failure: under a stream
// of changes, a callback that is down is not called for each.
func (t *topic) advance(batches []*feed.Batch) (woken, failed []*sub) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := func(a *audience) bool { return len(a.Members) > 0 }
	first, diverged := int64(0), false
	for _, b := range batches {
		diverged = diverged || b.Diverged
		if len(b.Entries) > 0 {
			first = cmp.Or(first, b.Entries[0].Micros)
		}
		for i := range b.Entries {
			for a := range t.audiences.Matching(&b.Entries[i].Change, waiting) {
				woken = t.wakePool(woken, &a.Members)
			}
		}
	}
	if a := t.audiences.Unfiltered(); a != nil && first > 0 {
		woken = t.wakePool(woken, &a.Members)
	}
	for _, s := range woken {
		s.since = first
	}
	woken = t.wakePool(woken, &t.unsure)
	if diverged { // all check whether the log still has their cursors
		for a := range t.audiences.All() {
			woken = t.wakePool(woken, &a.Members)
		}
	}
	if t.head.IsZero() {
		t.first = first
	}
	t.head = batches[len(batches)-1].Cursor
	return woken, t.wakePool(nil, &t.failed)
}

// following returns what Engine.Following does of a topic.
func (t *topic) following() Following {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := Following{Subscriptions: t.subs, Failing: t.failing}
	now := time.Now().UnixMicro()
	oldest := now
	for _, p := range []pool{t.behind, t.failed, t.unsure} {
		for _, s := range p {
			if t.ready && t.head.Position > s.passed.Position {
				f.Changes = max(f.Changes, t.head.Position-s.passed.Position)
				oldest = min(oldest, cmp.Or(s.since, s.passed.Micros, t.head.Micros))
			}
		}
	}
	f.Lag = time.Duration(now-oldest) * time.Microsecond
	return f
}

// topic returns the topic of a set, and adds a user to it.
func (e *Engine) topic(set string) *topic {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topics[set]
	if t == nil {
		ctx, cancel := context.WithCancel(e.ctx)
		t = &topic{set: set, cancel: cancel}
		e.topics[set] = t
		e.wg.Go(func() { e.follow(ctx, t) })
	}
	t.users++
	return t
}

// releaseTopic removes a user from a topic. A topic without users is forgotten.
func (e *Engine) releaseTopic(t *topic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.users--; t.users == 0 {
		t.cancel()
		delete(e.topics, t.set)
	}
}

// follow updates a topic until ctx is canceled. It waits for a set that does not exist.
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
		t.restart(state.Head) // zero if the set does not exist
		for batches, err := range e.follower.Follow(ctx, t.set, state.Head) {
			if err != nil {
				if !errors.Is(err, feed.ErrGone) {
					e.opts.Logger.Warn("callbacks: follow failed", "set", t.set, "err", err)
				}
				break
			}
			failures = 0
			t.publish(batches)
		}
	}
}
