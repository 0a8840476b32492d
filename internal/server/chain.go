package server

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/rshub/rshub/internal/limit"
)

// This file lists the steps of a request from its connection to the handler of its route. Before
// that, a limit.Listener accepts the connection, and net/http reads the header; see newHTTPServer.

// A step wraps a handler.
type step func(next http.Handler) http.Handler

// chain returns h wrapped in steps. The first step is the outermost.
func chain(h http.Handler, steps ...step) http.Handler {
	for _, s := range slices.Backward(steps) {
		h = s(h)
	}
	return h
}

// baseChain wraps h in the first steps at both addresses, even during the start. failed is the level
// at which responses with 5xx are logged.
func (f *frontend) baseChain(h http.Handler, failed slog.Level) http.Handler {
	return chain(h,
		wrapResponse(f.writeTimeout), // first: creates the ResponseWriter of all steps
		limitRefusals,                // before anything is refused
		limit.RefuseExcess,           // before the request is logged
		f.requests.logged(failed),    // sets the ID of the request and the client address for all further steps
	)
}

// userChain wraps the routes for users.
func (s *Server) userChain(g *guard, routes *router) http.Handler {
	return chain(routes,
		routes.countResponses, // counts refusals of the steps below, too
		drainBody,             // reads the rest of the body, so that the client receives a refusal
		limitHeader,           // before any step reads the header or shows a part of it
		g.wrap,                // refuses foreign pages and wrong hosts before tokens are checked
		s.callers.limited,     // identifies the caller and enforces its limits
	)
}

// operatorChain wraps the routes at the operations address. Routes identify the caller themselves,
// because probes and metrics require no token.
func (s *Server) operatorChain(g *guard, routes *mux) http.Handler {
	return chain(routes, limitHeader, g.forOperations(s.probedRemotely()).wrap)
}

// starting returns the handlers for users and operators while the hub waits for its memory.
func (s *Server) starting(g *guard) (users, operators http.Handler) {
	refused, probes := s.errors.Handle(serveStarting), newMux()
	s.health.routes(probes)
	probes.Handle("/", refused)
	return chain(refused, limitHeader, g.wrap), s.operatorChain(g, probes)
}

// probedRemotely reports whether other machines may reach the hub, so that probes may use any name.
func (s *Server) probedRemotely() bool { return s.config.Callers != nil || s.config.Insecure }
