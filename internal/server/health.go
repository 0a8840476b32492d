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

// readyTimeout bounds one check of everything that the hub needs. It is short,
// because probes do not wait long.
const readyTimeout = 2 * time.Second

// hubCheck is the name of the hub itself in the answer of /readyz.
const hubCheck = "hub"

// A dependency is something that the hub needs, as /readyz shows it.
type dependency struct {
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`         // true: the hub is not ready without it; false: without it, something is late or refused
	Reason   string `json:"reason,omitempty"` // why it is not OK
}

func newDependency(required bool, err error) dependency {
	d := dependency{OK: err == nil, Required: required}
	if err != nil {
		d.Reason = err.Error()
	}
	return d
}

// A health knows whether the hub is ready for requests, and why it is not.
type health struct {
	away  atomic.Pointer[string] // why the hub itself is not ready; nil: it is ready
	needs atomic.Pointer[needs]  // what the hub needs; nil before open
}

// needs are the servers and stores that a hub needs.
type needs struct {
	memory  changelog.Log
	bus     *hub.Bus // nil: the hub uses no NATS
	engine  *callback.Engine
	callers *callers

	certificate *certificate.Files // nil: there is none
	trail       *trail.Log         // nil: there is no audit log
}

// newHealth returns the health of a hub that is starting.
func newHealth() *health {
	h := &health{}
	h.leave("starting")
	return h
}

// leave makes /readyz say that the hub itself is not ready, and why.
func (h *health) leave(why string) { h.away.Store(&why) }

// open makes /readyz say that the hub is ready, as long as its required dependencies
// are OK.
func (h *health) open(n *needs) {
	h.needs.Store(n)
	h.away.Store(nil)
}

// dependencies checks what the hub needs: the memory, NATS if the hub uses it, and the
// files that it reads and writes.
// It takes at most readyTimeout.
func (h *health) dependencies(ctx context.Context) map[string]dependency {
	all := map[string]dependency{}
	needs := h.needs.Load()
	if needs == nil {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := needs.memory.Check(ctx)
	// A full memory can still be read, and a request can make room in it.
	all["memory"] = newDependency(!errors.Is(err, feed.ErrFull), err)
	if needs.callers.authenticator != nil {
		all["callers"] = newDependency(false, needs.callers.authenticator.Err()) // the tokens or keys before are in force
	}
	if needs.certificate != nil {
		all["certificate"] = newDependency(false, needs.certificate.Err()) // the certificate before is in force
	}
	if needs.trail != nil {
		all["audit_log"] = newDependency(false, needs.trail.Err())
	}
	if missing := needs.engine.Missing(); len(missing) > 0 {
		all["secret_keys"] = newDependency(false, missingKeys(missing))
	}
	if needs.bus != nil {
		all["nats"] = newDependency(false, needs.bus.Check())
	}
	return all
}

// missingKeys is the reason that subscriptions wait for keys.
func missingKeys(missing map[string]int) error {
	n := 0
	for _, some := range missing {
		n += some
	}
	return fmt.Errorf("%d subscriptions wait for the keys that encrypt their secrets, which RSHUB_SECRET_KEYS does not have: %s", n, strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
}

// ready reports whether this hub should get requests. checks says of each dependency
// whether it is OK, and if not, why.
func (h *health) ready(ctx context.Context) (ready bool, checks map[string]dependency) {
	checks = h.dependencies(ctx)
	if why := h.away.Load(); why != nil {
		checks[hubCheck] = dependency{Required: true, Reason: *why}
	}
	for _, d := range checks {
		if d.Required && !d.OK {
			return false, checks
		}
	}
	return true, checks
}

// routes adds the URLs for probes to mux. They answer from the start of the hub on.
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
	p := problem.New(http.StatusServiceUnavailable, "starting", "this hub is starting; try again soon")
	p.RetryAfter = 2
	return p
}
