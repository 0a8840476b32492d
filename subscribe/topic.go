package subscribe

import (
	"sync"

	"github.com/rshub/rshub/internal/backoff"
)

// topics are the sets that sessions follow. The hub reports that the log of a set may have changed;
// one goroutine then wakes the sessions that follow the set. A publish therefore costs the publisher
// the same whether one session follows the set or a thousand do.
type topics struct {
	server *Server

	mu      sync.Mutex
	bySet   map[string]*topic
	started bool // whether dispatch runs

	queueMu sync.Mutex // held by wake, which may be called with locks of the hub; no lock is acquired while it is held
	queue   []*topic   // topics whose sessions must be woken
	wakeup  backoff.Wakeup
}

// A topic is a set with the follows of all sessions.
type topic struct {
	set     string
	release func() // ends the wake-ups by the hub

	follows []*setFollow // guarded by topics.mu
	queued  bool         // whether it is in topics.queue; guarded by topics.queueMu
}

// join adds a follow to the topic of a set. From then on, the session is woken when the log of the
// set may have changed.
func (ts *topics) join(f *setFollow, set string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.started {
		ts.started = true
		ts.server.wg.Go(ts.dispatch) // the caller is a goroutine of wg, too
	}
	t := ts.bySet[set]
	if t == nil {
		t = &topic{set: set}
		ts.bySet[set] = t
		t.release = ts.server.follower.Watch(set, func() { ts.wake(t) })
	}
	f.topic, f.index = t, len(t.follows)
	t.follows = append(t.follows, f)
}

// leave removes a follow from its topic.
func (ts *topics) leave(f *setFollow) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := f.topic
	n := len(t.follows) - 1
	moved := t.follows[n]
	t.follows[f.index], moved.index = moved, f.index
	t.follows[n] = nil
	if t.follows = t.follows[:n]; n == 0 {
		delete(ts.bySet, t.set)
		t.release()
	}
}

// wake makes dispatch wake the sessions of a topic. It does not block.
func (ts *topics) wake(t *topic) {
	ts.queueMu.Lock()
	defer ts.queueMu.Unlock()
	if t.queued {
		return
	}
	t.queued = true
	ts.queue = append(ts.queue, t)
	ts.wakeup.Wake()
}

// dispatch wakes the sessions of queued topics until the server stops.
func (ts *topics) dispatch() {
	var queue []*topic
	for {
		select {
		case <-ts.wakeup:
		case <-ts.server.ctx.Done():
			return
		}
		ts.queueMu.Lock()
		queue, ts.queue = ts.queue, queue[:0]
		for _, t := range queue {
			t.queued = false
		}
		ts.queueMu.Unlock()
		ts.mu.Lock()
		for _, t := range queue {
			for _, f := range t.follows {
				f.session.markReady(f)
			}
		}
		ts.mu.Unlock()
		clear(queue)
	}
}
