package callback_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/outbound"
)

func TestDeliver(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("old", 3)
		c := w.receiver("a.example")
		c.url += "?key=a%2Fb&x"
		id := w.request(c, subscription.Request{Terms: secret("hush"), Start: w.head()})
		c.wantRequests(0, 1)
		w.publish("a", 1)
		w.publish("b", 2)
		c.wantChanges(3, 3)
		p := c.posts.all()[0]
		for name, want := range map[string]string{
			"Content-Type":    "application/xml",
			"Link":            `<https://hub.example.org/sets/demo/changes>; rel="self", <https://hub.example.org/hub>; rel="hub", <https://hub.example.org/sets/demo/capabilitylist.xml>; rel="resourcesync"`,
			"X-Hub-Signature": signature("hush", p.body),
			"RS-Attempt":      "1", "RS-Previous": "3", "RS-Gap": "", "RS-Diverged": "", "Idempotency-Key": "", "User-Agent": outbound.UserAgent,
		} {
			if got := p.header.Values(name); len(got) > 1 || p.header.Get(name) != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		if p.uri != "/cb?key=a%2Fb&x" {
			t.Errorf("URI = %s, want /cb?key=a%%2Fb&x", p.uri)
		}
		w.pass(saveEvery)
		if r := w.record(id); r.Cursor != w.head() || len(r.Last) != 3 || r.Failed != 0 || r.Last[2].Status != 204 {
			t.Errorf("progress = %+v, want a verification and two deliveries up to %v", r.Progress, w.head())
		}
	})
}

// With rs.every, deliveries come in bursts: each ends at what was the head when it started, and the next
// starts after the interval. An operator need not wait.
func TestEvery(t *testing.T) {
	inWorld(t, callback.Options{MaxChanges: 10}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Terms: subscription.Terms{Every: 10 * time.Minute}})
		want := func(accepted int) {
			t.Helper()
			if got := c.accepted.len(); got != accepted {
				t.Fatalf("got %d deliveries, want %d", got, accepted)
			}
		}
		w.publish("a", 1)
		want(1)
		for range 9 {
			w.pass(time.Minute)
			w.publish("b", 4)
		}
		want(1)
		if f := w.engine.Following()["demo"]; f != (callback.Following{Subscriptions: 1}) {
			t.Errorf("Following() = %+v, want a subscription without lag", f)
		}
		w.pass(time.Minute + time.Second)
		want(6) // nine publishes of four changes are five deliveries, one after the other
		w.publish("c", 1)
		w.pass(9 * time.Minute)
		want(6)
		w.do(subscription.Retry, c)
		want(7)
		c.respond(fail)
		w.pass(11 * time.Minute)
		w.publish("d", 1)
		want(7)
		c.respond(accept)
		w.pass(time.Minute) // the interval does not delay a retry
		want(8)
		c.wantChanges(0, 39)
		if got := w.record(id).Every; got != 10*time.Minute {
			t.Errorf("stored interval = %v, want 10m", got)
		}
	})
}

// A burst that was in progress when its set was deleted does not continue in the set that is made next.
func TestEveryAfterDeletion(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: subscription.Terms{Every: 12 * time.Minute}})
		c.respond(fail)
		w.publish("a", 9)
		w.deleteSet()
		c.respond(accept)
		w.pass(2 * time.Minute)
		for _, name := range []string{"b", "c", "d"} {
			w.publish(name, 1)
			w.pass(2 * time.Minute)
		}
		c.wantNames("b/0")
	})
}

// After an hour of failures, in which the cut that failed is repeated, the rest of the backlog is one
// delivery.
func TestFailsForAnHour(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.respond(fail)
		w.publish("first", 2)
		for i := range 60 {
			w.pass(time.Minute)
			w.publish(fmt.Sprint("later", i), 1)
		}
		posts := c.posts.all()
		for i, p := range posts {
			if !bytes.Equal(p.body, posts[0].body) || p.header.Get("RS-Attempt") != fmt.Sprint(i+1) {
				t.Fatalf("attempt %d (RS-Attempt %s) does not repeat the cut", i+1, p.header.Get("RS-Attempt"))
			}
		}
		if r := w.record(id); r.Failed < 10 || r.Cursor.Position != 0 || len(r.Last) != subscription.MaxAttempts || r.Last[0].Status != 500 || r.Last[0].Error == "" {
			t.Errorf("progress = %+v, want ten failures or more at position 0", r.Progress)
		}
		c.respond(accept)
		w.pass(lastRetry + lastRetry/5)
		c.wantChanges(0, 62)
		if n := c.accepted.len(); n != 2 {
			t.Errorf("got %d deliveries, want the cut that failed and one more", n)
		}
	})
}

// While nothing is published, each wait for a retry is twice the one before.
func TestBackoff(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		c.respond(status(503))
		w.publish("a", 1)
		w.pass(time.Hour)
		posts, want := c.posts.all(), firstRetry
		for i := 1; i < len(posts); i++ {
			if got := posts[i].at.Sub(posts[i-1].at); got < want*4/5 || got > want*6/5+time.Millisecond {
				t.Errorf("wait %d = %v, want about %v", i, got, want)
			}
			want = min(2*want, lastRetry)
		}
		if n := len(posts); n < 18 || n > 24 {
			t.Errorf("got %d attempts in an hour, want 18 to 24", n)
		}
	})
}

