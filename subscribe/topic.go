package subscribe

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
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

// dispatch delivers the changes of queued topics, or wakes the sessions that cannot take them at once,
// until the server stops. After a long delivery it pauses, like a group.
func (ts *topics) dispatch() {
	workers := make([]directDelivery, runtime.GOMAXPROCS(0))
	var queue []*topic
	var follows []*setFollow
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
		begun := time.Now()
		for _, t := range queue {
			ts.mu.Lock()
			follows = append(follows[:0], t.follows...)
			ts.mu.Unlock()
			ts.deliver(t.set, follows, workers)
			clear(follows)
		}
		clear(queue)
		if took := time.Since(begun); took > pauseThreshold {
			_ = backoff.Sleep(ts.server.ctx, min(took, maxPause))
		}
	}
}

// minShare is the minimum number of follows that a worker delivers to.
const minShare = 32

// deliver delivers the changes of a set to follows. The workers share them.
func (ts *topics) deliver(set string, follows []*setFollow, workers []directDelivery) {
	size := max((len(follows)+len(workers)-1)/len(workers), minShare)
	var wg sync.WaitGroup
	rest := workers
	for part := range slices.Chunk(follows, size) {
		w := &rest[0]
		if rest = rest[1:]; len(part) == len(follows) {
			w.deliver(part)
		} else {
			wg.Go(func() { w.deliver(part) })
		}
	}
	wg.Wait()
	for i := range workers {
		ts.server.count(byWebSocket, set, &workers[i].tally)
	}
}

// A directDelivery delivers changes without the output goroutines of sessions. It is not safe for
// concurrent use.
type directDelivery struct {
	writer directWriter
	tally  tally // deliveries

	// Frames of the last follow without a filter, for others at the same cursor.
	format *feed.Format // nil if there are none
	after  feed.Cursor  // cursor before the frames
	end    feed.Cursor  // cursor after them
	buf    []byte
	sum    tally // deliveries in buf
	all    bool  // whether these are all cached changes after the cursor
}

func (d *directDelivery) deliver(follows []*setFollow) {
	for _, f := range follows {
		if !f.session.deliverNow(f, d) {
			f.session.markReady(f)
		}
	}
	d.format = nil // the next set has others
	if cap(d.buf) > maxIdle {
		d.buf = nil
	}
}
