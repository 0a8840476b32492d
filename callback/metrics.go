package callback

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/callback/subscription"
)

// metrics count what an Engine has done. What an Engine is doing now is looked at when
// somebody asks: see present.
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

// callbackKind tells callbacks from the other followers, which package subscribe
// counts under the same names.
var callbackKind = prometheus.Labels{"kind": "callback"}

// newMetrics returns metrics that are registered, unless r is nil.
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

// A present is what an Engine is doing now.
type present struct {
	claims        int
	subscriptions int
	stale, locked int           // subscriptions whose secrets are to be encrypted anew; that wait for a key
	failing       int           // subscriptions whose last attempt failed
	inFlight      int           // requests under way
	lagChanges    uint64        // of the subscription that has most changes before it
	lag           time.Duration // of the subscription whose next change is the oldest
}

// present looks at every topic and at the subs that are behind, but not at those that
// are current: there may be very many.
func (e *Engine) present() present {
	st := e.lock()
	defer st.unlock()
	p := present{claims: len(st.shards), stale: st.stale, inFlight: st.slots.all.inUse()}
	for _, n := range st.missing {
		p.locked += n
	}
	for _, t := range st.topics {
		p.subscriptions, p.failing = p.subscriptions+t.subs, p.failing+t.failed
		changes, lag := t.lag()
		p.lagChanges, p.lag = max(p.lagChanges, changes), max(p.lag, lag)
	}
	return p
}

// A Following says which callbacks follow a set by this hub.
type Following struct {
	Subscriptions int
	Failing       int           // of these, the ones whose last attempt failed
	Changes       uint64        // of the subscription that has most changes before it
	Lag           time.Duration // of the subscription whose next change is the oldest
}

// Following returns a Following for each set that has subscriptions in the shards of this
// hub. It looks at those that are behind, but not at those that are current.
func (e *Engine) Following() map[string]Following {
	st := e.lock()
	defer st.unlock()
	all := make(map[string]Following, len(st.topics))
	for set, t := range st.topics {
		changes, lag := t.lag()
		all[set] = Following{Subscriptions: t.subs, Failing: t.failed, Changes: changes, Lag: lag}
	}
	return all
}

// lag returns how many changes are before the sub that is most behind, and the age of the
// oldest change that is before any sub.
func (t *topic) lag() (most uint64, age time.Duration) {
	now := time.Now().UnixMicro()
	oldest := now
	for _, some := range [...]pool{t.behind, t.failing} {
		for _, s := range some {
			if changes, since := s.lag(); changes > 0 {
				most, oldest = max(most, changes), min(oldest, since)
			}
		}
	}
	return most, time.Duration(now-oldest) * time.Microsecond
}

// lag returns how many changes are before a sub in its set's log, and when the
// first of them was accepted, in microseconds. Where that is not known it returns the
// time of what was delivered last.
func (s *sub) lag() (changes uint64, since int64) {
	head := s.topic.head
	if !s.topic.ready || head.Position <= s.Cursor.Position {
		return 0, 0
	}
	return head.Position - s.Cursor.Position, cmp.Or(s.first, s.Cursor.Micros, head.Micros)
}

// gauges tell what an Engine is doing, as a prometheus.Collector.
type gauges struct{ engine *Engine }

func (g gauges) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, to) }

func (g gauges) Collect(to chan<- prometheus.Metric) {
	p := g.engine.present()
	gauge := func(name, help string, v float64, labels prometheus.Labels) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("rshub_"+name, help, nil, labels), prometheus.GaugeValue, v)
	}
	gauge("callback_claims", "Shards of subscriptions claimed by this hub.", float64(p.claims), nil)
	gauge("callback_subscriptions", "Subscriptions in the shards of this hub.", float64(p.subscriptions), nil)
	gauge("callback_failing", "Subscriptions in the shards of this hub whose last delivery failed.", float64(p.failing), nil)
	gauge("callback_stale_secrets", "Subscriptions in the shards of this hub whose secrets are in clear, or not encrypted with the first key.", float64(p.stale), nil)
	gauge("callback_locked", "Subscriptions in the shards of this hub that wait for the missing key of their secret.", float64(p.locked), nil)
	gauge("callback_in_flight", "Requests to callbacks in progress.", float64(p.inFlight), nil)
	gauge("followers", "Followers of this hub.", float64(p.subscriptions), callbackKind)
	gauge("follower_lag_changes", "Changes that the slowest follower of this hub has not received yet.", float64(p.lagChanges), callbackKind)
	gauge("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not received yet, in seconds.", p.lag.Seconds(), callbackKind)
}