// A change brings a late retry forward, but a stream of changes does not flood a callback that fails.
func TestChangesHastenRetry(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		c.respond(fail)
		for range 2000 {
			w.publish("a", 1)
			w.pass(5 * time.Millisecond)
		}
		if n := c.posts.len(); n > 11 {
			t.Errorf("got %d attempts in ten seconds, want at most 11", n)
		}
		w.pass(20 * time.Minute) // after that, waits are long
		before := c.posts.len()
		for range 600 {
			w.publish("a", 1)
			w.pass(time.Second)
		}
		if n := c.posts.len() - before; n < 15 || n > 40 {
			t.Errorf("got %d attempts in ten minutes with a change each second, want 15 to 40", n)
		}
		w.pass(10 * time.Minute)
		for time.Since(c.last().at) < time.Minute {
			w.pass(time.Second)
		}
		c.respond(accept)
		w.publish("a", 1)
		if c.accepted.len() == 0 {
			t.Error("a change did not bring the retry forward")
		}
		w.pass(time.Minute)
		c.wantChanges(0, 2601)
	})
}

// All statuses but 2xx and 410 are failures, and redirects are not followed.
func TestStatuses(t *testing.T) {
	for _, code := range []int{301, 307, 400, 404, 429, 500} {
		runInWorld(t, fmt.Sprint(code), callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscriber()
			c.respond(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://a.example/elsewhere")
				w.WriteHeader(code)
			})
			w.publish("a", 1)
			w.pass(saveEvery)
			if r := w.record(id); r.Failed != 1 || r.Last[1].Status != code || r.Cursor.Position != 0 {
				t.Errorf("progress = %+v, want one failure with status %d at position 0", r.Progress, code)
			}
			c.respond(status(200))
			w.pass(3 * time.Second)
			c.wantChanges(0, 1)
			c.wantRequests(2, 1)
		})
	}
}

func TestGoneEnds(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.respond(status(http.StatusGone))
		w.publish("a", 1)
		w.wantGone(id)
		w.publish("b", 1)
		w.pass(lastRetry * 2)
		c.wantRequests(1, 1)
		w.wantMetric("subscriptions", 0)
		w.wantNothingLeft()
	})
}

func TestRetryAfter(t *testing.T) {
	long(t)
	for _, tt := range []struct {
		name, value string
		date        time.Duration // instead of value: time from now to the date
		min, max    time.Duration
	}{
		{name: "seconds", value: "120", min: 120 * time.Second, max: 121 * time.Second},
		{name: "date", date: 3 * time.Minute, min: 179 * time.Second, max: 181 * time.Second},
		{name: "more than an hour", value: "999999", min: longestWait, max: longestWait + time.Second},
		{name: "past", value: "Mon, 02 Jan 1989 15:04:05 GMT", max: 2 * time.Second},
		{name: "zero", value: "0", max: 2 * time.Second},
		{name: "invalid", value: "-5", max: 2 * time.Second},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c, _ := w.subscriber()
			c.respond(func(w http.ResponseWriter, _ *http.Request) {
				value := tt.value
				if tt.date > 0 {
					value = time.Now().Add(tt.date).UTC().Format(http.TimeFormat)
				}
				w.Header().Set("Retry-After", value)
				w.WriteHeader(429)
			})
			w.publish("a", 1)
			c.respond(accept)
			published := 1
			for c.accepted.len() == 0 { // changes do not bring the retry forward
				w.publish("b", 1)
				published++
				w.pass(time.Minute + time.Second)
			}
			posts := c.posts.all()
			if wait := posts[1].at.Sub(posts[0].at); wait < tt.min || wait > max(tt.max, time.Minute+2*time.Second+tt.min) {
				t.Errorf("retry after %v, want %v to %v", wait, tt.min, tt.max)
			}
			c.wantChanges(0, published)
		})
	}
}

// A callback that responded 413 for a while receives its backlog in large deliveries once it works again.
func TestTooLargeIsForgotten(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		c.respond(status(http.StatusRequestEntityTooLarge))
		w.publish("a", 1000)
		w.publish("a", 1000)
		w.pass(15 * time.Second)
		if n := c.posts.len(); n > 20 { // once a delivery has one change, 413 is a failure like any other
			t.Errorf("got %d attempts in 15 seconds, want at most 20", n)
		}
		c.respond(accept)
		w.pass(lastRetry * 6 / 5)
		c.wantChanges(0, 2000)
		if n := c.accepted.len(); n > 20 {
			t.Errorf("got %d deliveries of 2,000 changes, want at most 20", n)
		}
		if n := len(c.last().doc.Items); n < 500 {
			t.Errorf("the last delivery has %d changes, want at least 500", n)
		}
	})
}

