package xmpp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count what a Publisher has done. What it is doing now is looked at when somebody
// asks: see gauges.
type metrics struct {
	deliveries, bytes, changes, retries, gaps prometheus.Counter
	failures                                  map[string]prometheus.Counter // by reason
}

// kind tells nodes from the other followers, which other packages count under the same names.
var kind = prometheus.Labels{"kind": "xmpp"}

// newMetrics returns metrics that are registered, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_xmpp_" + name, Help: help})
	}
	shared := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_" + name, Help: help, ConstLabels: kind})
	}
	m := &metrics{
		deliveries: shared("deliveries_total", "Messages, events, pages and requests with changes that were delivered to followers."),
		bytes:      shared("delivered_bytes_total", "Bytes of what was delivered to followers."),
		changes:    shared("delivered_changes_total", "Changes that were delivered to followers."),
		retries:    counter("retries_total", "Items that were published after at least one failure."),
		gaps:       counter("gaps_total", "Items that say that changes are missing: the memory had removed them, or one is larger than a stanza may be."),
		failures:   map[string]prometheus.Counter{},
	}
	failures := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_xmpp_failures_total",
		Help: "Attempts to connect or to publish that failed: no connection (connection), no answer in time (timeout), an error as the answer (refused), " +
			"another connection of the same component (conflict); the set is private (private).",
	}, []string{"reason"})
	for _, name := range reasons {
		m.failures[name] = failures.WithLabelValues(name)
	}
	return m
}

func (m *metrics) failed(err error) { m.failures[reason(err)].Inc() }

func (m *metrics) delivered(n *notification, again bool) {
	if again {
		m.retries.Inc()
	}
	if n.gap != "" {
		m.gaps.Inc()
		return
	}
	m.deliveries.Inc()
	m.bytes.Add(float64(len(n.payload)))
	m.changes.Add(float64(n.changes))
}

// gauges tell what a Publisher is doing, as a prometheus.Collector.
type gauges struct {
	publisher *Publisher

	claims, connected, failing        *prometheus.Desc
	followers, lagChanges, lagSeconds *prometheus.Desc
}

func newGauges(p *Publisher) *gauges {
	own := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_xmpp_"+name, help, nil, nil)
	}
	shared := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_"+name, help, nil, kind)
	}
	return &gauges{
		publisher:  p,
		claims:     own("claims", "Whether this hub is the one that publishes over XMPP: 1 or 0."),
		connected:  own("connected", "Whether this hub is connected to the XMPP server: 1 or 0. It is 0 on a hub that does not publish there."),
		failing:    own("failing", "Sets that this hub publishes over XMPP and whose last attempt failed; all of them while it is not connected."),
		followers:  shared("followers", "Followers of this hub."),
		lagChanges: shared("follower_lag_changes", "Changes that the slowest follower of this hub has not got yet."),
		lagSeconds: shared("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not got yet."),
	}
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.claims, g.connected, g.failing, g.followers, g.lagChanges, g.lagSeconds} {
		to <- d
	}
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	v := g.publisher.present()
	for d, v := range map[*prometheus.Desc]float64{
		g.claims: v.claims, g.connected: v.connected, g.failing: float64(v.failing),
		g.followers: float64(v.sets), g.lagChanges: float64(v.changes), g.lagSeconds: v.lag.Seconds(),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
}

// A present is what a Publisher is doing now.
type present struct {
	claims, connected float64 // 1 or 0
	sets, failing     int
	changes           uint64        // that the slowest set has before it
	lag               time.Duration // of the oldest change that is not published
}

func (p *Publisher) present() (v present) {
	s := p.current()
	if s == nil {
		return v
	}
	v.claims, v.sets = 1, len(s.lines)
	connected := s.connected.Load()
	if connected {
		v.connected = 1
	}
	for _, l := range s.lines {
		l.mu.Lock()
		at, failing := l.at, l.failing
		l.mu.Unlock()
		if failing || !connected {
			v.failing++
		}
		if at == nil {
			continue
		}
		if changes, oldest := p.follower.Behind(l.set, *at); changes > 0 {
			v.changes = max(v.changes, changes)
			v.lag = max(v.lag, time.Since(time.UnixMicro(oldest)))
		}
	}
	return v
}
