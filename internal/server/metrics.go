package server

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rshub/rshub/internal/limit"
)

// newMetrics returns the registry of the hub's metrics. If c has none, it creates one with metrics of
// the process.
func newMetrics(c *Config) *prometheus.Registry {
	r := c.Metrics
	if r == nil {
		r = prometheus.NewRegistry()
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "rshub_build_info", Help: "Constant 1, labeled with the version of rshub and of Go.",
		ConstLabels: prometheus.Labels{"version": c.Version, "goversion": runtime.Version()},
	}).Set(1)
	return r
}

// serveMetrics serves the registry in the format that the client prefers. A metric that cannot be read
// is omitted and logged, because the others are still important.
func serveMetrics(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true,
	})
}

// measureDisk adds metrics of the disk of the change memory.
func measureDisk(r prometheus.Registerer, space func() (free, reserve uint64, err error)) {
	auto := promauto.With(r)
	gauge := func(name, help string, pick func(free, reserve uint64) uint64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "rshub_disk_" + name, Help: help + "; only with the memory on disk."}, func() float64 {
			free, reserve, err := space()
			if err != nil {
				return math.NaN()
			}
			return float64(pick(free, reserve))
		})
	}
	gauge("free_bytes", "Free bytes on the disk of RSHUB_DATA", func(free, _ uint64) uint64 { return free })
	gauge("reserve_bytes", "Free bytes below which the hub accepts no changes", func(_, reserve uint64) uint64 { return reserve })
}

// A readyGauge is a prometheus.Collector for the state at /readyz.
type readyGauge struct{ health *health }

var (
	isReady      = prometheus.NewDesc("rshub_ready", "1 if the hub is ready, as at /readyz, otherwise 0.", nil, nil)
	dependencyOK = prometheus.NewDesc("rshub_dependency_ok", "1 if the dependency is usable, otherwise 0, checked on each scrape. callers: the newest tokens and JWT keys are in force; certificate: the newest certificate is in force; audit_log: the last write succeeded.", []string{"dependency"}, nil)
)

func (g readyGauge) Describe(to chan<- *prometheus.Desc) {
	to <- isReady
	to <- dependencyOK
}

func (g readyGauge) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, ok bool, labels ...string) {
		v := 0.0
		if ok {
			v = 1
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ready, checks := g.health.ready(context.Background())
	gauge(isReady, ready)
	for name, d := range checks {
		if name != hubCheck { // not a dependency
			gauge(dependencyOK, d.OK, name)
		}
	}
}

// counter adds a counter with the value of n.
func counter(r prometheus.Registerer, name, help string, labels prometheus.Labels, n func() uint64) {
	promauto.With(r).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(n()) })
}

// newRefusals returns counters of refusals by limits, with metrics.
func newRefusals(r prometheus.Registerer) *limit.Refusals {
	refusals := &limit.Refusals{}
	for kind := range limit.Follows + 1 {
		for whose, count := range map[string]func(limit.Kind) uint64{"caller": refusals.OfCallers, "address": refusals.OfAddresses} {
			counter(r, "rshub_limit_refused_total", "Requests, batches of streams, and follows refused by a limit, by owner and kind of the limit.",
				prometheus.Labels{"whose": whose, "limit": kind.String()}, func() uint64 { return count(kind) })
		}
	}
	return refusals
}

// countConnections adds metrics of the connections that l and its sibling listeners refused or ended.
func countConnections(r prometheus.Registerer, l *limit.Listener) {
	counter(r, "rshub_connections_refused_total", "Connections refused because of the limit of file descriptors, or too many from one address.", nil, l.Refused)
	counter(r, "rshub_connections_ended_total", "Idle connections closed to make room for others.", nil, l.Ended)
}
