package callback_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

const (
	lagChanges = `rshub_follower_lag_changes{kind="callback"}`
	lagSeconds = `rshub_follower_lag_seconds{kind="callback"}`
)

func attempts(kind, outcome string) string {
	return fmt.Sprintf("rshub_callback_attempts_total{kind=%q,outcome=%q}", kind, outcome)
}

func TestMetrics(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.wantMetrics(map[string]float64{
			"rshub_callback_claims": subscription.Shards, "rshub_callback_claims_gained_total": subscription.Shards, "rshub_callback_claims_lost_total": 0,
			"rshub_callback_subscriptions": 0, attempts("delivery", "timeout"): 0, lagChanges: 0, lagSeconds: 0,
		})

		w.publish("old", 1)
		w.pass(5 * time.Minute)
		c, _ := w.subscriber()
		w.wantMetrics(map[string]float64{
			"rshub_callback_subscriptions": 1, `rshub_followers{kind="callback"}`: 1, attempts("verification", "success"): 1,
			`rshub_callback_attempt_duration_seconds{kind="verification"}`: 1,
		})

		w.publish("a", 2)
		w.wantMetrics(map[string]float64{
			`rshub_deliveries_total{kind="callback"}`: 1, `rshub_delivered_changes_total{kind="callback"}`: 2,
			`rshub_delivered_bytes_total{kind="callback"}`: float64(len(c.last().body)), attempts("delivery", "success"): 1,
			`rshub_callback_attempt_duration_seconds{kind="delivery"}`: 1, lagChanges: 0, lagSeconds: 0,
		})

		// Changes in a delivery lag from when they were published.
		c.respond(after(10*time.Second, accept))
		w.publish("b", 3)
		w.pass(2 * time.Second)
		w.wantMetrics(map[string]float64{"rshub_callback_in_flight": 1, lagChanges: 3, lagSeconds: 2, "rshub_callback_failing": 0})
		c.respond(fail)
		w.publish("c", 1)
		w.pass(8 * time.Second)
		w.wantMetrics(map[string]float64{
			"rshub_callback_in_flight": 0, lagChanges: 1, lagSeconds: 8, "rshub_callback_failing": 1, attempts("delivery", "server_error"): 1,
		})

		// A new change takes the subscription out of the pool of those that fail.
		w.publish("d", 1)
		w.wantMetrics(map[string]float64{lagChanges: 2, lagSeconds: 8, "rshub_callback_retries_total": 0})
		w.pass(5 * time.Minute)
		failed := metricstest.Values(t, w.metrics)[attempts("delivery", "server_error")]
		w.wantMetrics(map[string]float64{"rshub_callback_retries_total": failed - 1, lagSeconds: 308})
		c.respond(accept)
		w.pass(6 * time.Minute)
		w.wantMetrics(map[string]float64{"rshub_callback_retries_total": failed, "rshub_callback_failing": 0, lagChanges: 0, lagSeconds: 0})
	})
}

// A hub that was just started only knows the time of the last delivery of a subscription that is behind.
func TestMetricsAfterAStart(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.publish("a", 1)
		c.respond(fail)
		w.pass(time.Hour)
		w.publish("b", 1)
		w.pass(time.Hour)
		w.restart()
		w.wantMetrics(map[string]float64{"rshub_callback_failing": 1, lagChanges: 1, lagSeconds: 7200})
		w.pass(6 * time.Minute) // longer than any wait for a retry
		if got := metricstest.Values(t, w.metrics)[lagSeconds]; got < 3960 || got > 3961 {
			t.Errorf("%s after an attempt = %v, want 3960", lagSeconds, got)
		}
	})
}

func TestMetricsOfEnds(t *testing.T) {
	ended := func(reason string) string { return fmt.Sprintf("rshub_callback_ended_total{reason=%q}", reason) }
	for _, tt := range []struct {
		name string
		end  func(w *world, c *receiver)
		want []string // metrics that are 1
	}{
		{"unsubscribed", func(w *world, c *receiver) { w.do(subscription.Unsubscribe, c) }, []string{ended("unsubscribed")}},
		{"removed", func(w *world, c *receiver) { w.do(subscription.Remove, c) }, []string{ended("removed"), attempts("denial", "success")}},
		{"gone", func(w *world, c *receiver) {
			c.respond(status(http.StatusGone))
			w.publish("a", 1)
		}, []string{ended("gone"), attempts("delivery", "gone")}},
		{"lease", func(w *world, c *receiver) {
			c.verify(status(404))
			w.pass(301 * time.Second)
		}, []string{ended("lease"), attempts("denial", "client_error")}},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c := w.receiver("a.example")
			w.request(c, subscription.Request{Lease: 300 * time.Second})
			tt.end(w, c)
			for _, name := range tt.want {
				w.wantMetrics(map[string]float64{name: 1, "rshub_callback_subscriptions": 0, lagChanges: 0})
			}
			if tt.name == "removed" {
				c.wantDenials("removed by the operator of the hub")
			}
		})
	}
}

