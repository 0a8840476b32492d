package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/certificate"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
)

// readyTimeout limits a check of all dependencies. It is short, because probes do not wait long.
const readyTimeout = 2 * time.Second

// hubCheck is the name of the hub itself at /readyz.
const hubCheck = "hub"

// A dependency is the state of a dependency at /readyz.
type dependency struct {
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`         // whether the hub is not ready without it
	Reason   string `json:"reason,omitempty"` // empty if OK
}

func newDependency(required bool, err error) dependency {
	d := dependency{OK: err == nil, Required: required}
	if err != nil {
		d.Reason = err.Error()
	}
	return d
}

// A health tracks whether the hub is ready for requests.
type health struct {
	notReady     atomic.Pointer[string]       // why the hub itself is not ready; nil if it is
	dependencies atomic.Pointer[dependencies] // nil before setReady
}

// dependencies are the servers, stores and files that a hub uses.
type dependencies struct {
	memory  changelog.Log
	bus     *hub.Bus // nil without NATS
	engine  *callback.Engine
	callers *callers

	certificate *certificate.Files // nil without TLS
	trail       *trail.Log         // nil without an audit log
}

// newHealth returns the health of a starting hub.
func newHealth() *health {
	h := &health{}
	h.setNotReady("starting")
	return h
}

// setNotReady makes /readyz report that the hub itself is not ready, with a reason.
func (h *health) setNotReady(why string) { h.notReady.Store(&why) }

// setReady makes /readyz report that the hub is ready while its required dependencies are OK.
func (h *health) setReady(n *dependencies) {
	h.dependencies.Store(n)
	h.notReady.Store(nil)
}

// checkDependencies checks the memory, NATS if it is used, and the files that the hub reads and
// writes. It takes at most readyTimeout.
func (h *health) checkDependencies(ctx context.Context) map[string]dependency {
	all := map[string]dependency{}
	d := h.dependencies.Load()
	if d == nil {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := d.memory.Check(ctx)
	// A full memory can still be read, and a deletion can free space.
	all["memory"] = newDependency(!errors.Is(err, feed.ErrFull), err)
	if d.callers.authenticator != nil {
		all["callers"] = newDependency(false, d.callers.authenticator.Err()) // the previous tokens or keys stay in force
	}
	if d.certificate != nil {
		all["certificate"] = newDependency(false, d.certificate.Err()) // the previous certificate stays in force
	}
	if d.trail != nil {
		all["audit_log"] = newDependency(false, d.trail.Err())
	}
	if missing := d.engine.Missing(); len(missing) > 0 {
		all["secret_keys"] = newDependency(false, missingKeys(missing))
	}
	if d.bus != nil {
		all["nats"] = newDependency(false, d.bus.Check())
	}
	return all
}

// missingKeys returns the error for subscriptions that wait for keys.
func missingKeys(missing map[string]int) error {
	n := 0
	for _, some := range missing {
		n += some
	}
	return fmt.Errorf("%d subscriptions wait for keys of their secrets that RSHUB_SECRET_KEYS lacks: %s", n, strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
}

// ready reports whether this hub should receive requests. checks has the state of each dependency.
func (h *health) ready(ctx context.Context) (ready bool, checks map[string]dependency) {
	checks = h.checkDependencies(ctx)
	if why := h.notReady.Load(); why != nil {
		checks[hubCheck] = dependency{Required: true, Reason: *why}
	}
	for _, d := range checks {
		if d.Required && !d.OK {
			return false, checks
		}
	}
	return true, checks
}

// routes adds the URLs for probes to mux, which are also served during the start.
func (h *health) routes(mux *mux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		problem.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		ready, checks := h.ready(r.Context())
		if !ready {
			status = http.StatusServiceUnavailable
		}
		problem.WriteJSON(w, status, map[string]any{"ready": ready, "checks": checks})
	})
}

// serveStarting answers 503 to every request while the hub waits for its memory.
func serveStarting(http.ResponseWriter, *http.Request) error {
	p := problem.New(http.StatusServiceUnavailable, "starting", "the hub is starting; retry soon")
	p.RetryAfter = 2
	return p
}
