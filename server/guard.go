package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

// A guard keeps foreign web pages away from the hub. A page may use the hub if it
// comes from a configured origin or from the hub itself. If no token is needed, a
// page could do everything that its reader may do. Then the Host header must name
// the hub, too. Otherwise a page could reach the hub by a name of its own that it has
// rebound to this machine's address (DNS rebinding).
type guard struct {
	base    feed.Base
	origins []string // origins whose pages may use the hub; *: all
	anyHost bool     // every Host header is accepted
	errors  *problem.Adapter
}

// keep passes allowed requests to next, and answers the preflight requests of browsers.
func (g *guard) keep(next http.Handler) http.Handler {
	return g.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if !g.anyHost && !g.ownHost(r) {
			return problem.New(http.StatusMisdirectedRequest, "wrong-host", "this hub is not "+r.Host+"; it is reached as "+string(g.base))
		}
		w.Header().Add("Vary", "Origin") // also without an Origin, because a cache may keep the answer
		if origin := r.Header.Get("Origin"); origin != "" {
			if !g.allows(r) {
				return problem.New(http.StatusForbidden, "origin", "pages of "+origin+" may not use this hub; RSHUB_ORIGINS allows them")
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "ETag, Link, Last-Modified, Retry-After, RS-Diverged, X-Request-Id")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "DELETE, GET, HEAD, POST, PUT")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Link")
				h.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return nil
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// ownHost reports whether the Host header of r names this hub or this machine, at any
// port. Names are compared without the dot that ends a full name in DNS: whoever may
// not have a name may not have it with the dot either, so it cannot be bound anew.
//
// An empty Host passes, as simple probes and HTTP/1.0 send it. No browser sends it, so
// it is refused beside the headers of a browser.
func (g *guard) ownHost(r *http.Request) bool {
	if r.Host == "" {
		return r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
	}
	host := hostName("http://" + r.Host)
	return host != "" && (Loopback(host) || host == hostName(string(g.base)))
}

// hostName returns the name or address of the host in a URL, in lower case and without
// a dot at its end. It is empty if the URL has none.
func hostName(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// allows reports whether the web page that sends r may use the hub. A request
// without an Origin is allowed.
func (g *guard) allows(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(g.origins, "*") || slices.Contains(g.origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
