package callback_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A store that takes no records keeps renewals waiting, and nothing else.
func TestFullStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c := w.listen("a.example")
		renew := func(i int) subscription.ID {
			return w.send(subscription.Request{Mode: subscription.Subscribe, Callback: fmt.Sprint(c.url, "?n=", i), Start: w.head()})
		}
		for i := range 9 {
			renew(i)
		}
		w.settled()
		w.published("a", 1)
		w.store.tight.Store(true)
		for i := range 8 { // as many as the host has slots
			renew(i)
		}
		w.settled()
		w.publish("b", 1)
		time.Sleep(5 * time.Minute)
		if _, took, asked := c.counts(); took != 18 || asked != 17 {
			t.Errorf("%d deliveries, want 18; asked %d times, want 17", took, asked)
		}
		if n := w.gauge("in_flight"); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
		w.store.tight.Store(false)
		w.pass(2 * time.Second)
		id := subscription.NewID("demo", "", c.url+"?n=0")
		if r := w.saved(id); r.Renewed.IsZero() || len(r.Last) != 4 || c.questions() != 17 {
			t.Errorf("renewed %v, %d attempts, asked %d times", r.Renewed, len(r.Last), c.questions())
		}

		// The hub hands the shard over, and the next hub asks again.
		w.store.tight.Store(true)
		renew(0)
		w.settled()
		begin := time.Now()
		w.shutdown()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		w.store.tight.Store(false)
		w.start(callback.Options{})
		w.pass(time.Second)
		if c.questions() != 19 {
			t.Errorf("asked %d times, want 19", c.questions())
		}
	})
}

// A renewal that was accepted before the lease ended keeps the subscription,
// though it is carried out after that.
func TestRenewalWaitsForAHub(t *testing.T) {
	t.Parallel()
	for _, agrees := range []bool{true, false} {
		t.Run(fmt.Sprint("agrees ", agrees), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newLongWorld(t, callback.Options{})
				c := w.listen("a.example")
				id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second, Start: w.head()})
				c.says(status(503))
				w.publish("a", 3)
				time.Sleep(250 * time.Second)
				w.crash()
				r := subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: c.url, Lease: 300 * time.Second, Start: w.head(), At: time.Now()}
				ok(t, w.registry.Send(t.Context(), r))
				time.Sleep(time.Minute) // the lease ends
				c.says(nil)
				if !agrees {
					c.agrees(status(404))
				}
				w.start(callback.Options{})
				w.pass(time.Minute)
				q := c.asked[1].URL.Query()
				if q.Get("hub.mode") != "subscribe" || q.Get("rs.renewed") != "true" || q.Get("rs.since") != "0-0" {
					t.Errorf("asked %v", q)
				}
				if agrees {
					c.check(0, 3)
					return
				}
				if got := c.question(); !w.gone(id) || got.Get("hub.reason") != "lease expired" || len(c.locs()) != 0 {
					t.Errorf("gone %v, %d delivered, asked %v", w.gone(id), len(c.locs()), got)
				}
			})
		})
	}
}

// After a renewal with another filter, deliveries start where the callback was told, so that they have what the
// old filter skipped. A renewal during a delivery is verified after it.
func TestRenewalWithAnotherFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		w.publish("x", 1)
		w.settled() // else both may be one reading
		w.published("y", 5)
		c.agrees(agreesAfter(3 * time.Second))
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()}) // everything
		time.Sleep(time.Second)
		w.publish("z", 1) // the old filter leaves it out
		time.Sleep(time.Second)
		c.says(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second)
			w.WriteHeader(http.StatusNoContent)
		})
		w.publish("xx", 1) // the old filter matches it; the renewal is being verified
		time.Sleep(2 * time.Second)
		c.says(nil)
		time.Sleep(5 * time.Second)
		w.published("w", 1)
		told, err := feed.ParseCursor(c.asked[1].URL.Query().Get("rs.since"))
		if err != nil || told.Position != 1 {
			t.Errorf("told rs.since=%v (%v)", told, err)
		}
		c.mu.Lock()
		took := c.took[1:] // x was delivered with the old filter
		c.mu.Unlock()
		if len(took) != 2 || took[0].header.Get("RS-Previous") != "1" || len(took[0].doc.Items) != 7 || took[1].header.Get("RS-Position") != "9" {
			for _, d := range took {
				t.Errorf("delivered %s to %s: %d changes", d.header.Get("RS-Previous"), d.header.Get("RS-Position"), len(d.doc.Items))
			}
		}
	})
}

