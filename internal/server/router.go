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

// The routes: answers are counted by where the request went, and by the class of
// the status.
const (
	topicRoute         = "topic"         // of a set: publish and follow
	hubRoute           = "hub"           // publish and subscribe
	documentsRoute     = "documents"     // documents of the standard
	inventoryRoute     = "inventory"     // what a set holds now, and audits of it
	setsRoute          = "sets"          // list, describe, delete
	ticketRoute        = "ticket"        // tickets for browsers
	subscriptionsRoute = "subscriptions" // WebSub subscriptions, for operators
	rdmRoute           = "rdm"           // Resource Description Messages
	statusRoute        = "status"        // status of a subscription, for its subscriber
	pageRoute          = "page"          // the web page, and what it alone asks for
	otherRoute         = "other"         // there is nothing at the URL
)

// classes are the classes of a status. 101 (Switching Protocols) is a class of its own.
var classes = [...]string{"101", "2xx", "3xx", "4xx", "5xx"}

func class(status int) int {
	if status < 200 {
		return 0
	}
	return min(status/100-1, len(classes)-1)
}

// A router is a ServeMux that counts its answers by route and class of status.
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

// handle adds a handler whose answers are counted for a route.
func (r *router) handle(pattern, route string, h problem.Handler) {
	all := new([len(classes)]prometheus.Counter)
	for i, c := range classes {
		all[i] = r.responses.WithLabelValues(route, c)
	}
	r.counters[pattern] = all
	answer := r.errors.Handle(h)
	r.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		a := answerOf(w)
		a.counters = all
		answer(a, req)
	})
}

// writeError answers with an error in the form that clients of a URL read.
func writeError(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
	switch {
	case r.URL.Path == rdm.Path:
		return rdm.WriteError(w, err)
	case slices.Contains(hubPaths, r.URL.Path) && websub.IsForm(r.Header):
		return problem.WriteText(w, err)
	}
	return problem.Write(w, r, err)
}

// takes refuses requests with other parameters in their URL than these. A parameter that is
// misspelt would otherwise have no effect, and nobody would notice.
func takes(h problem.Handler, parameters ...string) problem.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery == "" {
			return h(w, r)
		}
		for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
			if slices.Contains(parameters, name) {
				continue
			}
			hint := ", which takes none"
			if near := nearest.Of(name, parameters); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			} else if len(parameters) > 0 {
				hint = ", which takes " + strings.Join(parameters, ", ")
			}
			return resourcesync.Invalidf("unknown parameter %q of this URL%s", resourcesync.Shorten(name), hint)
		}
		return h(w, r)
	}
}

// counted counts the answers of next, which passes requests on to r. So it also
// counts answers that are given before r, such as that a token is missing.
func (r *router) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := answerOf(w)
		a.router, a.request = r, req
		next.ServeHTTP(a, req)
	})
}

// count counts an answer that begins. If no handler was called, it looks which one would have
// been.
func (r *router) count(a *answer) {
	counters := a.counters
	if counters == nil {
		_, pattern := r.Handler(a.request)
		counters = r.counters[pattern]
	}
	if counters != nil {
		counters[class(a.status)].Inc()
	}
}
