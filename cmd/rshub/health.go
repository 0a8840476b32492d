package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rshub/rshub/changelog"
)

// readyTimeout bounds how long a look at what the hub needs takes: probes do not
// wait long.
const readyTimeout = 2 * time.Second

// A dependency is something that the hub needs, as /readyz shows it.
type dependency struct {
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`         // while it is not OK the hub is not ready; else something is late or refused
	Reason   string `json:"reason,omitempty"` // why it is not OK
}

func newDependency(required bool, err error) dependency {
	d := dependency{OK: err == nil, Required: required}
	if err != nil {
		d.Reason = err.Error()
	}
	return d
}

// dependencies looks at the servers that the hub needs: at the memory, and at
// NATS where there is one. It takes readyTimeout at most.
func (s *server) dependencies(ctx context.Context) map[string]dependency {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := s.memory.Check(ctx)
	// A full memory still hands out what it has, and room is made by a request too.
	all := map[string]dependency{"memory": newDependency(!errors.Is(err, changelog.ErrFull), err)}
	if s.bus != nil {
		all["nats"] = newDependency(false, s.bus.Check())
	}
	return all
}

// health adds to mux what probes ask, from the start on.
func (s *server) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", s.serveReady)
}

// serveReady says whether requests should come to this hub, and of each thing
// that it needs whether it is there, and if not, why.
func (s *server) serveReady(w http.ResponseWriter, r *http.Request) {
	checks := map[string]dependency{}
	if s.started.Load() {
		checks = s.dependencies(r.Context())
	}
	if why := s.away.Load(); why != nil {
		checks["hub"] = dependency{Required: true, Reason: *why}
	}
	status, ready := http.StatusOK, true
	for _, d := range checks {
		if d.Required && !d.OK {
			status, ready = http.StatusServiceUnavailable, false
		}
	}
	writeJSON(w, status, map[string]any{"ready": ready, "checks": checks})
}

// leave has /readyz say that the hub itself is not ready, and why; empty: it is.
func (s *server) leave(why string) {
	if why == "" {
		s.away.Store(nil)
	} else {
		s.away.Store(&why)
	}
}

// startingRoutes answers users while the hub waits for its memory.
func (s *server) startingRoutes() http.Handler {
	return s.guard(http.HandlerFunc(s.serveStarting))
}

// startingOpsRoutes answers those who run it meanwhile.
func (s *server) startingOpsRoutes() http.Handler {
	mux := http.NewServeMux()
	s.health(mux)
	mux.HandleFunc("/", s.serveStarting)
	return s.guard(mux)
}

func (s *server) serveStarting(w http.ResponseWriter, r *http.Request) {
	p := changelog.NewStatus(http.StatusServiceUnavailable, "starting", "this hub is starting; try again soon")
	p.RetryAfter = 2
	s.refused(w, r, p)
}
