package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A guard keeps foreign web pages away from the hub. A page may use the hub if it
// comes from a configured origin or from the hub itself.
//
// A page could do everything that its reader may do without a token. So the Host header
// of a request without a token must name the hub, too. Otherwise a page could reach the
// hub by a name of its own that it has rebound to the hub's address (DNS rebinding). Who
// has a token is no such page: it would need to know the token.
type guard struct {
	base    feed.Base
	origins []string // origins whose pages may use the hub; *: all
	hosts   []string // names of the hub besides that of base, in lower case; *: all
	tokens  bool     // there are tokens
	probes  bool     // what probes and Prometheus ask for is there under any name, because others reach the hub
	errors  *problem.Adapter
}

// Headers for browsers, in every answer. The page and its parts replace some of them.
var (
	noSniff  = []string{"nosniff"}
	noScript = []string{"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}
	sameSite = []string{"same-origin"}
	noSource = []string{"no-referrer"}
)

// protect sets these headers.
func protect(h http.Header) {
	h["X-Content-Type-Options"], h["Content-Security-Policy"] = noSniff, noScript
	h["Cross-Origin-Resource-Policy"], h["Referrer-Policy"] = sameSite, noSource
}

// keep passes allowed requests to next, and answers the preflight requests of browsers.
func (g *guard) keep(next http.Handler) http.Handler {
	return g.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		header := w.Header()
		protect(header)
		if r.TLS != nil && g.strict(r) {
			header["Strict-Transport-Security"] = strict
		}
		if !g.ownHost(r) {
			return problem.New(http.StatusMisdirectedRequest, "wrong-host", "this hub does not answer as "+r.Host+": use "+string(g.base)+", send a token, or add the name to RSHUB_HOSTS")
		}
		if g.embedded(r) {
			return problem.New(http.StatusForbidden, "origin", "a web page of another site embeds this URL; RSHUB_ORIGINS says which sites may use the hub")
		}
		w.Header().Add("Vary", "Origin") // also without an Origin, because a cache may keep the answer
		if origin := r.Header.Get("Origin"); origin != "" {
			if !g.allows(r) {
				return problem.New(http.StatusForbidden, "origin", "web pages of "+origin+" may not use this hub; to allow them, add it to RSHUB_ORIGINS")
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "ETag, Link, Last-Modified, RateLimit, RateLimit-Policy, Retry-After, RS-Baseline, RS-Diverged, RS-Inventory, X-Request-Id")
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

// strict reports whether browsers may be told to use the host in r by TLS only. The rule is
// then for all ports of the host. So the hub must not be reached there without TLS, and the
// host must not be localhost, where other servers are.
func (g *guard) strict(r *http.Request) bool {
	return strings.HasPrefix(string(g.base), "https:") && hostName("https://"+r.Host) != "localhost"
}

// ofOps returns the guard of the operations address. No page elsewhere may use it, also none
// that may use the hub. probes says that others reach the hub.
func (g *guard) ofOps(probes bool) *guard {
	kept := *g
	kept.origins, kept.probes = nil, probes
	return &kept
}

// ownHost reports whether the Host header of r is allowed. It is if it names this hub or this
// machine, at any port, if it is an address, which nobody can rebind, or if r has a token.
// Names are compared without the dot that ends a full name in DNS.
//
// An empty Host passes, as simple probes and HTTP/1.0 send it. No browser sends it, so
// it is refused beside the headers of a browser.
func (g *guard) ownHost(r *http.Request) bool {
	if r.Host == "" {
		return r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
	}
	if g.probes && slices.Contains(probePaths, r.URL.Path) || slices.Contains(g.hosts, "*") || g.tokens && r.Header.Get("Authorization") != "" {
		return true
	}
	_, rest, _ := strings.Cut(string(g.base), "://")
	if own, _, _ := strings.Cut(rest, "/"); own == r.Host { // the usual case
		return true
	}
	host := hostName("http://" + r.Host)
	if host == "" {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return Loopback(host) || host == hostName(string(g.base)) || slices.Contains(g.hosts, host)
}

// probePaths are the paths of the operations address that name no set and no callback.
var probePaths = []string{"/healthz", "/readyz", "/metrics"}

// embedded reports whether r is for a part of a page elsewhere, such as an image. A browser
// asks nobody before it loads one. A link to the hub is no such part.
func (g *guard) embedded(r *http.Request) bool {
	return foreign(r) && r.Header.Get("Sec-Fetch-Mode") == "no-cors" && !slices.Contains(g.origins, "*")
}

// foreign reports whether a browser says that a page elsewhere is behind r.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

// byPage reports whether a page elsewhere may have sent r, which is a GET. Older browsers do
// not say so. But a page cannot hide that it runs in a browser, unless the hub allows it first.
func byPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Authorization") != "" {
		return false
	}
	if r.Header.Get("Sec-Fetch-Site") != "" {
		return foreign(r)
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/")
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
