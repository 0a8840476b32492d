package forwarded

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// trusted are the networks of Private, and the only public proxy.
func trusted(t testing.TB) Proxies {
	t.Helper()
	p := Proxies{netip.MustParsePrefix("203.0.113.7/32")}
	for _, network := range strings.Split(Private, ",") {
		p = append(p, netip.MustParsePrefix(network))
	}
	return p
}

func request(remote string, forwardedFor []string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = remote
	r.Header = http.Header{"X-Forwarded-For": forwardedFor}
	return r
}

func TestClient(t *testing.T) {
	const proxy = "10.0.0.1:5"
	list := func(lines ...string) []string { return lines }
	for _, test := range []struct {
		name, remote string
		forFor       []string
		want         string
	}{
		{"directly", "192.0.2.1:5", nil, "192.0.2.1"},
		{"directly by IPv6", "[2001:db8::1]:5", nil, "2001:db8::1"},
		{"with a zone", "[fe80::1%eth0]:5", nil, "fe80::1"},
		{"IPv4 within IPv6", "[::ffff:192.0.2.1]:5", nil, "192.0.2.1"},
		{"over no network", "@", nil, "invalid IP"},
		{"from a stranger", "192.0.2.1:5", list("198.51.100.1"), "192.0.2.1"},

		{"a proxy that says nothing", proxy, nil, "10.0.0.1"},
		{"a proxy", proxy, list("198.51.100.1"), "198.51.100.1"},
		{"a public proxy", "203.0.113.7:80", list("198.51.100.1"), "198.51.100.1"},
		{"a proxy on this machine", "[::1]:5", list(" 2001:db8::1 "), "2001:db8::1"},
		{"an invented one before it", proxy, list("1.2.3.4, 198.51.100.1"), "198.51.100.1"},
		{"an invented one in another line", proxy, list("1.2.3.4", "198.51.100.1"), "198.51.100.1"},
		{"rubbish before it", proxy, list(`"<script>, 198.51.100.1`), "198.51.100.1"},
		{"two proxies", proxy, list("1.2.3.4,198.51.100.1,203.0.113.7"), "198.51.100.1"},
		{"two proxies in two lines", proxy, list("1.2.3.4, 198.51.100.1", "192.168.0.9"), "198.51.100.1"},
		{"trusted all the way", proxy, list("10.9.9.9, 203.0.113.7"), "10.9.9.9"},
		{"rubbish behind a proxy", proxy, list("198.51.100.1, x, 10.2.2.2"), "10.2.2.2"},
		{"rubbish", proxy, list("unknown"), "10.0.0.1"},
		{"nothing at the end", proxy, list("198.51.100.1,"), "10.0.0.1"},
		{"empty", proxy, list(""), "10.0.0.1"},
		{"a port", proxy, list("198.51.100.1:99"), "198.51.100.1"},
		{"a wrong port", proxy, list("198.51.100.1:99999"), "10.0.0.1"},
		{"brackets", proxy, list("[2001:db8::1]"), "2001:db8::1"},
		{"brackets and a port", proxy, list("[2001:db8::1]:443"), "2001:db8::1"},
		{"brackets and a zone", proxy, list("[fe80::1%25eth0]:443"), "fe80::1"},
		{"brackets round IPv4", proxy, list("[198.51.100.1]"), "10.0.0.1"},
		{"an open bracket", proxy, list("[2001:db8::1"), "10.0.0.1"},
		{"IPv4 within IPv6 in the header", proxy, list("::ffff:198.51.100.1"), "198.51.100.1"},
		{"a private one within IPv6", proxy, list("198.51.100.1, ::ffff:10.0.0.4"), "198.51.100.1"},
		{"a network", proxy, list("198.51.100.0/24"), "10.0.0.1"},
		{"octal", proxy, list("0198.51.100.1"), "10.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(test.remote, test.forFor)
			if got := trusted(t).Client(r).String(); got != test.want {
				t.Errorf("Client() = %s, want %s", got, test.want)
			}
			if got := Proxies(nil).Client(r); got != remoteAddr(r) {
				t.Errorf("Client() = %v without trusted proxies, want the peer", got)
			}
		})
	}
}

func TestClientFromContext(t *testing.T) {
	r := request("10.0.0.1:5", []string{"198.51.100.1"})
	if got := Client(r).String(); got != "10.0.0.1" {
		t.Errorf("Client() without context = %s", got)
	}
	r = r.WithContext(NewContext(r.Context(), trusted(t).Client(r)))
	if got := Client(r).String(); got != "198.51.100.1" {
		t.Errorf("Client() from context = %s", got)
	}
}

// Whatever a client sends, the peer of the trusted proxy is the client.
func FuzzClient(f *testing.F) {
	for _, seed := range []string{"1.2.3.4", "[::1]:80, x", ",,;=", "fe80::1%eth0"} {
		f.Add(seed)
	}
	p := trusted(f)
	const proxy, client = "10.0.0.1", "198.51.100.1"
	f.Fuzz(func(t *testing.T, list string) {
		got := p.Client(request(proxy+":5", []string{list}))
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Errorf("Client() with list %q = %v", list, got)
		}
		if got := p.Client(request("192.0.2.1:5", []string{list})); got.String() != "192.0.2.1" {
			t.Errorf("Client() = %v, want the untrusted peer", got)
		}
		for _, lines := range [][]string{{list + ", " + client}, {list, client}} {
			if got := p.Client(request(proxy+":5", lines)).String(); got != client {
				t.Errorf("X-Forwarded-For %q: Client() = %s", lines, got)
			}
		}
	})
}