// An operator moves a subscription while a confirmed renewal with another filter waits for the
// store. The renewal does not move it again.
func TestMoveBeforeARenewalIsKept(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		w.published("x", 3)
		w.store.tight.Store(true)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		c.says(status(http.StatusInternalServerError))
		w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url})
		w.store.tight.Store(false)
		time.Sleep(5 * time.Second)
		c.says(nil)
		w.pass(time.Minute)
		if got := c.locs(); len(got) != 6 || c.questions() != 2 {
			t.Errorf("after the move it got %v; asked %d times", got, c.questions())
		}
	})
}

// An operator's request does not wait for a callback that does not answer. An operator's
// removal drops the requests that wait.
func TestOperatorGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, id := w.subscribed()
		w.published("a", 1)
		c.agrees(hang)
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		time.Sleep(11 * time.Second) // its second try comes later
		w.send(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
		w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url})
		if got := len(c.locs()); got != 2 {
			t.Errorf("%d changes were delivered, want the one twice", got)
		}
		time.Sleep(5 * time.Second) // the second try is under way
		w.send(subscription.Request{Mode: subscription.Remove, Callback: c.url})
		w.pass(20 * time.Second)
		if !w.gone(id) {
			t.Error("it was not removed")
		}
		asked := c.questions()
		time.Sleep(5 * time.Minute)
		if n := c.questions(); n != asked || !w.gone(id) {
			t.Errorf("asked %d times after it was removed; gone %v", n-asked, w.gone(id))
		}
		w.noRequests(id)
	})
}

// Callbacks that do not answer when they are asked or told take no slots from others,
// though their deliveries succeeded before.
func TestSlowQuestions(t *testing.T) {
	t.Parallel()
	for _, mode := range []subscription.Mode{subscription.Remove, subscription.Subscribe} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, callback.Options{InFlight: 64}, func(t *testing.T, w *world) {
				good := w.listen("good.example")
				w.subscribe(good)
				var bad []*callee
				for i := range 64 {
					c := w.listen(fmt.Sprint("bad", i, ".example"))
					w.subscribe(c)
					bad = append(bad, c)
				}
				w.published("first", 1)
				for _, c := range bad {
					c.agrees(hang)
					c.says(hang)
				}
				if mode == subscription.Subscribe { // the first try shows that the callbacks do not answer
					for _, c := range bad {
						w.send(subscription.Request{Mode: mode, Callback: c.url, Start: w.head()})
					}
				} else {
					w.publish("x", 1)
				}
				time.Sleep(15 * time.Second)
				for _, c := range bad {
					w.send(subscription.Request{Mode: mode, Callback: c.url, Start: w.head()})
				}
				w.settled()
				_, before, _ := good.counts()
				w.published("y", 1)
				if _, after, _ := good.counts(); after != before+1 {
					t.Error("the one that is well waits")
				}
			})
		})
	}
}

