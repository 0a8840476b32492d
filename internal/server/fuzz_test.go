package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// portAtEnd matches the port of a Host header.
var portAtEnd = regexp.MustCompile(`:[0-9]*$`)

// Only IP addresses, localhost and configured names pass as Host, and only the own and configured
// origins pass.
func FuzzHostAndOrigin(f *testing.F) {
	for _, s := range []string{
		"hub.example.org", "HUB.example.org.:8080", "localhost", "a.localhost", "127.0.0.1:1", "[::1]:80", "[::1%25eth0]", "::1", "0x7f.1", "evil.example", "hub.example.org.evil.example", "evil.example/hub.example.org",
		"evil.example?hub.example.org", "evil.example#@hub.example.org", "user@hub.example.org", "hub.example.org@evil.example", "hub.example.org:80:80", "hub.example.org%00.evil.example", "", ".", "[", "hub.example.org\\evil.example", "friend.example",
	} {
		f.Add(s, "http://"+s, "cross-site", "no-cors")
		f.Add(s, s, "", "")
	}
	f.Add("localhost", "null", "same-site", "navigate")
	g := &guard{base: "https://hub.example.org", origins: []string{"https://friend.example"}, hosts: []string{"other.example"}, tokens: true}
	f.Fuzz(func(t *testing.T, host, origin, site, mode string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r.Header = http.Header{"Origin": {origin}, "Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {mode}}
		if g.ownHost(r) {
			name := strings.TrimSuffix(strings.ToLower(portAtEnd.ReplaceAllString(host, "")), ".")
			_, err := netip.ParseAddr(strings.Trim(name, "[]"))
			if unescaped, uerr := url.PathUnescape(strings.Trim(name, "[]")); err != nil && uerr == nil {
				_, err = netip.ParseAddr(unescaped) // a zone is escaped
			}
			known := slices.Contains([]string{"hub.example.org", "other.example", "localhost"}, name)
			anonymous := host == "" && origin == "" && site == ""
			if at := strings.LastIndexByte(name, '@'); err != nil && !known && !anonymous && (at < 0 || !slices.Contains([]string{"hub.example.org", "other.example", "localhost"}, name[at+1:]) && net.ParseIP(strings.Trim(name[at+1:], "[]")) == nil) {
				t.Errorf("Host %q passes, want it refused", host)
			}
		}
		if g.allows(r) && origin != "" && origin != "https://friend.example" {
			if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, host) || host == "" {
				t.Errorf("Origin %q passes for Host %q, want it refused", origin, host)
			}
		}
		if (site == "cross-site" || site == "same-site") && (mode == "no-cors") != g.embedded(r) {
			t.Errorf("embedded with Sec-Fetch-Site %q and Sec-Fetch-Mode %q = %t, want %t", site, mode, g.embedded(r), mode == "no-cors")
		}
	})
}

// Logged paths and request IDs are short and contain no secret of a subscription.
func FuzzLoggedRequest(f *testing.F) {
	f.Add("/subscriptions/abc.secret", "id")
	f.Add("/sets/a/subscriptions/abc.secret/retry", "a b")
	f.Add("//subscriptions//x.secret/subscriptions/y.secret", strings.Repeat("a", 129))
	f.Add("/subscriptions/.secret", "a\nb")
	f.Fuzz(func(t *testing.T, path, id string) {
		shown := shownPath(path)
		if len(shown) > 200+len("…") {
			t.Errorf("shownPath(%q) = %q, want at most 200 bytes", path, shown)
		}
		if before, name, ok := strings.Cut(path, "/subscriptions/"); ok && !strings.HasPrefix(before, "/subscriptions/") {
			if id, _, secret := strings.Cut(name, "."); secret && len(before)+len(id) < 150 && shown != before+"/subscriptions/"+id {
				t.Errorf("shownPath(%q) = %q, want it without the secret", path, shown)
			}
		}
		if validRequestID(id) {
			line := slog.String("requestId", id).String()
			if strings.ContainsAny(line, "\r\n\t \"<>&;\\\x1b") || len(id) > maxRequestID {
				t.Errorf("validRequestID(%q) = true, want false", id)
			}
		}
	})
}
