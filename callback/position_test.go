package callback_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A callback that fell behind retention receives what is left of the log. Deliveries name the gap, and the
// baseline, until one succeeds.
func TestGap(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.makeSet()
		c, id := w.subscriber()
		w.publish("a", 5)
		c.wantChanges(0, 5)
		c.respond(fail)
		w.publish("b", 60)
		w.pass(time.Minute)
		floor := w.trim(20)
		w.inventory = true
		retry := func() {
			w.do(subscription.Retry, c)
			w.pass(saveEvery)
		}
		w.recover() // the window of the hub still has all changes
		retry()
		w.wantMetric("gaps_total", 1)
		for range 2 {
			c.wantInterval(fmt.Sprintf("%d-65 gap 6-%d", floor, floor))
			all := feed.ParseLinks(c.last().header.Values("Link"))
			if len(all) != 6 || !all[0].HasRel("self") || !all[1].HasRel("hub") || !all[2].HasRel("resourcesync") || !all[3].HasRel(feed.RelBaseline) || all[3].URI != base+"/sets/demo/changes?since=baseline" {
				t.Errorf("links = %v, want six, and the baseline fourth", all)
			}
			if r := w.record(id); r.Gaps != 1 || r.Gap.Position != 5 {
				t.Errorf("progress = %+v, want one gap after position 5", r.Progress)
			}
			w.restart()
			retry()
		}
		c.respond(accept)
		retry()
		w.publish("c", 1)
		c.wantInterval("65-66")
		if links := feed.ParseLinks(c.last().header.Values("Link")); len(links) != 3 {
			t.Errorf("links after a success = %v, want three", links)
		}
		if got, want := strings.Count(c.names(), "/"), 5+65-int(floor)+1; got != want {
			t.Errorf("received %d changes, want %d", got, want)
		}
	})
}

// A gap starts at the end of the last delivery, even if a filter skipped the next entries. Entries that the
// filter skips after the gap are not part of it.
func TestGapWithFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.makeSet()
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 5)
		w.publish("y", 3)
		c.respond(fail)
		w.publish("x", 15)
		for range 3 {
			w.publish("y", 1000)
		}
		w.publish("x", 1)
		w.pass(time.Minute)
		floor := w.trim(2500)
		w.recover()
		c.respond(accept)
		w.do(subscription.Retry, c)
		c.wantInterval(fmt.Sprintf("%d-3024 gap 6-%d", floor, floor))
	})
}

// If a set was made again and retention has removed its start, the end of the gap is unknown in positions of
// the deleted set.
func TestGapOfAnotherSet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.publish("a", 5)
		c.respond(fail)
		w.pass(time.Minute)
		w.deleteSet()
		w.crash()
		w.makeSet()
		w.publish("b", 60)
		w.pass(time.Minute)
		w.trim(20)
		w.start()
		w.pass(time.Minute)
		c.wantInterval("40-60 gap 6-")
	})
}

// A subscription may be older than its set, and outlive it. Then it follows the next set of that name.
func TestDeletedSet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.do(subscription.Subscribe, c)
		w.publish("a", 3)
		c.wantChanges(0, 3)
		w.deleteSet()
		w.pass(time.Minute)
		c.wantRequests(1, 1)
		w.publish("b", 2)
		w.pass(time.Minute)
		c.wantNames("a/0 a/1 a/2 b/0 b/1")
		c.wantInterval("0-2 gap 4-")
	})
}

// After the log has lost its tail, deliveries repeat rather than skip, and report that until one succeeds.
func TestDiverged(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		start := w.publish("a", 3)
		start.Micros += 5 // of another third entry
		c := w.receiver("a.example")
		c.respond(fail)
		w.request(c, subscription.Request{Start: start})
		w.pass(time.Minute)
		c.respond(accept)
		w.pass(2 * time.Minute)
		for _, p := range c.posts.all() {
			if got := p.interval(); got != "0-3 diverged" {
				t.Errorf("interval = %s, want 0-3 diverged", got)
			}
		}
		c.wantChanges(0, 3)
		w.publish("b", 1)
		c.wantInterval("3-4")
		c.wantChanges(0, 4)
	})
}

// A skipped entry moves the cursor without a delivery, and intervals stay consecutive.
func TestFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 1)
		until := c.last().doc.Header.Until
		for range 50 {
			w.publish("y", 100)
			w.pass(time.Second)
		}
		c.wantRequests(1, 1)
		w.pass(skipEvery + time.Second)
		if r := w.record(id); r.Cursor != w.head() || r.From.Position != 1 {
			t.Errorf("stored cursor = %v from %v, want %v from position 1", r.Cursor, r.From, w.head())
		}
		w.recover()
		w.publish("y", 1)
		w.publish("x", 1)
		p := c.last()
		if got := p.interval(); got != "1-5003" || len(p.doc.Items) != 1 {
			t.Errorf("delivery has interval %s and %d changes, want 1-5003 and 1", got, len(p.doc.Items))
		}
		if got := p.doc.Header.From; !got.Equal(until) {
			t.Errorf("delivery is from %v, want %v", got, until)
		}
	})
}