// An activity notes what it receives.
type activity struct {
	outcomes  list[string]
	delivered atomic.Int64
}

func (a *activity) Called(o callback.Outcome) {
	a.outcomes.add(fmt.Sprintf("%s %s %d %t %q by %s", o.Set, o.Kind, o.Status, o.Final, o.Error, o.By))
}

func (a *activity) Delivered(_ string, changes int) { a.delivered.Add(int64(changes)) }

// An Activity receives failures with their causes, whether they are final, and successes after them.
func TestOutcomes(t *testing.T) {
	a := &activity{}
	inWorld(t, callback.Options{Activity: a}, func(t *testing.T, w *world) {
		check := func(step string, want ...string) {
			t.Helper()
			if got := a.outcomes.popAll(); !slices.Equal(got, want) {
				t.Errorf("%s: got outcomes\n%q, want\n%q", step, got, want)
			}
		}
		following := func(want callback.Following) {
			t.Helper()
			got := w.engine.Following()["demo"]
			if got.Lag = 0; got != want {
				t.Errorf("Following() = %+v, want %+v", got, want)
			}
		}
		c := w.receiver("refuses.example")
		c.verify(text("what?"))
		w.request(c, subscription.Request{By: bob})
		check("a wrong challenge", `demo subscribe 200 true "response body: got \"what?\", want the challenge" by token bob`)
		w.wantMetrics(map[string]float64{attempts("verification", "other"): 1, "rshub_callback_subscriptions": 0})

		c = w.receiver("down.example")
		c.verify(status(503))
		w.do(subscription.Subscribe, c)
		const unavailable = `"response does not confirm: Service Unavailable" by token alice`
		check("a callback that is down", `demo subscribe 503 false `+unavailable)
		w.pass(time.Minute)
		check("it stays down", `demo subscribe 503 false `+unavailable, `demo subscribe 503 true `+unavailable)

		c = w.receiver("good.example")
		w.subscribe(c)
		check("a confirmation", `demo subscribe 200 true "" by token alice`)
		w.publish("a", 2)
		check("a delivery")
		c.respond(fail)
		w.publish("b", 3)
		check("a failed delivery", `demo deliver 500 false "unsuccessful response: Internal Server Error" by `)
		following(callback.Following{Subscriptions: 1, Failing: 1, Changes: 3})
		c.respond(status(200))
		w.pass(10 * time.Second)
		check("a success", `demo deliver 200 false "" by `)
		if n := a.delivered.Load(); n != 5 {
			t.Errorf("got %d delivered changes, want 5", n)
		}
		following(callback.Following{Subscriptions: 1})
	})
}

// TestIdleMemory checks what a subscription costs while nothing happens: memory for itself, and no
// goroutine. Each has the maximum number of attempts, which take nearly half of the memory.
func TestIdleMemory(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		const n, sets, most = 100_000, 10, 2048
		w := newWorld(t, callback.Options{}, 0)
		w.lose(func(int) bool { return true })
		w.pass(time.Second)
		before, goroutines := heapBytes(), runtime.NumGoroutine()
		w.store.onLoad(func(shard int) recordsFunc {
			return func(yield func(subscription.Record, error) bool) {
				for i := range n {
					if i%subscription.Shards == shard && !yield(idleRecord(i, sets), nil) {
						return
					}
				}
			}
		})
		w.lose(func(int) bool { return false })
		w.pass(time.Second)
		w.wantMetric("subscriptions", n)
		per := float64(heapBytes()-before) / n
		if extra := runtime.NumGoroutine() - goroutines; extra > sets {
			t.Errorf("got %d more goroutines, want at most %d", extra, sets)
		}
		t.Logf("%.0f bytes for each idle subscription", per)
		if per > most {
			t.Errorf("got %.0f bytes for each idle subscription, want at most %d", per, most)
		}
	})
}

// idleRecord returns the record of subscription i to one of the sets.
func idleRecord(i, sets int) subscription.Record {
	r := subscription.Record{
		Subscription: subscription.Subscription{
			Set: fmt.Sprint("set", i%sets), Callback: fmt.Sprintf("https://subscriber-%d.example.org/callbacks/resourcesync?key=%032x", i%1000, i),
			Terms: subscription.Terms{Secret: fmt.Sprintf("%032x", i)}, LeaseEnd: time.Now().Add(time.Hour), Token: fmt.Sprintf("%026d", i), Made: time.Now(), Renewed: time.Now(),
		},
		Progress: subscription.Progress{Last: make([]subscription.Attempt, subscription.MaxAttempts)},
	}
	for k := range r.Last {
		r.Last[k] = subscription.Attempt{At: time.Now(), Kind: "deliver", Status: 200, Took: time.Second, Changes: 1}
	}
	return r
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
