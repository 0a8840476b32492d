package callback_test

import (
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// What a filter skips moves the cursor without a delivery, and intervals stay consecutive.
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
		if got := c.last().interval(); got != "1-202" {
			t.Errorf("interval = %s, want 1-202", got)
		}
		if n := w.record(id).Gaps; n != 0 {
			t.Errorf("got %d gaps, want 0", n)
		}
	})
}

// What a filter skips does not touch a subscription, until an operator, the subscriber or the next hub needs
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
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
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
