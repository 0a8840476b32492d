package main

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
)

// newMetrics returns a registry for what the hub measures, with what there is to
// say of the process itself.
func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "rshub_build_info", Help: "Always 1; the labels say what this rshub was built from.",
		ConstLabels: prometheus.Labels{"version": version(), "goversion": runtime.Version()},
	}).Set(1)
	return r
}

// metricsHandler serves the registry, in the format that the client prefers. What
// a metric cannot say is left out and logged: the others matter all the more then.
func metricsHandler(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true,
	})
}

// measureDisk measures the disk of a memory.
func measureDisk(r prometheus.Registerer, space func() (free, reserve uint64, err error)) {
	auto := promauto.With(r)
	gauge := func(name, help string, pick func(free, reserve uint64) uint64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "rshub_disk_" + name, Help: help + "; only where the memory is on the disk."}, func() float64 {
			free, reserve, err := space()
			if err != nil {
				return math.NaN()
			}
			return float64(pick(free, reserve))
		})
	}
	gauge("free_bytes", "What is free on the disk of RSHUB_DATA", func(free, _ uint64) uint64 { return free })
	gauge("reserve_bytes", "With less free than this the hub takes no changes", func(_, reserve uint64) uint64 { return reserve })
}

// A readyGauge is what /readyz says, as a prometheus.Collector.
type readyGauge struct {
	server            *server
	ready, dependency *prometheus.Desc
}

func newReadyGauge(s *server) *readyGauge {
	return &readyGauge{
		server:     s,
		ready:      prometheus.NewDesc("rshub_ready", "Whether the hub is ready, as /readyz says it: 1 or 0.", nil, nil),
		dependency: prometheus.NewDesc("rshub_dependency_ok", "Whether the change memory, and NATS where there is one, can be used now: 1 or 0. It is looked at when this is read.", []string{"dependency"}, nil),
	}
}

func (r *readyGauge) Describe(to chan<- *prometheus.Desc) {
	to <- r.ready
	to <- r.dependency
}

func (r *readyGauge) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, ok bool, labels ...string) {
		v := 0.0
		if ok {
			v = 1
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ready := !r.server.stopping.Load()
	for name, d := range r.server.dependencies(context.Background()) {
		gauge(r.dependency, d.OK, name)
		ready = ready && (d.OK || !d.Required)
	}
	gauge(r.ready, ready)
}

// What answers are counted by: where the request went, and the class of the
// status.
const (
	topicRoute         = "topic"         // of a set: publish and follow
	hubRoute           = "hub"           // publish and subscribe
	documentsRoute     = "documents"     // of the standard
	setsRoute          = "sets"          // list, describe, delete
	subscriptionsRoute = "subscriptions" // of callbacks, for operators
	statusRoute        = "status"        // of a subscription, for the subscriber
	pageRoute          = "page"          // for people
	otherRoute         = "other"         // there is nothing
)

// classes are those of a status, and switching protocols is one of its own.
var classes = [...]string{"101", "2xx", "3xx", "4xx", "5xx"}

func class(status int) int {
	if status < 200 {
		return 0
	}
	return min(status/100-1, len(classes)-1)
}

// A router is a ServeMux that knows what its answers are counted by.
type router struct {
	*http.ServeMux
	responses *prometheus.CounterVec
	counters  map[string]*[len(classes)]prometheus.Counter // by pattern
}

func newRouter(r prometheus.Registerer) *router {
	return &router{
		ServeMux: http.NewServeMux(),
		responses: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rshub_http_responses_total", Help: "Answers to requests at RSHUB_LISTEN, by where they went and the class of their status; a WebSocket is a 101.",
		}, []string{"route", "code"}),
		counters: map[string]*[len(classes)]prometheus.Counter{},
	}
}

// handle adds a handler whose answers are counted for a route.
func (r *router) handle(pattern, route string, h http.HandlerFunc) {
	r.HandleFunc(pattern, h)
	all := new([len(classes)]prometheus.Counter)
	for i, c := range classes {
		all[i] = r.responses.WithLabelValues(route, c)
	}
	r.counters[pattern] = all
}

// counted counts the answers of next, which leads to r. So those count too that
// are given on the way, such as that a token is missing.
func (r *router) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, pattern := r.Handler(req)
		answer := &notedAnswer{ResponseWriter: w}
		if counters := r.counters[pattern]; counters != nil {
			answer.begins = func(status int) { counters[class(status)].Inc() }
		}
		next.ServeHTTP(answer, req)
		answer.note(http.StatusOK) // what net/http says for who says nothing
	})
}
