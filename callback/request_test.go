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
)

// Replaced requests leave the inbox with the one that replaced them, so a crash does not bring them back.
func TestReplacedStaysReplaced(t *testing.T) {
	t.Run("renewal", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscriber()
			c.verify(fail)
			w.request(c, subscription.Request{Terms: secret("first")}) // is tried again soon
			c.verify(confirm)
			w.request(c, subscription.Request{Terms: secret("second")})
			for _, step := range []string{"renewal", "crash"} {
				if got := w.record(id).Secret; got != "second" {
					t.Errorf("secret after the %s = %q, want second", step, got)
				}
				w.recover()
				w.pass(time.Minute)
			}
		})
	})
	t.Run("removal", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscriber()
			c.verify(fail)
			w.do(subscription.Subscribe, c)
			c.verify(confirm)
			w.do(subscription.Remove, c)
			for _, step := range []string{"removal", "crash"} {
				if w.exists(id) {
					t.Errorf("the subscription exists after the %s", step)
				}
				w.recover()
				w.pass(time.Minute)
			}
		})
	})
	t.Run("move", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, _ := w.subscriber()
			w.publish("a", 3)
			w.pass(time.Second)
			w.store.onCommit(noRecords)
			w.do(subscription.Move, c)
			w.store.onCommit(nil)
			w.request(c, subscription.Request{Mode: subscription.Move, Start: w.head()})
			w.recover()
			w.pass(time.Minute)
			c.wantChanges(0, 3)
		})
	})
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
		if got := c.names(); got != "a/0 a/0" {
			t.Errorf("received %s, want a/0 twice", got)
		}
		w.pass(5 * time.Second) // the second attempt is in progress
		w.do(subscription.Remove, c)
		w.pass(20 * time.Second)
		if w.exists(id) {
			t.Error("the subscription still exists")
		}
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
		if w.do(subscription.Remove, c); w.exists(id) {
			t.Error("the operator waits for a callback that hangs")
		}
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
		if w.pass(time.Second); w.exists(id) {
			t.Error("the subscription still exists")
		}
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
		if w.do(subscription.Remove, c); w.exists(id) {
			t.Error("the removal waits for the delivery")
		}
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
		if got := c.names(); got != "a/0 b/0" {
			t.Errorf("received %s, want a/0 b/0", got)
		}
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
		t.Run(fmt.Sprint("confirms=", confirms), func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
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
				q := c.gets.all()[1].URL.Query()
				if q.Get("hub.mode") != "subscribe" || q.Get("rs.renewed") != "true" || q.Get("rs.since") != "0-0" {
					t.Errorf("verification has %v, want a renewal since 0-0", q)
				}
				if confirms {
					c.wantChanges(0, 3)
					return
				}
				c.wantChanges(0, 0)
				if got := c.denials(); w.exists(id) || len(got) != 1 || got[0] != "lease expired" {
					t.Errorf("subscription exists: %t, denials = %q; want none and one that it expired", w.exists(id), got)
				}
			})
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

// An operator moves a subscription while a confirmed renewal with another filter waits for the store. The
// renewal does not move it again.
func TestMoveBeforeRenewalIsStored(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 3)
		w.store.onCommit(noRecords)
		w.request(c, subscription.Request{Start: w.head()})
		c.respond(fail)
		w.do(subscription.Move, c)
		w.store.onCommit(nil)
		w.pass(5 * time.Second)
		c.respond(accept)
		w.pass(time.Minute)
		if got, want := c.names(), "x/0 x/1 x/2 x/0 x/1 x/2"; got != want || c.gets.len() != 2 {
			t.Errorf("received %s and %d verifications, want %s and 2", got, c.gets.len(), want)
		}
	})
}

// A renewal that is stored after an operator's move keeps the failures since the move, so the metric of failing
// subscriptions stays right.
func TestFailingAfterMove(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("a")})
		w.publish("a", 3)
		w.store.onCommit(func(ctx context.Context, shard int, changes subscription.Changes, commit func() error) error {
			if len(changes.Put) > 0 && changes.Put[0].Filter.IsZero() {
				return noRecords(ctx, shard, changes, commit)
			}
			return commit()
		})
		w.do(subscription.Subscribe, c)
		c.respond(fail)
		w.do(subscription.Move, c)
		w.pass(10 * time.Second)
		w.store.onCommit(nil)
		w.pass(10 * time.Second)
		if n := w.metric("failing"); n != 1 {
			t.Errorf("failing = %d while the callback fails, want 1", n)
		}
		c.respond(accept)
		w.pass(10 * time.Minute)
		if n := w.metric("failing"); n != 0 {
			t.Errorf("failing = %d after a success, want 0", n)
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
