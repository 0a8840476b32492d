package callback

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/callback/subscription"
)

// metrics count what an Engine has done. Its current state is in gauges.
type metrics struct {
	deliveries prometheus.Counter
	bytes      prometheus.Counter
	changes    prometheus.Counter
	retries    prometheus.Counter
	gaps       prometheus.Counter
	ended      map[subscription.Mode]prometheus.Counter // by the mode that ended the subscription

	claimsGained prometheus.Counter
	claimsLost   prometheus.Counter
}

// callbackKind distinguishes callbacks from the other followers, which have metrics of the same names.
var callbackKind = prometheus.Labels{"kind": "callback"}

// newMetrics returns metrics, and registers them unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_callback_" + name, Help: help})
	}
	shared := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_" + name, Help: help, ConstLabels: callbackKind})
	}
	m := &metrics{
		deliveries:   shared("deliveries_total", "Messages, events, pages and requests with changes delivered to followers."),
		bytes:        shared("delivered_bytes_total", "Bytes delivered to followers."),
		changes:      shared("delivered_changes_total", "Changes delivered to followers."),
		retries:      counter("retries_total", "Retried deliveries."),
		gaps:         counter("gaps_total", "Subscriptions that fell behind retention: changes were gone before they could be delivered."),
		claimsGained: counter("claims_gained_total", "Claims on shards gained by this hub."),
		claimsLost:   counter("claims_lost_total", "Claims on shards lost by this hub, except those it released."),
		ended:        map[subscription.Mode]prometheus.Counter{},
	}
	reasons := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_callback_ended_total", Help: "Ended subscriptions by reason.",
	}, []string{"reason"})
	for mode, reason := range map[subscription.Mode]string{ended: "gone", expired: "lease", subscription.Unsubscribe: "unsubscribed", subscription.Remove: "removed", refused: "rights"} {
		m.ended[mode] = reasons.WithLabelValues(reason)
	}
	return m
}

// A Following is the callbacks that follow a set through this hub.
type Following struct {
	Subscriptions int
	Failing       int           // subscriptions whose last delivery failed
	Changes       uint64        // changes that the slowest subscription has not received
	Lag           time.Duration // age of the oldest change that a subscription has not received
}

// Following returns a Following for each set that has subscriptions in the shards of this hub. It does not
// examine subscriptions that have received everything.
func (e *Engine) Following() map[string]Following {
	e.mu.Lock()
	topics := slices.Collect(maps.Values(e.topics))
	e.mu.Unlock()
	all := make(map[string]Following, len(topics))
	for _, t := range topics {
		all[t.set] = t.following()
	}
	return all
}

// gauges is a prometheus.Collector of what an Engine does now.
type gauges struct{ engine *Engine }

func (g gauges) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, to) }

func (g gauges) Collect(to chan<- prometheus.Metric) {
	var all Following
	for _, f := range g.engine.Following() {
		all.Subscriptions, all.Failing = all.Subscriptions+f.Subscriptions, all.Failing+f.Failing
		all.Changes, all.Lag = max(all.Changes, f.Changes), max(all.Lag, f.Lag)
	}
	stale, locked := g.engine.counts.secrets()
	gauge := func(name, help string, v float64, labels prometheus.Labels) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("rshub_"+name, help, nil, labels), prometheus.GaugeValue, v)
	}
	gauge("callback_claims", "Shards of subscriptions claimed by this hub.", float64(len(g.engine.allShards())), nil)
	gauge("callback_subscriptions", "Subscriptions in the shards of this hub.", float64(all.Subscriptions), nil)
	gauge("callback_failing", "Subscriptions in the shards of this hub whose last delivery failed.", float64(all.Failing), nil)
	gauge("callback_stale_secrets", "Subscriptions in the shards of this hub whose secrets are in clear, or not encrypted with the first key.", float64(stale), nil)
	gauge("callback_locked", "Subscriptions in the shards of this hub that wait for the missing key of their secret.", float64(locked), nil)
	gauge("callback_in_flight", "Requests to callbacks in progress.", float64(g.engine.queue.inUse()), nil)
	gauge("followers", "Followers of this hub.", float64(all.Subscriptions), callbackKind)
	gauge("follower_lag_changes", "Changes that the slowest follower of this hub has not received yet.", float64(all.Changes), callbackKind)
	gauge("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not received yet, in seconds.", all.Lag.Seconds(), callbackKind)
}