// A callback that unsubscribes and subscribes again receives one delivery at a time: the requests wait until
// the delivery in flight has ended.
func TestUnsubscribeDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		var now atomic.Int32
		c.says(func(w http.ResponseWriter, r *http.Request) {
			if now.Add(1) > 1 {
				t.Error("got two deliveries in flight, want one")
			}
			defer now.Add(-1)
			select {
			case <-time.After(4 * time.Second):
				w.WriteHeader(http.StatusNoContent)
			case <-r.Context().Done():
				t.Error("the delivery was canceled")
			}
		})
		w.published("a", 1)
		w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		if got := c.questions(); got != 1 {
			t.Errorf("got %d verifications while a delivery is in flight, want 1", got)
		}
		w.publish("b", 1)
		time.Sleep(time.Minute)
		if got, want := fmt.Sprint(c.locs()), "[a/0?a&b b/0?a&b]"; got != want || c.questions() != 3 {
			t.Errorf("got deliveries of %s and %d verifications, want %s and 3", got, c.questions(), want)
		}
	})
}

// A renewal that comes while a POST hangs waits until the POST has ended: its result counts, and the retry is
// signed as renewed.
func TestRenewalDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		w.published("first", 1) // so that the next one has all the time
		c.says(hang)
		w.published("a", 1)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "new"}})
		if got := c.questions(); got != 1 {
			t.Errorf("got %d verifications during the POST, want 1", got)
		}
		c.says(nil)
		w.pass(15 * time.Second)
		if tries, _, asked := c.counts(); tries != 3 || asked != 2 {
			t.Errorf("got %d POSTs and %d verifications, want 3 and 2", tries, asked)
		}
		c.check(0, 2)
		d := c.last()
		if got, want := d.header.Get("X-Hub-Signature"), signed("new", d.body); got != want || d.header.Get("RS-Attempt") != "2" {
			t.Errorf("got signature %q in attempt %s, want %q in attempt 2", got, d.header.Get("RS-Attempt"), want)
		}
		if got, _ := d.number(t); got != first(c.tries[1].number(t)) {
			t.Errorf("got delivery %d, want the number of the first attempt", got)
		}
		w.pass(saveEvery)
		if r := w.saved(id); r.Secret != "new" || r.Cursor != w.head() || r.Failed != 0 {
			t.Errorf("got record %+v, want the new secret and the cursor %v", r, w.head())
		}
	})
}

// first returns the first of two values.
func first[A, B any](a A, _ B) A { return a }

// An operator does not wait for a POST that hangs. A retry repeats it at once, with the same interval and
// number; after a removal nothing is delivered.
func TestOperatorCancelsDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		w.published("first", 1)
		c.says(hang)
		w.published("a", 1)
		w.operates(subscription.Retry, c.url)
		tries, _, _ := c.counts()
		if tries != 3 {
			t.Fatalf("got %d POSTs, want 3", tries)
		}
		if got, want := string(c.tries[2].body), string(c.tries[1].body); got != want {
			t.Errorf("got a repeated delivery of %s, want %s", got, want)
		}
		w.pass(saveEvery)
		if r := w.saved(id); r.Failed != 0 || r.Cursor.Position != 1 {
			t.Errorf("got %d failures and cursor %v, want none: the callback has not failed", r.Failed, r.Cursor)
		}
		w.operates(subscription.Remove, c.url)
		if !w.gone(id) {
			t.Error("the removal waits for the POST")
		}
		w.pass(time.Minute)
		if after, _, _ := c.counts(); after != tries {
			t.Errorf("got %d POSTs after the removal, want none", after-tries)
		}
	})
}

// A subscriber asks twice while the callback cannot answer. Its subscription starts where
// the first request said, also when the next hub makes it.
func TestFirstStartCounts(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c := w.listen("a.example")
				c.agrees(status(http.StatusServiceUnavailable))
				var id subscription.ID
				ask := func() {
					id = w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
				}
				ask()
				w.publish("a", 1)
				time.Sleep(time.Second)
				ask()
				w.publish("b", 1)
				time.Sleep(time.Second)
				ask()
				if crash {
					time.Sleep(time.Second)
					w.crash()
					w.start(callback.Options{})
				}
				c.agrees(nil)
				w.pass(time.Minute)
				c.check(0, 2)
				w.noRequests(id)
			})
		})
	}
}
