package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

func TestControl(t *testing.T) {
	a := &addressRules{}
	for _, address := range []string{
		"127.0.0.1:80", "0.0.0.0:80", "0.1.2.3:80", "10.1.2.3:80", "100.64.0.1:80", "100.127.255.255:80", "169.254.169.254:80",
		"172.16.0.1:80", "172.31.255.255:80", "192.0.0.8:80", "192.0.2.1:80", "192.88.99.1:80", "192.168.0.1:80", "168.63.129.16:80", "198.18.0.1:80",
		"198.19.255.255:80", "198.51.100.1:80", "203.0.113.1:80", "224.0.0.1:80", "239.1.1.1:80", "240.0.0.1:80", "255.255.255.255:80",
		"[::1]:80", "[::]:80", "[::ffff:127.0.0.1]:80", "[::ffff:10.0.0.1]:80", "[::ffff:169.254.169.254]:80", "[::127.0.0.1]:80",
		"[64:ff9b::7f00:1]:80", "[64:ff9b::a9fe:a9fe]:80", "[64:ff9b:1::a00:1]:80", "[2002:7f00:1::1]:80", "[2001::1]:80",
		"[2001:0:a9fe:a9fe::1]:80", "[2001:2::1]:80", "[2001:10::1]:80", "[2001:db8::1]:80", "[3fff::1]:80", "[fe80::1]:80", "[fe80::1%eth0]:80",
		"[fc00::1]:80", "[fd00:ec2::254]:80", "[ff02::1]:80", "[100::1]:80", "[5f00::1]:80", "[fec0::1]:80", "[4000::1]:80",
		"8.8.8.8:25", "8.8.8.8:22", "8.8.8.8:0", "example.org:80", "8.8.8.8", "", "[8.8.8.8]:http",
	} {
		if err := a.control("tcp4", address, nil); !errors.Is(err, ErrAddress) {
			t.Errorf("control(%q) = %v, want ErrAddress", address, err)
		}
	}
	for _, address := range []string{"1.1.1.1:443", "8.8.8.8:80", "168.63.129.17:80", "100.128.0.1:8080", "[2606:4700::1111]:443", "[2400:cb00::1]:65535", "[::ffff:8.8.8.8]:80"} {
		if err := a.control("tcp6", address, nil); err != nil {
			t.Errorf("control(%q) = %v, want nil", address, err)
		}
	}
	for _, network := range []string{"unix", "udp4", "tcp", ""} {
		if a.control(network, "8.8.8.8:80", nil) == nil {
			t.Errorf("control with network %q succeeded", network)
		}
	}
}

func TestControlAllows(t *testing.T) {
	a := &addressRules{
		allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/10")},
	}
	for address, want := range map[string]bool{
		"10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true, "[fe80::1%eth0]:443": true, "8.8.8.8:443": true,
		"10.2.0.1:443": false, "10.1.2.3:22": false, "127.0.0.1:443": false,
	} {
		if err := a.control("tcp4", address, nil); (err == nil) != want {
			t.Errorf("control(%q) = %v, want nil", address, err)
		}
	}
}

// loopback lets callbacks lead to this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Every spelling that a resolver or the system interprets as loopback must be rejected.
func TestLoopbackSpellingsAreRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	a := &addressRules{}
	c := New(Options{PerHost: 1})
	defer c.Close()
	client := c.HTTP()
	for _, host := range []string{
		"127.0.0.1", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "017700000001",
		"0177.0.0.1", "0.0.0.0", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::1%25lo]",
		"[64:ff9b::127.0.0.1]",
	} {
		u := "http://" + net.JoinHostPort(strings.Trim(host, "[]"), itoa(port)) + "/cb"
		resp, err := client.Get(u)
		if err == nil {
			resp.Body.Close()
			t.Errorf("request to %s reached the server", u)
		}
		if strings.HasPrefix(host, "localhost") || strings.EqualFold(host, "localhost") {
			continue // a name: only the connection shows its address
		}
		if err := a.check("callback", u); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("check(%s) = %v", u, err)
		}
	}
}

// A name may resolve to another address each time.
func TestDNSRebinding(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	names := newNameServer(t, []string{"8.8.8.8", "127.0.0.1"}) // the first address is allowed, the second is not
	a := &addressRules{}
	dialer := &net.Dialer{Resolver: names.resolver(), Control: a.control, Timeout: 5 * time.Second}
	if got, err := dialer.Resolver.LookupHost(t.Context(), "rebind.example"); err != nil || got[0] != "8.8.8.8" {
		t.Fatalf("first lookup = %v, %v", got, err)
	}
	_, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("rebind.example", itoa(port)))
	if !errors.Is(err, ErrAddress) {
		t.Errorf("got %v after %d lookups, want ErrAddress", err, names.asked.Load())
	}
}

// A redirect is a response like any other: it is not followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/second" {
			reached.Store(true)
			return
		}
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	}))
	defer server.Close()
	c := New(Options{Allow: loopback})
	defer c.Close()
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", server.URL + "/second"} {
		resp, err := c.HTTP().Get(server.URL + "/?to=" + url.QueryEscape(to))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusFound || reached.Load() {
			t.Errorf("%s: got status %d, followed %v", to, resp.StatusCode, reached.Load())
		}
	}
}

