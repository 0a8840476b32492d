package callback

import (
	"cmp"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A purpose is what an attempt is for, as the metrics tell it.
type purpose uint8

const (
	forDelivery purpose = iota
	forVerification
	forDenial
	forFetch // of a set's Change List, with those that an index names
	purposes
)

var purposeNames = [purposes]string{"delivery", "verification", "denial", "fetch"}

// An outcome is what came of an attempt, as the metrics tell it.
type outcome uint8

const (
	outcomeSuccess outcome = iota
	outcomeGone            // 410
	outcomeClientError
	outcomeServerError
	outcomeRedirect
	outcomeTimeout
	outcomeUnreachable
	outcomeRefusedAddress
	outcomeTLS
	outcomeOther
	outcomes
)

var outcomeNames = [outcomes]string{
	"success", "gone", "client_error", "server_error", "redirect",
	"timeout", "unreachable", "refused_address", "tls", "other",
}

// statusOutcome is what an answer's status alone says.
func statusOutcome(status int) outcome {
	switch {
	case status == http.StatusGone:
		return outcomeGone
	case status >= 200 && status <= 299:
		return outcomeSuccess
	case status >= 300 && status <= 399:
		return outcomeRedirect
	case status >= 400 && status <= 499:
		return outcomeClientError
	case status >= 500 && status <= 599:
		return outcomeServerError
	}
	return outcomeOther
}

// metrics are what an Engine and its Fetchers have done. What an Engine is doing
// is looked at when somebody asks, see present.
type metrics struct {
	attempts  [purposes][outcomes]prometheus.Counter
	durations [purposes]prometheus.Observer

	deliveries prometheus.Counter
	bytes      prometheus.Counter
	changes    prometheus.Counter
	retries    prometheus.Counter
	gaps       prometheus.Counter
	ended      map[Mode]prometheus.Counter // by what ended it

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
		deliveries:   shared("deliveries_total", "Messages, events, pages and requests with changes that were delivered to followers."),
		bytes:        shared("delivered_bytes_total", "Bytes of what was delivered to followers."),
		changes:      shared("delivered_changes_total", "Changes that were delivered to followers."),
		retries:      counter("retries_total", "Deliveries that were tried again after a failure."),
		gaps:         counter("gaps_total", "Times that the change memory overran a subscription: changes were gone before they could be delivered."),
		claimsGained: counter("claims_gained_total", "Claims on shards that this hub gained."),
		claimsLost:   counter("claims_lost_total", "Claims on shards that this hub lost before it gave them up."),
		ended:        map[Mode]prometheus.Counter{},
	}
	attempts := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_callback_attempts_total", Help: "Requests to callbacks that came to an end, and fetches of the Change Lists of sources that ping.",
	}, []string{"kind", "outcome"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_callback_attempt_duration_seconds", Help: "Time that those attempts took.",
		Buckets: []float64{.002, .01, .05, .25, 1, 5, 15, 60},
	}, []string{"kind"})
	for p, name := range purposeNames { // all of them, for a counter that is not there cannot be seen to rise
		m.durations[p] = durations.WithLabelValues(name)
		for o, outcome := range outcomeNames {
			m.attempts[p][o] = attempts.WithLabelValues(name, outcome)
		}
	}
	reasons := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_callback_ended_total", Help: "Subscriptions that ended, and why.",
	}, []string{"reason"})
	for mode, reason := range map[Mode]string{ended: "gone", expired: "lease", Unsubscribe: "unsubscribed", Remove: "removed"} {
		m.ended[mode] = reasons.WithLabelValues(reason)
	}
	return m
}

// attempted counts an attempt.
func (m *metrics) attempted(p purpose, o outcome, took time.Duration) {
	m.attempts[p][o].Inc()
	m.durations[p].Observe(took.Seconds())
}

// A present is what an Engine is doing now.
type present struct {
	claims        int
	subscriptions int
	failing       int // of them, whose last attempt failed
	inFlight      int
	lagChanges    uint64        // of the subscription that has most before it
	lag           time.Duration // of the one that is furthest behind
}

// present looks at every topic and at what is behind, but not at what is current.
func (e *Engine) present() present {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := present{claims: len(e.shards), failing: e.failing, inFlight: e.places.running[proven] + e.places.running[unproven]}
	for _, s := range e.shards {
		p.subscriptions += len(s.subs)
	}
	now := time.Now().UnixMicro()
	oldest := now
	for _, t := range e.topics {
		for _, some := range [...]pool{t.behind, t.failing} {
			for _, s := range some {
				if changes, since := s.lag(); changes > 0 {
					p.lagChanges, oldest = max(p.lagChanges, changes), min(oldest, since)
				}
			}
		}
	}
	p.lag = time.Duration(now-oldest) * time.Microsecond
	return p
}

// lag returns how much is before a sub in its set's log, and when the first of it
// was accepted, in microseconds. Where that is not known it is the time of what was
// delivered last.
func (s *sub) lag() (changes uint64, since int64) {
	head := s.topic.head
	if !s.topic.ready || head.Position <= s.cursor.Position {
		return 0, 0
	}
	return head.Position - s.cursor.Position, cmp.Or(s.first, s.cursor.Micros, head.Micros)
}

// gauges tell what an Engine is doing, as a prometheus.Collector.
type gauges struct {
	engine *Engine

	claims, subscriptions, failing, inFlight *prometheus.Desc
	followers, lagChanges, lagSeconds        *prometheus.Desc
}

func newGauges(e *Engine) *gauges {
	own := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_callback_"+name, help, nil, nil)
	}
	shared := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_"+name, help, nil, callbackKind)
	}
	return &gauges{
		engine:        e,
		claims:        own("claims", "Shards of subscriptions that this hub has a claim on."),
		subscriptions: own("subscriptions", "Subscriptions in the shards of this hub."),
		failing:       own("failing", "Subscriptions of this hub whose last delivery failed."),
		inFlight:      own("in_flight", "Requests to callbacks that are under way."),
		followers:     shared("followers", "Followers of this hub."),
		lagChanges:    shared("follower_lag_changes", "Changes that the slowest follower of this hub has not got yet."),
		lagSeconds:    shared("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not got yet."),
	}
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.claims, g.subscriptions, g.failing, g.inFlight, g.followers, g.lagChanges, g.lagSeconds} {
		to <- d
	}
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	p := g.engine.present()
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(g.claims, float64(p.claims))
	gauge(g.subscriptions, float64(p.subscriptions))
	gauge(g.failing, float64(p.failing))
	gauge(g.inFlight, float64(p.inFlight))
	gauge(g.followers, float64(p.subscriptions))
	gauge(g.lagChanges, float64(p.lagChanges))
	gauge(g.lagSeconds, p.lag.Seconds())
}
