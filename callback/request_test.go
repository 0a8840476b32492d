package callback_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Replaced requests leave the inbox with the one that replaced them, so a crash does not bring them back.
func TestReplacedStaysReplaced(t *testing.T) {
	for _, tt := range []struct {
		name            string
		replaced, later subscription.Request
		check           func(w *world, c *receiver, id subscription.ID)
	}{
		{"renewal", subscription.Request{Terms: secret("first")}, subscription.Request{Terms: secret("second")},
			func(w *world, _ *receiver, id subscription.ID) {
				if got := w.record(id).Secret; got != "second" {
					w.t.Errorf("secret = %q, want second", got)
				}
			}},
		{"removal", subscription.Request{}, subscription.Request{Mode: subscription.Remove},
			func(w *world, _ *receiver, id subscription.ID) { w.wantGone(id) }},
		{"move", subscription.Request{Mode: subscription.Move}, subscription.Request{Mode: subscription.Move, Start: feed.Cursor{Position: 3}},
			func(_ *world, c *receiver, _ subscription.ID) { c.wantNames("a/0 a/1 a/2") }},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscriber()
			w.publish("a", 3)
			w.pass(time.Second)
			c.verify(fail)
			w.store.onCommit(noRecords)
			w.request(c, tt.replaced) // is tried again soon
			c.verify(confirm)
			w.store.onCommit(nil)
			if tt.later.Start.Position > 0 {
				tt.later.Start = w.head()
			}
			w.request(c, tt.later)
			w.pass(time.Minute)
			tt.check(w, c, id)
			w.recover()
			w.pass(time.Minute)
			tt.check(w, c, id)
		})
	}
}

// A subscriber sends requests until a callback that is down can confirm one. The subscription starts where the
// first request did, even if another hub makes it.
func TestFirstStartCounts(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		c.verify(fail)
		var id subscription.ID
		for _, name := range []string{"a", "b", "c"} {
			id = w.request(c, subscription.Request{Start: w.head()})
			w.publish(name, 1)
			w.pass(time.Second)
		}
		w.recover()
		c.verify(confirm)
		w.pass(time.Minute)
		c.wantChanges(0, 3)
		w.wantEmptyInbox(id)
	})
}

// A request of an operator does not wait for a callback that hangs at a verification. A removal drops the
// requests that wait.
func TestOperatorGoesFirst(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.publish("a", 1)
		c.verify(hang)
		w.do(subscription.Subscribe, c)
		w.pass(11 * time.Second) // the second attempt is due later
		w.do(subscription.Unsubscribe, c)
		w.do(subscription.Move, c)
		c.wantNames("a/0 a/0")
		w.pass(5 * time.Second) // the second attempt is in progress
		w.do(subscription.Remove, c)
		w.pass(20 * time.Second)
		w.wantGone(id)
		posts, gets := c.posts.len(), c.gets.len()
		w.pass(5 * time.Minute)
		c.wantRequests(posts, gets)
		w.wantEmptyInbox(id)
	})
}

// A request of an operator does not wait for a permit, as requests of the subscriber do.
func TestOperatorNeedsNoPermit(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		url := c.url
		var id subscription.ID
		for range 2 {
			for i := range 30 {
				c.url = fmt.Sprint(url, "?n=", i)
				id = w.do(subscription.Subscribe, c)
			}
			c.verify(hang)
		}
		w.do(subscription.Remove, c)
		w.wantGone(id)
	})
}

// An inbox that subscribers have filled has room for operators.
func TestOperatorInAFullInbox(t *testing.T) {
	long(t)
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.verify(hang)
		for i, n := 0, 0; n < subscription.InboxMax; i++ {
			if url := fmt.Sprint(c.url, "?n=", i); subscription.NewID("demo", "", url).Shard() == id.Shard() {
				w.send(subscription.Request{Callback: url})
				n++
			}
		}
		w.pass(time.Second)
		w.do(subscription.Remove, c)
		w.pass(time.Second)
		w.wantGone(id)
	})
}

// An operator does not wait for a delivery that hangs. A retry repeats it immediately, with the same interval
// and number; after a removal nothing is delivered.
func TestOperatorCancelsDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.publish("first", 1)
		c.respond(hang)
		w.publish("a", 1)
		w.do(subscription.Retry, c)
		c.wantRequests(3, 1)
		posts := c.posts.all()
		if got, want := string(posts[2].body), string(posts[1].body); got != want {
			t.Errorf("got a repeated delivery of %s, want %s", got, want)
		}
		w.pass(saveEvery)
		if r := w.record(id); r.Failed != 0 || r.Cursor.Position != 1 {
			t.Errorf("got %d failures and cursor %v, want none: the callback has not failed", r.Failed, r.Cursor)
		}
		gets := c.gets.len()
		w.do(subscription.Remove, c)
		w.wantGone(id)
		w.pass(time.Minute)
		c.wantRequests(3, gets+1)
	})
}

// A callback that unsubscribes and subscribes again receives one delivery at a time: the requests wait until
// the delivery in flight has ended.
func TestUnsubscribeDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		var now atomic.Int32
		c.respond(func(w http.ResponseWriter, r *http.Request) {
			if now.Add(1) > 1 {
				t.Error("got two deliveries in flight, want one")
			}
			defer now.Add(-1)
			select {
			case <-time.After(4 * time.Second):
				accept(w, r)
			case <-r.Context().Done():
				t.Error("the delivery was canceled")
			}
		})
		w.publish("a", 1)
		w.do(subscription.Unsubscribe, c)
		w.request(c, subscription.Request{Start: w.head()})
		c.wantRequests(1, 1)
		w.publish("b", 1)
		w.pass(time.Minute)
		c.wantRequests(2, 3)
		c.wantNames("a/0 b/0")
	})
}

