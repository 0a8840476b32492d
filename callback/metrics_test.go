package callback_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound/meter"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// A reader reads what is on a registry.
type reader struct {
	t        *testing.T
	registry *prometheus.Registry
}

// is fails the test unless the series have these values, to the millisecond.
func (r reader) is(want map[string]float64) {
	r.t.Helper()
	all := metricstest.Values(r.t, r.registry)
	for series, v := range want {
		if got, ok := all[series]; !ok || math.Abs(got-v) > 1e-3 {
			r.t.Errorf("%s is %v (there: %t), want %v", series, got, ok, v)
		}
	}
}

const (
	lagChanges = `rshub_follower_lag_changes{kind="callback"}`
	lagSeconds = `rshub_follower_lag_seconds{kind="callback"}`
)

func attemptsOf(kind, outcome string) string {
	return fmt.Sprintf("rshub_callback_attempts_total{kind=%q,outcome=%q}", kind, outcome)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := reader{t, prometheus.NewRegistry()}
		w := newLongWorld(t, callback.Options{Metrics: r.registry, Meter: meter.New(r.registry)})
		r.is(map[string]float64{
			"rshub_callback_claims": subscription.Shards, "rshub_callback_claims_gained_total": subscription.Shards, "rshub_callback_claims_lost_total": 0,
			"rshub_callback_subscriptions": 0, attemptsOf("delivery", "timeout"): 0, lagChanges: 0, lagSeconds: 0,
		})

		w.publish("old", 1)
		time.Sleep(5 * time.Minute)
		c, _ := w.subscribed()
		r.is(map[string]float64{
			"rshub_callback_subscriptions": 1, `rshub_followers{kind="callback"}`: 1, attemptsOf("verification", "success"): 1,
			`rshub_callback_attempt_duration_seconds{kind="verification"}`: 1,
		})

		w.published("a", 2)
		r.is(map[string]float64{
			`rshub_deliveries_total{kind="callback"}`: 1, `rshub_delivered_changes_total{kind="callback"}`: 2,
			`rshub_delivered_bytes_total{kind="callback"}`: float64(len(c.last().body)), attemptsOf("delivery", "success"): 1,
			`rshub_callback_attempt_duration_seconds{kind="delivery"}`: 1, lagChanges: 0, lagSeconds: 0,
		})

		// What is under way lags, from when it was published.
		c.says(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) })
		w.publish("b", 3)
		time.Sleep(2 * time.Second)
		r.is(map[string]float64{"rshub_callback_in_flight": 1, lagChanges: 3, lagSeconds: 2, "rshub_callback_failing": 0})
		c.says(status(500))
		w.publish("c", 1)
		w.pass(8 * time.Second)
		r.is(map[string]float64{"rshub_callback_in_flight": 0, lagChanges: 1, lagSeconds: 8, "rshub_callback_failing": 1, attemptsOf("delivery", "server_error"): 1})

		// A new change takes the subscription out of the pool of those that fail.
		w.published("d", 1)
		r.is(map[string]float64{lagChanges: 2, lagSeconds: 8, "rshub_callback_retries_total": 0})
		time.Sleep(5 * time.Minute)
		failed := int(metricstest.Values(t, r.registry)[attemptsOf("delivery", "server_error")])
		r.is(map[string]float64{"rshub_callback_retries_total": float64(failed - 1), lagSeconds: 308})
		c.says(nil)
		time.Sleep(6 * time.Minute)
		r.is(map[string]float64{"rshub_callback_retries_total": float64(failed), "rshub_callback_failing": 0, lagChanges: 0, lagSeconds: 0})
	})
}

// A hub that was just started knows of a subscription that is behind only the time of
// its last delivery.
func TestMetricsAfterAStart(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=long")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, _ := w.subscribed()
		w.published("a", 1)
		c.says(status(500))
		time.Sleep(time.Hour)
		w.publish("b", 1)
		time.Sleep(time.Hour)
		w.shutdown()
		r := reader{t, prometheus.NewRegistry()}
		w.start(callback.Options{Metrics: r.registry})
		r.is(map[string]float64{"rshub_callback_failing": 1, lagChanges: 1, lagSeconds: 7200})
		time.Sleep(6 * time.Minute) // longer than any wait for a try
		if got := metricstest.Values(t, r.registry)[lagSeconds]; got < 3960 || got > 3961 {
			t.Errorf("after an attempt the lag is %v seconds", got)
		}
	})
}

func TestMetricsOfEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := reader{t, prometheus.NewRegistry()}
		w := newLongWorld(t, callback.Options{Metrics: r.registry, Meter: meter.New(r.registry)})
		ended := func(reason string) string { return fmt.Sprintf("rshub_callback_ended_total{reason=%q}", reason) }

		c := w.listen("unsubscribes.example")
		w.subscribe(c)
		w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
		r.is(map[string]float64{ended("unsubscribed"): 1, attemptsOf("verification", "success"): 2, "rshub_callback_subscriptions": 0})

		c = w.listen("removed.example")
		w.subscribe(c)
		w.sent(subscription.Request{Mode: subscription.Remove, Callback: c.url})
		r.is(map[string]float64{ended("removed"): 1, attemptsOf("denial", "success"): 1})
		if why := c.question().Get("hub.reason"); !strings.Contains(why, "operator") {
			t.Errorf("the callback is told %q", why)
		}

		c = w.listen("gone.example")
		w.subscribe(c)
		c.says(status(410))
		w.published("a", 1)
		r.is(map[string]float64{ended("gone"): 1, attemptsOf("delivery", "gone"): 1, lagChanges: 0})

		c = w.listen("expires.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second})
		c.agrees(status(404))
		time.Sleep(301 * time.Second)
		r.is(map[string]float64{ended("lease"): 1, attemptsOf("denial", "client_error"): 1})

		c = w.listen("refuses.example")
		c.agrees(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "what?") })
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		r.is(map[string]float64{attemptsOf("verification", "other"): 1, "rshub_callback_subscriptions": 0})
	})
}

func TestMetricsOfGapsAndClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := reader{t, prometheus.NewRegistry()}
		w := newWorld(t, callback.Options{Metrics: r.registry, Meter: meter.New(r.registry)})
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		w.publish("a", 50)
		if _, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 20}); err != nil {
			t.Fatal(err)
		}
		c := w.listen("a.example")
		start := w.head()
		start.Position, start.Micros = 1, start.Micros-1_000_000
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: start})
		r.is(map[string]float64{"rshub_callback_gaps_total": 1})

		if _, err := w.registry.Acquire(t.Context(), []int{id.Shard()}); err != nil { // another hub takes the claim
			t.Fatal(err)
		}
		w.pass(time.Second) // a renewal finds out, and the shard is claimed again
		r.is(map[string]float64{
			"rshub_callback_claims_lost_total": 1, "rshub_callback_claims_gained_total": subscription.Shards + 1,
			"rshub_callback_claims": subscription.Shards, "rshub_callback_subscriptions": 1,
		})
		w.shutdown() // gives the claims up
		r.is(map[string]float64{"rshub_callback_claims_lost_total": 1, "rshub_callback_claims": 0, "rshub_callback_subscriptions": 0})
	})
}
