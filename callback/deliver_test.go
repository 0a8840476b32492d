package callback_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/outbound"
)

func TestDeliver(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("old", 3)
		c := w.listen("a.example")
		c.url += "?key=a%2Fb&x"
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "hush"}, Start: w.head()})
		if tries, _, asked := c.counts(); tries != 0 || asked != 1 {
			t.Fatalf("%d deliveries and %d questions before anything new", tries, asked)
		}
		w.publish("a", 1)
		w.settled() // or both are one delivery, now and then
		w.published("b", 2)
		c.check(3, 3)
		d := c.took[0]
		for name, want := range map[string]string{
			"Content-Type":    "application/xml",
			"Link":            `<https://hub.example.org/sets/demo/changes>; rel="self", <https://hub.example.org/hub>; rel="hub", <https://hub.example.org/sets/demo/capabilitylist.xml>; rel="resourcesync"`,
			"X-Hub-Signature": signed("hush", d.body),
			"RS-Attempt":      "1", "RS-Previous": "3", "RS-Gap": "", "RS-Diverged": "", "Idempotency-Key": "", "User-Agent": outbound.UserAgent,
		} {
			if got := d.header.Values(name); len(got) > 1 || d.header.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if d.uri != "/cb?key=a%2Fb&x" {
			t.Errorf("the request is for %s", d.uri)
		}
		w.pass(saveEvery)
		if r := w.saved(id); r.Cursor != w.head() || len(r.Last) != 3 || r.Failed != 0 || r.Last[2].Status != 204 {
			t.Errorf("saved: %+v", r.Progress)
		}
	})
}

// With rs.every, deliveries come in bursts: each goes to the end of what there was when it
// began, and the next begins no sooner than the interval after it. An operator need not wait.
func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{MaxChanges: 10})
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head(), Terms: subscription.Terms{Every: 10 * time.Minute}})
		took := func(want int) {
			t.Helper()
			w.settled()
			if _, took, _ := c.counts(); took != want {
				t.Fatalf("%d deliveries, want %d", took, want)
			}
		}
		w.publish("a", 1)
		took(1) // at once
		for range 9 {
			time.Sleep(time.Minute)
			w.publish("b", 4)
		}
		took(1)
		if f := w.engine.Following()["demo"]; f.Subscriptions != 1 || f.Changes != 0 || f.Lag != 0 {
			t.Errorf("who waits for its interval is behind: %+v", f)
		}
		time.Sleep(time.Minute + time.Second)
		took(6) // nine publishes of four changes are five deliveries, one after the other
		w.publish("c", 1)
		time.Sleep(9 * time.Minute)
		took(6)
		w.send(subscription.Request{Mode: subscription.Retry, Callback: c.url})
		took(7)
		c.says(status(500))
		time.Sleep(11 * time.Minute)
		w.publish("d", 1)
		took(7)
		c.says(nil)
		time.Sleep(time.Minute) // a failure is tried again sooner
		took(8)
		c.check(0, 39)
		if r := w.saved(id); r.Every != 10*time.Minute {
			t.Errorf("saved is %v", r.Every)
		}
	})
}

// What cannot be delivered for an hour comes coalesced, in order and complete.
func TestFailsForAnHour(t *testing.T) {
	long(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, id := w.subscribed()
		c.says(status(500))
		w.published("first", 2)
		first := c.last()
		for i := range 60 {
			time.Sleep(time.Minute)
			w.publish(fmt.Sprint("later", i), 1)
		}
		w.settled()
		for i, d := range c.tries {
			if string(d.body) != string(first.body) || d.header.Get("RS-Attempt") != fmt.Sprint(i+1) {
				t.Fatalf("try %d (RS-Attempt %s) does not repeat the cut", i+1, d.header.Get("RS-Attempt"))
			}
		}
		if r := w.saved(id); r.Failed < 10 || r.Cursor.Position != 0 || len(r.Last) != subscription.MaxAttempts || r.Last[0].Status != 500 || r.Last[0].Error == "" {
			t.Errorf("saved: %+v", r.Progress)
		}
		c.says(nil)
		w.pass(lastRetry + lastRetry/5)
		c.check(0, 62)
		if _, took, _ := c.counts(); took != 2 {
			t.Errorf("the backlog came in %d deliveries, want the cut that failed and one more", took)
		}
	})
}

// As long as nothing new comes, the waits between tries grow.
func TestBackoff(t *testing.T) {
	long(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, _ := w.subscribed()
		c.says(status(503))
		w.publish("a", 1)
		w.pass(time.Hour)
		want := firstRetry
		for i := 1; i < len(c.tries); i++ {
			got := c.tries[i].at.Sub(c.tries[i-1].at)
			if got < want*4/5 || got > want*6/5+time.Millisecond {
				t.Errorf("wait %d is %v, want about %v", i, got, want)
			}
			want = min(2*want, lastRetry)
		}
		if n := len(c.tries); n < 18 || n > 24 {
			t.Errorf("%d tries in an hour", n)
		}
	})
}

