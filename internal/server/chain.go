package server

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/rshub/rshub/internal/limit"
)

// This file lists what a request passes on its way from a connection to the handler of its
// route. A limit.Listener has accepted the connection, and front.go says how long net/http
// waits for the header of a request.

// A step is what happens to every request before, and after, the handler behind it.
type step func(next http.Handler) http.Handler

// chain returns a handler that takes requests through the steps to h, in this order.
func chain(h http.Handler, steps ...step) http.Handler {
	for _, s := range slices.Backward(steps) {
		h = s(h)
	}
	return h
}

// arrival are the first steps, at both addresses, also while the hub starts. failed is the
// level at which an answer 5xx is logged.
func (f *front) arrival(h http.Handler, failed slog.Level) http.Handler {
	return chain(h,
		answers(f.writeTimeout),   // first, because it makes the one ResponseWriter of all steps
		boundRefusals,             // before anything is refused
		limit.RefuseExcess,        // before the request costs a line of the log
		f.requests.logged(failed), // gives the request an id and its client's address, which all that follows use
	)
}

// users takes the requests of users to the routes.
func (s *Server) users(g *guard, routes *router) http.Handler {
	return chain(routes,
		routes.counted,    // counts also what the steps below refuse
		readOn,            // reads what is left of a body, so that the client sees a refusal
		boundHeader,       // before any step reads the header or shows a part of it
		g.keep,            // refuses a foreign page or a wrong host before it looks at tokens
		s.callers.limited, // finds out who the caller is, and counts the request for its limits
	)
}

// operators takes requests at the operations address to the routes. Each route asks for the
// caller by itself, because probes and metrics need no token.
func (s *Server) operators(g *guard, routes *mux) http.Handler {
	return chain(routes, boundHeader, g.ofOps(s.probed()).keep)
}

// starting answers users, and operators, while the hub waits for its memory.
func (s *Server) starting(g *guard) (users, operators http.Handler) {
	refused, probes := s.errors.Handle(serveStarting), newMux()
	s.health.routes(probes)
	probes.Handle("/", refused)
	return chain(refused, boundHeader, g.keep), s.operators(g, probes)
}

// probed reports whether others than this machine may reach the hub, so that probes do.
func (s *Server) probed() bool { return s.config.Callers != nil || s.config.Insecure }