// A subscription whose filter matches nothing has no gap when retention removes what it skipped, even after
// a crash: its cursor is stored from time to time.
func TestFilterOutlivesRetention(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.makeSet()
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 1)
		for range 10 {
			w.publish("y", 20)
			w.pass(skipEvery)
		}
		w.trim(50)
		w.recover()
		w.publish("x", 1)
		c.wantInterval("1-202")
		if n := w.record(id).Gaps; n != 0 {
			t.Errorf("got %d gaps, want 0", n)
		}
	})
}

// A skipped entry does not touch a subscription, until an operator, the subscriber or the next hub needs
// its position. This one is older than its set.
func TestFilterPasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		need func(w *world, c *receiver)
	}{
		{"retry", func(w *world, c *receiver) { w.do(subscription.Retry, c) }},
		{"renewal", func(w *world, c *receiver) { w.request(c, subscription.Request{Terms: prefix("x")}) }},
		{"shutdown", func(w *world, _ *receiver) { w.restart() }},
		{"failure", func(w *world, c *receiver) {
			c.respond(fail)
			w.publish("x", 1)
			c.respond(accept)
		}},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c := w.receiver("a.example")
			id := w.request(c, subscription.Request{Terms: prefix("x")})
			first := w.publish("y", 2)
			end := w.publish("y", 1)
			if got := w.engine.Cursor(id); !got.IsZero() {
				t.Errorf("cursor in memory = %v, want zero", got)
			}
			tt.need(w, c)
			w.pass(saveEvery)
			from := feed.Cursor{Micros: first.Micros - 2} // before the first of two entries
			if r := w.record(id); r.Cursor != end || r.From != from {
				t.Errorf("stored cursor = %v from %v, want %v from %v", r.Cursor, r.From, end, from)
			}
			w.publish("x", 1)
			w.pass(time.Minute)
			p := c.posts.all()[0]
			if got := p.header.Get("RS-Previous"); got != "0" || !p.doc.From.Equal(time.UnixMicro(from.Micros)) {
				t.Errorf("RS-Previous = %s from %v, want 0 from %v", got, p.doc.From, time.UnixMicro(from.Micros))
			}
		})
	}
}

// A backlog that a filter skips is passed without a delivery.
func TestFilterBacklog(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		for range 30 {
			w.publish("y", 1000)
		}
		w.publish("x", 2)
		w.request(c, subscription.Request{Terms: prefix("x")})
		c.wantRequests(1, 1)
		if got := c.last().interval(); got != "0-30002" || c.names() != "x/0 x/1" {
			t.Errorf("received %s in interval %s, want x/0 x/1 in 0-30002", c.names(), got)
		}
	})
}

// A gate is a Follower that delays the result of one read.
type gate struct {
	callback.Follower
	shut  atomic.Bool   // whether the next read is delayed
	open  chan struct{} // closed when the read may return
	empty bool          // whether the read finds nothing; set before shut
}

func (g *gate) Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error) {
	b, err := g.Follower.Next(ctx, set, after, limit)
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
		if g.empty {
			return nil, nil
		}
	}
	return b, err
}

// wantRead fails the test unless a read waits at the gate.
func (g *gate) wantRead(t *testing.T) {
	t.Helper()
	if g.shut.Load() {
		t.Fatal("got no read, want one")
	}
}

// startGated restarts the engine with a follower that has a gate.
func (w *world) startGated() *gate {
	w.t.Helper()
	w.shutdown()
	g := &gate{Follower: w.hub, open: make(chan struct{})}
	w.startWith(g)
	return g
}

// A follower is late: it reads nothing, although the log has entries. The subscription reads again, even if
// nothing is published.
func TestLateFollower(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.crash()
		w.publish("a", 3)
		g := &gate{Follower: w.hub, open: make(chan struct{}), empty: true}
		g.shut.Store(true)
		close(g.open)
		w.startWith(g)
		g.wantRead(t)
		w.pass(3 * time.Second)
		c.wantChanges(0, 3)
	})
}

// A read that started before a publish may find nothing. It does not count for a subscription that knows of
// the publish, which would wait.
func TestReadBeforePublish(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.startGated()
		a, b := w.receiver("a.example"), w.receiver("b.example")
		w.subscribe(a)
		w.subscribe(b)
		w.pass(time.Minute)
		g.empty = true
		g.shut.Store(true)
		w.publish("first", 1)
		g.wantRead(t)
		w.publish(strings.Repeat("x", 1500), 1700) // more than the window holds
		close(g.open)
		w.settle()
		for _, c := range []*receiver{a, b} {
			c.wantChanges(0, 1701)
		}
	})
}
