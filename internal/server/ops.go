package server

import (
	"log/slog"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/backup"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
)

// ops serves the operations address: health, metrics, backups and profiles.
type ops struct {
	health  *health
	metrics *prometheus.Registry
	backup  *backup.Source
	errors  *problem.Adapter
	callers *callers
	log     *slog.Logger
}

func (o *ops) routes() *mux {
	mux := newMux()
	o.health.routes(mux)
	mux.Handle("GET /metrics", serveMetrics(o.metrics, o.log)) // requires no token, like health, because metrics name no set and no callback
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.Handle(method+" /backup", o.operator(trail.Backup, o.backup.Serve))
		mux.Handle(method+" /debug/pprof/", o.profile(pprof.Index))
		mux.Handle(method+" /debug/pprof/profile", o.profile(pprof.Profile))
		mux.Handle(method+" /debug/pprof/symbol", o.profile(pprof.Symbol))
		mux.Handle(method+" /debug/pprof/trace", o.profile(pprof.Trace))
	}
	return mux
}

// A mux is a ServeMux with a list of its patterns.
type mux struct {
	*http.ServeMux
	patterns []string
}

func newMux() *mux { return &mux{ServeMux: http.NewServeMux()} }

func (m *mux) Handle(pattern string, h http.Handler) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.Handle(pattern, h)
}

func (m *mux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(h))
}

// operator passes requests of operators to h. action is the action for the audit log.
func (o *ops) operator(action trail.Action, h problem.Handler) http.Handler {
	return o.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller, err := o.callers.identify(r)
		if err != nil {
			return err
		}
		trail.FromContext(r.Context()).SetAction(action, "")
		if err := access.MayOperate(access.NewContext(r.Context(), caller)); err != nil {
			return err
		}
		if byPage(r) {
			return problem.New(http.StatusForbidden, "origin", "a web page of another site may have caused this GET; send a POST, or use curl or go tool pprof")
		}
		return h(w, r)
	})
}

func (o *ops) profile(h http.HandlerFunc) http.Handler {
	return o.operator(trail.Profile, func(w http.ResponseWriter, r *http.Request) error {
		h(w, r)
		return nil
	})
}
