// Package meter counts and times the requests of package outbound for Prometheus.
//
// It is a package of its own so that outbound does not link Prometheus.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/internal/outbound"
)

// A Purpose is what a request is for.
type Purpose uint8

const (
	Delivery Purpose = iota
	Verification
	Denial
	Fetch // of a set's Change List, together with the lists that an index names
	purposes
)

var names = [purposes]string{"delivery", "verification", "denial", "fetch"}

// A Meter counts requests that have ended.
type Meter struct {
	attempts  [purposes][outbound.Outcomes]prometheus.Counter
	durations [purposes]prometheus.Observer
}

// New returns a Meter whose metrics are registered with r, unless r is nil. A
// registry takes only one Meter.
func New(r prometheus.Registerer) *Meter {
	m, auto := &Meter{}, promauto.With(r)
	attempts := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_callback_attempts_total", Help: "Finished requests to callbacks, and fetches of the lists of sources that ping or are polled.",
	}, []string{"kind", "outcome"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_callback_attempt_duration_seconds", Help: "Duration of the requests that rshub_callback_attempts_total counts, in seconds.",
		Buckets: []float64{.002, .01, .05, .25, 1, 5, 15, 60},
	}, []string{"kind"})
	for p, name := range names { // create all counters at once: an alert cannot see the first rise of a new counter
		m.durations[p] = durations.WithLabelValues(name)
		for o := range outbound.Outcomes {
			m.attempts[p][o] = attempts.WithLabelValues(name, o.String())
		}
	}
	return m
}

// Count counts one request by its purpose and its outcome, and records how long
// it took.
func (m *Meter) Count(p Purpose, o outbound.Outcome, took time.Duration) {
	m.attempts[p][o].Inc()
	m.durations[p].Observe(took.Seconds())
}
