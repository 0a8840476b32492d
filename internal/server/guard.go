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

// A guard protects the hub against foreign web pages. A page may use the hub if it is from a
// configured origin or from the hub itself.
//
// A page can do everything that its reader may do without a token. So the Host header of a request
// without a token must name the hub, too. Otherwise a page could reach the hub by a name of its own
// that it has rebound to the hub's address (DNS rebinding). A page with a token is harmless, because
// it would need to know the token.
type guard struct {
	base    feed.Base
	origins []string // origins whose pages may use the hub; * means all
	hosts   []string // additional names of the hub, in lower case; * means all
	tokens  bool     // whether the hub has tokens
	probes  bool     // whether probe paths are served under any host name
	errors  *problem.Adapter
}

// Security headers of all responses. The page replaces some of them.
var (
	noSniff  = []string{"nosniff"}
	noScript = []string{"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}
	sameSite = []string{"same-origin"}
	noSource = []string{"no-referrer"}
)

// setSecurityHeaders sets the security headers.
func setSecurityHeaders(h http.Header) {
	h["X-Content-Type-Options"], h["Content-Security-Policy"] = noSniff, noScript
	h["Cross-Origin-Resource-Policy"], h["Referrer-Policy"] = sameSite, noSource
}

// wrap passes allowed requests to next, and answers preflight requests.
func (g *guard) wrap(next http.Handler) http.Handler {
	return g.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		header := w.Header()
		setSecurityHeaders(header)
		if r.TLS != nil && g.sendsHSTS(r) {
			header["Strict-Transport-Security"] = strict
		}
		if !g.ownHost(r) {
			return problem.New(http.StatusMisdirectedRequest, "wrong-host", "got Host "+r.Host+", want a name of this hub; use "+string(g.base)+", send a token, or add the name to RSHUB_HOSTS")
		}
		if g.embedded(r) {
			return problem.New(http.StatusForbidden, "origin", "this URL is embedded in a web page of another site; to allow that, add the site to RSHUB_ORIGINS")
		}
		w.Header().Add("Vary", "Origin") // even without an Origin, because a cache may store the response
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

// sendsHSTS reports whether to send HSTS for the host in r. Since HSTS applies to all ports of a
// host, the hub must have an https URL, and the host must not be localhost, where other servers run.
func (g *guard) sendsHSTS(r *http.Request) bool {
	return strings.HasPrefix(string(g.base), "https:") && hostName("https://"+r.Host) != "localhost"
}

// forOperations returns the guard of the operations address, which no foreign page may use. probes
// enables probe paths under any host name.
func (g *guard) forOperations(probes bool) *guard {
	ops := *g
	ops.origins, ops.probes = nil, probes
	return &ops
}

// ownHost reports whether the Host header of r is allowed: a name of this hub or machine, at any
// port, or an IP address, which cannot be rebound, or any name if r has a token. The final dot of a
// DNS name is ignored.
//
// An empty Host is allowed, because simple probes and HTTP/1.0 send it. Browsers never do, so it is
// refused together with headers of a browser.
func (g *guard) ownHost(r *http.Request) bool {
	if r.Host == "" {
		return r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
	}
	if g.probes && slices.Contains(probePaths, r.URL.Path) || slices.Contains(g.hosts, "*") || g.tokens && r.Header.Get("Authorization") != "" {
		return true
	}
	_, rest, _ := strings.Cut(string(g.base), "://")
	if own, _, _ := strings.Cut(rest, "/"); own == r.Host { // common case
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

// probePaths are the paths of the operations address whose responses name no set and no callback.
var probePaths = []string{"/healthz", "/readyz", "/metrics"}

// embedded reports whether r loads a part of a foreign page, such as an image. Browsers send no
// preflight request for these. Links to the hub are not embedded.
func (g *guard) embedded(r *http.Request) bool {
	return foreign(r) && r.Header.Get("Sec-Fetch-Mode") == "no-cors" && !slices.Contains(g.origins, "*")
}

// foreign reports whether Sec-Fetch-Site says that a foreign page caused r.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

// byPage reports whether a foreign page may have caused r, if r is a GET or HEAD. Older browsers do
// not send Sec-Fetch-Site, but a page cannot hide the User-Agent without a preflight request.
func byPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Authorization") != "" {
		return false
	}
	if r.Header.Get("Sec-Fetch-Site") != "" {
		return foreign(r)
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// hostName returns the host of a URL, in lower case and without a final dot, or "" if it has none.
func hostName(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// allows reports whether the origin of r may use the hub. Requests without an Origin are allowed.
func (g *guard) allows(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(g.origins, "*") || slices.Contains(g.origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
