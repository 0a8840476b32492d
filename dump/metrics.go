package dump

import "github.com/prometheus/client_golang/prometheus"

// metrics are what a Maker has done since it was made.
type metrics struct {
	dumps    *prometheus.CounterVec
	packages prometheus.Counter
	bytes    prometheus.Counter
	fetched  prometheus.Counter
	missing  prometheus.Counter
	failed   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rshub_dump_" + name, Help: help})
	}
	m := &metrics{
		dumps:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rshub_dumps_total", Help: "Dumps that were made, by kind."}, []string{"kind"}),
		packages: counter("packages_total", "Packages of dumps that were written to the place for content."),
		bytes:    counter("bytes_total", "Bytes of these packages."),
		fetched:  counter("fetched_total", "Contents of resources that were fetched for dumps."),
		missing:  counter("missing_total", "Contents that are missing in dumps, because they could not be fetched, or were not right."),
		failed:   counter("failures_total", "Attempts to make dumps that ended with an error; they are repeated."),
	}
	for _, kind := range []string{resourceKind, changeKind} {
		m.dumps.WithLabelValues(kind)
	}
	if r != nil {
		r.MustRegister(m.dumps, m.packages, m.bytes, m.fetched, m.missing, m.failed)
	}
	return m
}

// saw counts what became of a content.
func (m *metrics) saw(g *gathered) {
	if g.why != "" {
		m.missing.Inc()
	} else if g.got != nil {
		m.fetched.Inc()
	}
}
