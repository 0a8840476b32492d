package archive

import "github.com/prometheus/client_golang/prometheus"

// metrics are what an Archive has done since it was made.
type metrics struct {
	lists, resources, failed, holes, unheld prometheus.Counter
	waiting                                 prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rshub_archive_" + name, Help: help})
	}
	m := &metrics{
		lists:     counter("lists_total", "Closed Change Lists that were copied into archives."),
		resources: counter("resource_lists_total", "Resource Lists that were copied into archives."),
		failed:    counter("failures_total", "Attempts to copy Change Lists or a Resource List into archives that ended with an error; they are repeated, and retention waits for Change Lists."),
		holes:     counter("holes_total", "Holes in archives: retention had removed changes before they were archived."),
		unheld:    counter("unheld_total", "Times that retention did not wait for an archive, because the change memory had little room left."),
		waiting:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "rshub_archive_lists_waiting", Help: "Closed Change Lists that are not in their archives yet, of the sets whose archives this hub makes; retention waits for them."}),
	}
	if r != nil {
		r.MustRegister(m.lists, m.resources, m.failed, m.holes, m.unheld, m.waiting)
	}
	return m
}