// An invalid request in the inbox delays no other.
func TestInvalidRequest(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		shard := subscription.NewID("demo", "", c.url).Shard()
		key := "inbox/" + string([]byte{byte(shard), 0, 0, 0, 0, 0, 0, 0, 1})
		ok(t, w.log.Bucket("callback").Apply(t.Context(), map[string][]byte{key: []byte("no JSON")}, false))
		w.subscribe(c)
		left, err := w.registry.Inbox(t.Context(), shard, 0, 10)
		if err != nil || len(left) != 1 || left[0].Number != 1 || left[0].Mode != "" {
			t.Errorf("inbox has %v, %v; want the invalid request", left, err)
		}
	})
}

// A renewal that was accepted before the lease ended renews the subscription, even if it is executed later.
func TestRenewalWaitsForAHub(t *testing.T) {
	for _, confirms := range []bool{true, false} {
		runInWorld(t, fmt.Sprint("confirms=", confirms), callback.Options{}, func(t *testing.T, w *world) {
			c := w.receiver("a.example")
			request := subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: c.url, Lease: 300 * time.Second}
			id := w.request(c, request)
			c.respond(status(503))
			w.publish("a", 3)
			w.pass(250 * time.Second)
			w.crash()
			request.Start, request.At = w.head(), time.Now()
			ok(t, w.registry.Send(t.Context(), request))
			w.pass(time.Minute) // the lease ends
			c.respond(accept)
			if !confirms {
				c.verify(status(404))
			}
			w.start()
			w.pass(time.Minute)
			if confirms {
				c.wantQuery(map[string]string{"hub.mode": "subscribe", "rs.renewed": "true", "rs.since": "0-0"})
				c.wantChanges(0, 3)
				return
			}
			c.wantChanges(0, 0)
			c.wantDenials("lease expired")
			w.wantGone(id)
		})
	}
}

// A renewal that was accepted before the lease ended counts, even if it is confirmed later.
func TestRenewalAtTheEnd(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		request := subscription.Request{Lease: 300 * time.Second}
		id := w.request(c, request)
		w.publish("a", 1)
		w.pass(298 * time.Second)
		c.verify(after(5*time.Second, confirm))
		w.request(c, request)
		w.pass(4 * time.Second) // the lease has ended, and the callback has not responded
		w.publish("b", 1)
		c.wantChanges(0, 1)
		w.pass(2 * time.Second)
		c.wantChanges(0, 2)
		c.wantRequests(2, 2)
		w.record(id)
	})
}

// After a renewal with another filter, deliveries start where the callback was told, and include what the old
// filter skipped. A renewal during a delivery is verified after it.
func TestRenewalWithAnotherFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 1)
		w.publish("y", 5)
		c.verify(after(3*time.Second, confirm))
		w.request(c, subscription.Request{Start: w.head()}) // without a filter
		w.pass(time.Second)
		w.publish("z", 1) // skipped by the old filter
		w.pass(time.Second)
		c.respond(after(5*time.Second, accept))
		w.publish("xx", 1) // matches the old filter; the renewal is being verified
		w.pass(2 * time.Second)
		c.respond(accept)
		w.pass(5 * time.Second)
		w.publish("w", 1)
		if got := c.query().Get("rs.since"); !strings.HasPrefix(got, "1-") {
			t.Errorf("rs.since = %s, want position 1", got)
		}
		var got []string
		for _, p := range c.accepted.all() {
			got = append(got, fmt.Sprintf("%s:%d", p.interval(), len(p.doc.Items)))
		}
		if want := "[0-1:1 1-8:7 8-9:1]"; fmt.Sprint(got) != want {
			t.Errorf("received %v, want %s", got, want)
		}
	})
}

// An operator moves a subscription while a confirmed renewal with another filter waits for the store. The renewal
// does not move it again, and keeps the failures since the move.
func TestMoveBeforeRenewalIsStored(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 3)
		w.store.onCommit(func(ctx context.Context, shard int, changes subscription.Changes, commit func() error) error {
			if len(changes.Put) > 0 && changes.Put[0].Filter.IsZero() {
				return noRecords(ctx, shard, changes, commit)
			}
			return commit()
		})
		w.request(c, subscription.Request{Start: w.head()})
		c.respond(fail)
		w.do(subscription.Move, c)
		w.pass(10 * time.Second)
		w.store.onCommit(nil)
		w.pass(10 * time.Second)
		w.wantMetric("failing", 1)
		c.respond(accept)
		w.pass(10 * time.Minute)
		w.wantMetric("failing", 0)
		c.wantNames("x/0 x/1 x/2 x/0 x/1 x/2")
		if n := c.gets.len(); n != 2 {
			t.Errorf("got %d verifications, want 2", n)
		}
	})
}

// A renewal during a delivery that hangs waits until that has ended: its result counts, and the retry is signed
// with the new secret.
func TestRenewalDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.publish("first", 1) // so that the next delivery has all the time
		c.respond(hang)
		w.publish("a", 1)
		w.request(c, subscription.Request{Terms: secret("new")})
		c.wantRequests(2, 1)
		c.respond(accept)
		w.pass(15 * time.Second)
		c.wantRequests(3, 2)
		c.wantChanges(0, 2)
		p := c.last()
		p.wantSignature(t, "new")
		if got := p.header.Get("RS-Attempt"); got != "2" || p.number != c.posts.all()[1].number {
			t.Errorf("got attempt %s of delivery %d, want attempt 2 of %d", got, p.number, c.posts.all()[1].number)
		}
		w.pass(saveEvery)
		if r := w.record(id); r.Secret != "new" || r.Cursor != w.head() || r.Failed != 0 {
			t.Errorf("got record %+v, want the new secret and the cursor %v", r, w.head())
		}
	})
}
