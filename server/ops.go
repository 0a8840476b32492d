package server

import (
	"log/slog"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/problem"
)

// ops serves those who operate the hub: health, metrics, backups and profiles.
type ops struct {
	health  *health
	metrics *prometheus.Registry
	backup  *backup
	errors  *problem.Adapter
	callers *callers
	log     *slog.Logger
}

func (o *ops) routes() http.Handler {
	mux := http.NewServeMux()
	o.health.routes(mux)
	mux.Handle("GET /metrics", serveMetrics(o.metrics, o.log)) // needs no token, as health does not: metrics name no set and no callback
	mux.Handle("GET /backup", o.operator(o.backup.serve))
	mux.Handle("GET /debug/pprof/", o.profile(pprof.Index))
	mux.Handle("GET /debug/pprof/profile", o.profile(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", o.profile(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", o.profile(pprof.Trace))
	return mux
}

// operator passes requests to h if their caller may operate the hub.
func (o *ops) operator(h problem.Handler) http.Handler {
	return o.callers.identify(o.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if err := access.MayOperate(r.Context()); err != nil {
			return err
		}
		return h(w, r)
	}))
}

func (o *ops) profile(h http.HandlerFunc) http.Handler {
	return o.operator(func(w http.ResponseWriter, r *http.Request) error {
		h(w, r)
		return nil
	})
}
