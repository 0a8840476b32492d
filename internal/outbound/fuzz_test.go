package outbound

import (
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// numeric matches the hosts that some resolvers accept as IPv4 addresses (inet_aton).
var numeric = regexp.MustCompile(`(?i)^(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?$`)

// An accepted URL leads unchanged to a name or to an allowed address, on an allowed port, and not
// to the hub.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		"https://callback.example/a?b=c", "http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/", "http://[::1]:80/", "http://[fe80::1%25eth0]/", "http://8.8.8.8:65536/", "http://a.example:022/",
		"http://a.example:8080", "http://user@a.example/", "http://a.example/#", "http://a.example/ä", "http://ａ.example/", "http://a%2eexample/", "http://%31%32%37.0.0.1/", "HTTP://A.EXAMPLE./", "http:a.example", "//a.example", "http://hub.example.org/sets", "http://hub.example.org.:80/",
		"http://a.example:/", "http://a.example/..//x", "http://a.example\\@b.example/", "http://[64:ff9b::7f00:1]/", "http://169.254.169.254/latest", "http://1.1.1.1.", "http://a.example?x", "http://①②⑦.0.0.1/", "http://0177.0.0.1/", "http://[2002:7f00:1::]/",
	} {
		f.Add(s)
	}
	a := New(Options{Self: "http://hub.example.org"}).addresses
	f.Fuzz(func(t *testing.T, target string) {
		if a.check("callback", target) != nil {
			return
		}
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.ContainsAny(target, "# \t\r\n\\") || len(target) > MaxURL {
			t.Fatalf("check(%q) = %v, want error", target, err)
		}
		host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		addr, err := netip.ParseAddr(host)
		switch {
		case err == nil:
			if addr = addr.Unmap(); !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || addr.Zone() != "" {
				t.Errorf("check(%q) = nil, want error for address %v", target, addr)
			}
			if a.control("tcp4", netip.AddrPortFrom(addr, 443).String(), nil) != nil {
				t.Errorf("check(%q) = nil, but control rejects the connection", target)
			}
		case numeric.MatchString(host), strings.ContainsAny(host, ":%[]/@"), host == "":
			t.Errorf("Host(%q) = %q", target, host)
		}
		if host == "hub.example.org" && (u.Port() == "" && u.Scheme == "http" || u.Port() == "80") {
			t.Errorf("check(%q) = nil for the hub itself", target)
		}
		r, err := http.NewRequest(http.MethodPost, target, nil)
		if err != nil {
			t.Fatalf("NewRequest(%q): %v", target, err)
		}
		_, rest, _ := strings.Cut(target, "//")
		if i := strings.IndexAny(rest, "/?"); i >= 0 && strings.TrimPrefix(r.URL.RequestURI(), "/") != strings.TrimPrefix(rest[i:], "/") {
			t.Errorf("request for %q has URI %q", target, r.URL.RequestURI())
		}
		// Every spelling of a host counts as one.
		if again := Host(strings.Replace(target, u.Host, strings.ToUpper(u.Host), 1)); again != Host(target) {
			t.Errorf("Host(%q) = %q, in upper case %q", target, Host(target), again)
		}
	})
}
