// Package meter counts and times the requests of package outbound for Prometheus.
//
// It is a separate package so that outbound does not link Prometheus.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/internal/outbound"
)

// A Purpose is the purpose of a request.
type Purpose uint8

const (
	Delivery Purpose = iota
	Verification
	Denial
	Fetch // fetches a set's Change List, including the lists of an index
	purposes
)

var names = [purposes]string{"delivery", "verification", "denial", "fetch"}

// A Meter counts finished requests.
type Meter struct {
	attempts  [purposes][outbound.Outcomes]prometheus.Counter
	durations [purposes]prometheus.Observer
}

// New returns a Meter whose metrics are registered with r, unless r is nil. Only one Meter can be
// registered with a registry.
func New(r prometheus.Registerer) *Meter {
	m, auto := &Meter{}, promauto.With(r)
	attempts := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_callback_attempts_total", Help: "Finished requests to callbacks, and fetches of the lists of sources that ping or are polled.",
	}, []string{"kind", "outcome"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_callback_attempt_duration_seconds", Help: "Duration of the requests that rshub_callback_attempts_total counts, in seconds.",
		Buckets: []float64{.002, .01, .05, .25, 1, 5, 15, 60},
	}, []string{"kind"})
	for p, name := range names { // create all counters now: an alert does not detect the first increase of a new counter
		m.durations[p] = durations.WithLabelValues(name)
		for o := range outbound.Outcomes {
			m.attempts[p][o] = attempts.WithLabelValues(name, o.String())
		}
	}
	return m
}

// Count counts a request by its purpose and its outcome, and records its duration.
func (m *Meter) Count(p Purpose, o outbound.Outcome, took time.Duration) {
	m.attempts[p][o].Inc()
	m.durations[p].Observe(took.Seconds())
}