// A proxy from the environment is ignored, because it would hide the address of a request.
func TestEnvironmentProxyIsIgnored(t *testing.T) {
	if New(Options{}).transport.Proxy != nil {
		t.Error("client uses a proxy from the environment")
	}
}

func TestCheckCallback(t *testing.T) {
	a := &addressRules{self: "hub.example.org:443", allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, callback := range []string{
		"http://example.org", "http://example.org/", "https://example.org/cb?a=b&c=%2F", "http://example.org?x", "http://example.org/a?", "HTTP://Example.ORG/cb",
		"http://example.org:8080/a%2Fb/../c//d;e=f", "http://10.1.2.3/", "http://8.8.8.8/", "http://[2606:4700::1111]:8080/", "http://hub.example.org/", "https://xn--bcher-kva.example/",
		"http://example.org/" + strings.Repeat("a", MaxURL-len("http://example.org/")),
	} {
		if err := a.check("callback", callback); err != nil {
			t.Errorf("check(%.60q) = %v", callback, err)
		}
	}
	for callback, want := range map[string]string{
		"":                            "http://",
		"/cb":                         "http://",
		"example.org/cb":              "http://",
		"ftp://example.org/":          "http://",
		"http:example.org":            "http://",
		"http:///cb":                  "http://",
		"http://:8080/":               "http://",
		"http://example.org:/":        "port",
		"http://user@example.org/":    "user name",
		"http://u:p@example.org/":     "user name",
		"http://example.org/#f":       "fragment",
		"http://example.org/#":        "fragment",
		"http://example.org/a b":      "percent-encode",
		"http://example.org/\n":       "percent-encode",
		"http://example.org/ä":        "percent-encode",
		"http://bücher.example/":      `use "http://xn--bcher-kva.example/"`,
		"http://b%C3%BCcher.example/": `use "http://xn--bcher-kva.example/"`,
		"http://%EF%BD%85xample.org/": `use "http://example.org/"`, // a wide e
		"http://example.org/a\"b":     "percent-encoded",
		"http://example.org/%zz":      "not a URL",
		"http://example.org:22/":      "the callback's port 22 is not allowed; use 80, 443, or 1024 and above",
		"http://example.org:99999/":   "port \"99999\"",
		"http://example.org:0/":       "port \"0\"",
		"http://example.org:08080/":   "zeros",
		"http://127.0.0.1/":           "127.0.0.1",
		"http://127.0.0.1./":          "127.0.0.1",
		"http://[::1]/":               "::1",
		"http://127.1/":               "neither",
		"http://0x7f000001/":          "neither",
		"http://2130706433/":          "neither",
		"http://017700000001/":        "neither",
		"http://1.2.3.4.5/":           "neither",
		"http://./":                   "neither",
		"http://" + strings.Repeat("a.", 130) + "example/":  "253 bytes",
		"https://hub.example.org/cb":                        "on this hub",
		"https://HUB.example.org.:443/cb":                   "on this hub",
		"http://example.org/" + strings.Repeat("a", MaxURL): "2048",
	} {
		err := a.check("callback", callback)
		if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("check(%.60q) = %v, want %q", callback, err, want)
		}
	}
}

// All spellings of a host count as one host. The hub cannot be called by another spelling of its
// own address.
func TestHostSpellings(t *testing.T) {
	for want, spellings := range map[string][]string{
		"a.example:443":    {"https://a.example", "https://A.Example./cb", "https://a.example:443/?x"},
		"127.0.0.1:9000":   {"http://127.0.0.1:9000/", "http://127.0.0.1.:9000", "http://[::ffff:127.0.0.1]:9000/", "http://[::ffff:7f00:1]:9000/", "http://[0:0:0:0:0:FFFF:127.0.0.1]:9000/"},
		"[2001:db8::1]:80": {"http://[2001:db8::1]/", "http://[2001:0DB8:0:0:0:0:0:1]:80/", "http://[2001:db8::0.0.0.1]/", "http://[2001:db8::1%25eth0]/"},
	} {
		for _, s := range spellings {
			if got := Host(s); got != want {
				t.Errorf("Host(%s) = %s, want %s", s, got, want)
			}
		}
	}
	a := &addressRules{self: "127.0.0.1:8080", allow: loopback}
	for _, callback := range []string{"http://127.0.0.1:8080/", "http://[::ffff:127.0.0.1]:8080/", "http://[::ffff:7f00:1]:8080/cb", "http://127.0.0.1.:8080/"} {
		if err := a.check("callback", callback); err == nil || !strings.Contains(err.Error(), "on this hub") {
			t.Errorf("check(%s) = %v", callback, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"https://H.example/x": "https://h.example:443", "https://h.example:443": "https://h.example:443", "https://h.example:444/": "https://h.example:444",
		"http://h.example:443": "http://h.example:443", "http://[::1]/": "http://[::1]:80",
	} {
		u, err := url.Parse(text)
		if err != nil || Origin(u) != want {
			t.Errorf("Origin(%s) = %s, %v, want %s", text, Origin(u), err, want)
		}
	}
}
