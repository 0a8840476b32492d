package server

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect/rdm"
	"github.com/rshub/rshub/internal/nearest"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Routes, by which responses are counted together with the class of the status.
const (
	topicRoute         = "topic"         // publish and follow a set
	hubRoute           = "hub"           // publish and subscribe
	documentsRoute     = "documents"     // documents of the standard
	inventoryRoute     = "inventory"     // resources of a set, and audits
	setsRoute          = "sets"          // list, describe, delete
	ticketRoute        = "ticket"        // tickets for browsers
	subscriptionsRoute = "subscriptions" // WebSub subscriptions, for operators
	rdmRoute           = "rdm"           // Resource Description Messages
	statusRoute        = "status"        // status of a subscription, for its subscriber
	pageRoute          = "page"          // the web page and its data
	otherRoute         = "other"         // no such URL
)

// classes are the classes of statuses. 101 (Switching Protocols) is a class of its own.
var classes = [...]string{"101", "2xx", "3xx", "4xx", "5xx"}

func classOf(status int) int {
	if status < 200 {
		return 0
	}
	return min(status/100-1, len(classes)-1)
}

// A router is a ServeMux that counts responses by route and class of status.
type router struct {
	*http.ServeMux
	errors    *problem.Adapter
	responses *prometheus.CounterVec
	counters  map[string]*[len(classes)]prometheus.Counter // by pattern
}

func newRouter(r prometheus.Registerer, errors *problem.Adapter) *router {
	return &router{
		ServeMux: http.NewServeMux(),
		errors:   errors,
		responses: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rshub_http_responses_total", Help: "Responses at RSHUB_LISTEN by route and status class; a WebSocket counts as 101.",
		}, []string{"route", "code"}),
		counters: map[string]*[len(classes)]prometheus.Counter{},
	}
}

// handle adds a handler whose responses are counted for a route.
func (r *router) handle(pattern, route string, h problem.Handler) {
	all := new([len(classes)]prometheus.Counter)
	for i, c := range classes {
		all[i] = r.responses.WithLabelValues(route, c)
	}
	r.counters[pattern] = all
	answer := r.errors.Handle(h)
	r.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		a := responseOf(w)
		a.counters = all
		answer(a, req)
	})
}

// writeError writes an error in the format of the URL.
func writeError(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
	switch {
	case r.URL.Path == rdm.Path:
		return rdm.WriteError(w, err)
	case slices.Contains(hubPaths, r.URL.Path) && websub.IsForm(r.Header):
		return problem.WriteText(w, err)
	}
	return problem.Write(w, r, err)
}

// withParameters refuses requests with other URL parameters, because a misspelled parameter would
// otherwise be ignored silently.
func withParameters(h problem.Handler, parameters ...string) problem.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery == "" {
			return h(w, r)
		}
		for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
			if slices.Contains(parameters, name) {
				continue
			}
			hint := ", want none"
			if near := nearest.Of(name, parameters); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			} else if len(parameters) > 0 {
				hint = ", want " + strings.Join(parameters, ", ")
			}
			return resourcesync.Invalidf("unknown parameter %q%s", resourcesync.Shorten(name), hint)
		}
		return h(w, r)
	}
}

// countResponses counts the responses of next, which wraps r, including refusals before r is reached.
func (r *router) countResponses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := responseOf(w)
		a.router, a.request = r, req
		next.ServeHTTP(a, req)
	})
}

// countResponse counts a response when it starts. If no handler was called, it counts it for the route
// of the request.
func (r *router) countResponse(a *response) {
	counters := a.counters
	if counters == nil {
		_, pattern := r.Handler(a.request)
		counters = r.counters[pattern]
	}
	if counters != nil {
		counters[classOf(a.status)].Inc()
	}
}