// The first delivery to a callback has less time than later ones. A slow callback receives it again, with
// all the time.
func TestFirstDeliveryIsShort(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		c.respond(after(8*time.Second, accept))
		w.publish("a", 1)
		w.pass(5500 * time.Millisecond) // the retry starts after 5.8 s at the earliest
		w.wantMetric("in_flight", 0)
		w.pass(20 * time.Second)
		c.wantChanges(0, 1)
		c.wantRequests(2, 1)
	})
}

// A time of the next attempt that was stored while the clock was ahead does not delay it until then.
func TestNextByAWrongClock(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.respond(fail)
		w.publish("a", 3)
		w.pass(time.Second)
		r := w.record(id)
		w.crash()
		r.Next = time.Now().Add(9 * 24 * time.Hour)
		w.put(r)
		c.respond(accept)
		w.lose(func(i int) bool { return i != id.Shard() }) // the inboxes of all shards are checked twice a second
		w.start()
		w.pass(longestWait + time.Second)
		c.wantChanges(0, 3)
	})
}

// Progress is stored within 100 ms of a delivery, so a crash repeats no more than that. A shutdown repeats
// nothing.
func TestSaved(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.publish("a", 1)
		w.pass(saveEvery)
		if got := w.record(id).Cursor.Position; got != 1 {
			t.Fatalf("stored position after %v = %d, want 1", saveEvery, got)
		}
		w.publish("b", 2) // is not stored yet
		w.recover()
		c.wantNames("a/0 b/0 b/1 b/0 b/1")
		w.publish("c", 1)
		w.restart()
		c.wantNames("a/0 b/0 b/1 b/0 b/1 c/0")
	})
}

// Each retry of a cut has its number, and the numbers for a callback otherwise only rise, whatever happens to
// its subscription.
func TestDeliveryNumber(t *testing.T) {
	unsubscribe := func(t *testing.T, w *world, c *receiver, id subscription.ID) {
		if w.do(subscription.Unsubscribe, c); w.exists(id) {
			t.Fatal("the subscription still exists")
		}
	}
	for _, tt := range []struct {
		name   string
		happen func(t *testing.T, w *world, c *receiver, id subscription.ID)
	}{
		{"nothing", func(*testing.T, *world, *receiver, subscription.ID) {}},
		{"restart", func(_ *testing.T, w *world, _ *receiver, _ subscription.ID) { w.restart() }},
		{"crash before progress is stored", func(_ *testing.T, w *world, _ *receiver, _ subscription.ID) {
			w.pass(time.Millisecond)
			w.recover()
		}},
		{"renewal", func(_ *testing.T, w *world, c *receiver, _ subscription.ID) {
			w.request(c, subscription.Request{Terms: secret("new")})
		}},
		{"move", func(_ *testing.T, w *world, c *receiver, _ subscription.ID) {
			w.request(c, subscription.Request{Mode: subscription.Move, Start: w.head()})
		}},
		{"new subscription", func(t *testing.T, w *world, c *receiver, id subscription.ID) {
			unsubscribe(t, w, c, id)
			w.subscribe(c)
		}},
		{"new subscription after a crash", func(t *testing.T, w *world, c *receiver, id subscription.ID) {
			unsubscribe(t, w, c, id)
			w.pass(time.Second)
			w.recover()
			w.subscribe(c)
		}},
		{"restore of an older record", func(t *testing.T, w *world, _ *receiver, id subscription.ID) {
			w.pass(saveEvery)
			data, key := w.log.Bucket("callback"), "record/"+string(id[:])+"/progress"
			old, err := data.Get(t.Context(), key)
			ok(t, err)
			for i := range 10 {
				w.publish(fmt.Sprint("lost", i), 1)
			}
			w.pass(saveEvery)
			w.crash()
			ok(t, data.Apply(t.Context(), map[string][]byte{key: old}, false))
			w.start()
		}},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscriber()
			w.publish("a", 1)
			w.pass(time.Millisecond)
			w.publish("b", 2)
			tt.happen(t, w, c, id)
			c.respond(fail)
			w.publish("c", 1)
			w.pass(time.Minute)
			c.respond(accept)
			w.pass(time.Minute)
			w.publish("d", 1)

			last, bodies, posts := uint64(0), map[uint64]string{}, c.posts.all()
			for i, p := range posts {
				if p.number < last {
					t.Errorf("delivery %d has number %d after %d", i, p.number, last)
				}
				if body, known := bodies[p.number]; known && body != string(p.body) {
					t.Errorf("two deliveries have the number %d", p.number)
				}
				if p.header.Get("RS-Gap") != "" {
					t.Errorf("delivery %d has interval %s, want no gap", i, p.interval())
				}
				bodies[p.number], last = string(p.body), p.number
			}
			if len(posts) < 6 || len(bodies) == len(posts) {
				t.Errorf("got %d deliveries with %d numbers, want six or more, and a retry", len(posts), len(bodies))
			}
			w.pass(saveEvery)
			if got := w.record(id).Delivery; got != last {
				t.Errorf("stored number = %d, want %d", got, last)
			}
		})
	}
}