// A stream of changes does not hammer a callback that is dead; a change that
// comes later than that brings the try forward.
func TestNewChangesTryAgain(t *testing.T) {
	long(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, _ := w.subscribed()
		c.says(status(500))
		for range 2000 {
			w.publish("a", 1)
			time.Sleep(5 * time.Millisecond)
		}
		if n, _, _ := c.counts(); n > 11 {
			t.Errorf("%d tries in ten seconds", n)
		}
		time.Sleep(20 * time.Minute) // the waits are long by now
		before, _, _ := c.counts()
		for range 600 {
			w.publish("a", 1)
			time.Sleep(time.Second)
		}
		after, _, _ := c.counts()
		if n := after - before; n < 15 || n > 40 {
			t.Errorf("%d tries in ten minutes with a change each second", n)
		}
		time.Sleep(10 * time.Minute)
		for time.Since(c.last().at) < time.Minute {
			time.Sleep(time.Second)
		}
		c.says(nil)
		w.published("a", 1)
		if _, took, _ := c.counts(); took == 0 {
			t.Error("a change did not bring the try forward")
		}
		time.Sleep(time.Minute)
		c.check(0, 2601)
	})
}

func TestStatuses(t *testing.T) {
	for _, code := range []int{301, 307, 400, 404, 429, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c, id := w.subscribed()
				c.says(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://a.example/elsewhere")
					w.WriteHeader(code)
				})
				w.publish("a", 1)
				w.pass(saveEvery)
				if r := w.saved(id); r.Failed != 1 || r.Last[1].Status != code || r.Cursor.Position != 0 {
					t.Errorf("saved: %+v", r.Progress)
				}
				c.says(status(200))
				w.pass(3 * time.Second)
				c.check(0, 1)
				if n, _, _ := c.counts(); n != 2 {
					t.Errorf("%d tries, want 2", n)
				}
			})
		})
	}
}

func TestGoneEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, id := w.subscribed()
		c.says(status(410))
		w.published("a", 1)
		if !w.gone(id) {
			t.Error("the subscription is still there")
		}
		w.publish("b", 1)
		time.Sleep(lastRetry * 2)
		if tries, _, asked := c.counts(); tries != 1 || asked != 1 {
			t.Errorf("%d tries and %d questions, want one of each", tries, asked)
		}
		w.settled()
		if n, left := w.gauge("subscriptions"), w.engine.Remains(); n != 0 || left != 0 {
			t.Errorf("got %d subscriptions, and %d remains of others, want none", n, left)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	long(t)
	for name, test := range map[string]struct {
		value    func() string
		min, max time.Duration
	}{
		"seconds":  {func() string { return "120" }, 120 * time.Second, 121 * time.Second},
		"date":     {func() string { return time.Now().Add(3 * time.Minute).UTC().Format(http.TimeFormat) }, 179 * time.Second, 181 * time.Second},
		"capped":   {func() string { return "999999" }, time.Hour, time.Hour + time.Second},
		"past":     {func() string { return "Mon, 02 Jan 1989 15:04:05 GMT" }, 0, 2 * time.Second},
		"zero":     {func() string { return "0" }, 0, 2 * time.Second},
		"nonsense": {func() string { return "-5" }, 0, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newLongWorld(t, callback.Options{})
				c, _ := w.subscribed()
				c.says(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", test.value())
					w.WriteHeader(429)
				})
				w.published("a", 1)
				c.says(nil)
				published := 1
				for _, took, _ := c.counts(); took == 0; _, took, _ = c.counts() { // nothing new comes before Retry-After
					w.publish("b", 1)
					published++
					time.Sleep(time.Minute + time.Second)
				}
				if wait := c.tries[1].at.Sub(c.tries[0].at); wait < test.min || wait > max(test.max, time.Minute+2*time.Second+test.min) {
					t.Errorf("tried again after %v", wait)
				}
				c.check(0, published)
			})
		})
	}
}

// A callback that answered 413 for a while gets its backlog in large deliveries again
// once it is well.
func TestTooLargeIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, _ := w.subscribed()
		c.says(status(http.StatusRequestEntityTooLarge))
		for range 2 {
			w.publish("a", 1000)
		}
		time.Sleep(15 * time.Second)               // by then a delivery has one change
		if tries, _, _ := c.counts(); tries > 20 { // not even one change fits: it is tried again as after any other failure
			t.Errorf("%d tries in 15 seconds", tries)
		}
		c.says(nil)
		w.pass(lastRetry * 6 / 5)
		c.check(0, 2000)
		if _, took, _ := c.counts(); took > 20 {
			t.Errorf("2,000 changes took %d deliveries", took)
		}
		if n := len(c.last().doc.Items); n < 500 {
			t.Errorf("the last delivery has %d changes", n)
		}
	})
}
