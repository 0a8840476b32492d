package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// Pages of others are kept away, and so are names that were bound to this
// machine to get around that.
func TestGuard(t *testing.T) {
	t.Parallel()
	guarded := t
	known, texts := tokens(t, "follow:*")
	hubs := map[string]*started{} // by their configurations
	for _, test := range []struct {
		name         string
		config       Config
		host, origin string // HUB is where it listens
		status       int
		allowed      bool // the page sees the answer
	}{
		{"no page", Config{}, "", "", 200, false},
		{"its own page", Config{}, "", "http://HUB", 200, true},
		{"its own page by name", Config{}, "localhost:1234", "http://localhost:1234", 200, true},
		{"another page", Config{}, "", "https://evil.example", 403, false},
		{"no page's name", Config{}, "", "null", 403, false},
		{"another port", Config{}, "", "http://127.0.0.1:1", 403, false},
		{"a name that was bound anew", Config{}, "evil.example", "http://evil.example", 421, false},
		{"one with the port", Config{}, "evil.example:8080", "", 421, false},
		{"one that looks like loopback", Config{}, "127.0.0.1.evil.example", "", 421, false},
		{"IPv6", Config{}, "[::1]:8080", "", 200, false},
		{"the name it is known by", Config{BaseURL: "https://hub.example.org"}, "Hub.example.org", "", 200, false},
		{"that name with its port", Config{BaseURL: "https://hub.example.org"}, "hub.example.org:443", "", 200, false},
		{"that name with its dot", Config{BaseURL: "https://hub.example.org"}, "hub.example.org.", "", 200, false},
		{"that name with two dots", Config{BaseURL: "https://hub.example.org"}, "hub.example.org..", "", 421, false},
		{"a name below it", Config{BaseURL: "https://hub.example.org"}, "x.hub.example.org.", "", 421, false},
		{"localhost with its dot", Config{}, "localhost.:1234", "", 200, false},
		{"localhost with its dot, and its page", Config{}, "localhost.:1234", "http://localhost.:1234", 200, true},
		{"localhost in capitals", Config{}, "LocalHost", "", 200, false},
		{"an address with a dot", Config{}, "127.0.0.1.", "", 200, false},
		{"another address with a dot", Config{}, "10.0.0.1.", "", 200, false},
		{"another name with its dot", Config{}, "evil.example.", "http://evil.example.", 421, false},
		{"a name that ends in localhost", Config{}, "evil.example.localhost", "", 421, false},
		{"a dot alone", Config{}, ".", "", 421, false},
		{"a port alone", Config{}, ":8080", "", 421, false},
		{"another name", Config{BaseURL: "https://hub.example.org"}, "other.example.org", "", 421, false},
		{"a configured page", Config{Origins: []string{"https://friend.example"}}, "", "https://friend.example", 200, true},
		{"a page beside it", Config{Origins: []string{"https://friend.example"}}, "", "https://friend.example:444", 403, false},
		{"any page", Config{Origins: []string{"*"}}, "", "https://evil.example", 200, true},
		{"any page, by another name", Config{Origins: []string{"*"}}, "evil.example", "https://evil.example", 421, false},
		{"tokens protect, whatever the name", Config{Callers: known}, "proxy.internal", "", 200, false},
		{"a page by a token, whatever the name", Config{Callers: known}, "evil.example", "http://evil.example", 200, true},
		{"tokens, and a page", Config{Callers: known}, "", "https://evil.example", 403, false},
		{"anyone may, by another name", Config{Insecure: true}, "proxy.internal", "", 421, false},
		{"a name that is given", Config{Insecure: true, Hosts: []string{"proxy.internal"}}, "Proxy.internal:8080", "", 200, false},
		{"any name", Config{Hosts: []string{"*"}}, "proxy.internal", "", 200, false},
		{"an address", Config{Insecure: true}, "10.1.2.3:8080", "", 200, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			of := fmt.Sprintf("%+v", test.config)
			if hubs[of] == nil {
				hubs[of] = start(guarded, test.config)
			}
			h := hubs[of]
			headers := bearer(texts[0])
			if test.host != "" {
				headers = append(headers, "Host", test.host)
			}
			origin := strings.ReplaceAll(test.origin, "HUB", strings.TrimPrefix(h.URL, "http://"))
			if origin != "" {
				headers = append(headers, "Origin", origin)
			}
			for _, url := range []string{h.URL + "/sets", h.Ops + "/healthz"} {
				resp, body := servertest.Do(t, "GET", url, "", headers...)
				want := test.status
				if url == h.Ops+"/healthz" && test.config.Insecure {
					want = http.StatusOK // probes have any name
				}
				if url == h.Ops+"/healthz" && strings.Contains(test.origin, "HUB") {
					want = http.StatusForbidden // there it is another's page
				}
				if url == h.Ops+"/healthz" && test.config.Origins != nil && want == http.StatusOK {
					want = http.StatusForbidden // there no page elsewhere may
				}
				if resp.StatusCode != want {
					t.Errorf("%s is %d %s", url, resp.StatusCode, body)
				}
				switch want {
				case http.StatusForbidden:
					checkProblem(t, resp, body, want, "origin")
				case http.StatusMisdirectedRequest:
					checkProblem(t, resp, body, want, "wrong-host")
				default:
					if got := resp.Header.Get("Access-Control-Allow-Origin"); test.allowed && got != origin || !test.allowed && got != "" {
						t.Errorf("%s allows the origin %q", url, got)
					}
					if !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Origin") {
						t.Errorf("%s varies by %v", url, resp.Header.Values("Vary"))
					}
				}
			}
		})
	}
}

func TestPreflight(t *testing.T) {
	known, _ := tokens(t, "follow:*")
	h := start(t, Config{Origins: []string{"https://friend.example"}, Callers: known})
	ask := func(origin string) (*http.Response, string) {
		return servertest.Do(t, "OPTIONS", h.URL+"/sets/demo/changes", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,last-event-id")
	}
	resp, body := ask("https://friend.example") // which brings no token
	if resp.StatusCode != http.StatusNoContent || body != "" {
		t.Fatalf("the answer is %d %s", resp.StatusCode, body)
	}
	for header, values := range map[string][]string{
		"Access-Control-Allow-Origin":  {"https://friend.example"},
		"Access-Control-Allow-Methods": {"DELETE", "GET", "HEAD", "POST", "PUT"},
		"Access-Control-Allow-Headers": {"Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Link"},
	} {
		if got := resp.Header.Get(header); got != strings.Join(values, ", ") {
			t.Errorf("%s is %q", header, got)
		}
	}
	resp, body = ask("https://evil.example")
	checkProblem(t, resp, body, http.StatusForbidden, "origin")
	// Without an Origin it is no preflight.
	h.refuses(http.StatusMethodNotAllowed, "method-not-allowed", "OPTIONS", "/sets/demo/changes", "")
}

// A client without a Host header is no browser, and cannot be led here by a name that
// was bound anew.
func TestNoHost(t *testing.T) {
	h := start(t, Config{})
	for _, test := range []struct {
		request string
		status  int
	}{
		{"GET /sets HTTP/1.0\r\n\r\n", 200},
		{"GET /sets HTTP/1.1\r\nHost:\r\n\r\n", 200},
		{"GET /sets HTTP/1.1\r\nHost: \r\nUser-Agent: probe\r\n\r\n", 200},
		{"GET /sets HTTP/1.1\r\nHost:\r\nOrigin: http://evil.example\r\n\r\n", 421},
		{"GET /sets HTTP/1.1\r\nHost:\r\nSec-Fetch-Site: same-origin\r\n\r\n", 421},
		{"GET /sets HTTP/1.1\r\n\r\n", 400}, // RFC 9112 section 3.2
		{"GET http://evil.example/sets HTTP/1.1\r\nHost:\r\n\r\n", 421},
		{"GET http://evil.example/sets HTTP/1.1\r\nHost: localhost\r\n\r\n", 421},
	} {
		answer := strings.Fields(testutil.ReadStart(testutil.Dial(t, "", strings.TrimPrefix(h.URL, "http://"), test.request)))
		if len(answer) < 2 || answer[1] != fmt.Sprint(test.status) {
			t.Errorf("%q: %v", test.request, answer)
		}
	}
}

// A page elsewhere cannot use the name that it has bound anew where anyone has rights,
// though there are tokens, and cannot have what is for operators begin.
func TestPagesElsewhere(t *testing.T) {
	t.Parallel()
	known, _ := tokens(t, "operate", "anyone - follow:*,publish:*")
	const browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
	public, open := start(t, Config{Callers: known}), start(t, Config{})
	for _, test := range []struct {
		name, method, url string
		headers           []string
		status            int
		kind              string
	}{
		{"a name bound anew", "GET", public.URL + "/sets", []string{"Host", "evil.example"}, 421, "wrong-host"},
		{"to publish", "POST", public.URL + "/sets/a/changes", []string{"Host", "evil.example", "Content-Type", "application/json"}, 421, "wrong-host"},
		{"an image", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"an image of a neighbour", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"a link", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, ""},
		{"its own image", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors"}, 200, ""},
		{"a backup by a link", "GET", open.Ops + "/backup", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 403, "origin"},
		{"a backup by an image", "GET", open.Ops + "/backup", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"a backup by an old browser", "GET", open.Ops + "/backup", []string{"User-Agent", browser}, 403, "origin"},
		{"a profile by an old browser", "GET", open.Ops + "/debug/pprof/profile?seconds=30", []string{"User-Agent", browser}, 403, "origin"},
		{"a backup by a form", "POST", open.Ops + "/backup", []string{"Origin", "https://evil.example"}, 403, "origin"},
		{"a profile that somebody asks for", "GET", open.Ops + "/debug/pprof/heap", []string{"User-Agent", browser, "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200, ""},
		{"a profile by a tool", "GET", open.Ops + "/debug/pprof/heap", []string{"User-Agent", "Go-http-client/1.1"}, 200, ""},
		{"a backup by a tool", "POST", open.Ops + "/backup", nil, 200, ""},
	} {
		resp, body := servertest.Do(t, test.method, test.url, "", test.headers...)
		if test.kind != "" {
			checkProblem(t, resp, body, test.status, test.kind)
		} else if resp.StatusCode != test.status {
			t.Errorf("%s: %d %s", test.name, resp.StatusCode, body)
		}
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer",
		} {
			if got := resp.Header.Get(header); !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q", test.name, header, got)
			}
		}
	}
}

// Where sets are configured, who may publish by nothing but anyone's rights does not find out
// which of them are private. For other hubs TestMatrix says so.
func TestPrivateToPublishers(t *testing.T) {
	t.Parallel()
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:other", "anyone - follow:*,publish:*")
	h := start(t, Config{Callers: known, Sets: []string{"hidden", "shown"}})
	owner := bearer(texts[0])
	h.Publish("hidden", owner...)
	h.describes("hidden", `{"title":"the hidden one","private":true,"changelist":"https://example.org/list.xml"}`, owner...)
	atHub := slices.Concat(asJSON, []string{"Link", `<` + h.URL + `/sets/SET/changes>; rel="self", <` + h.URL + `/hub>; rel="hub"`})
	for _, r := range []struct {
		method, path, body string
		headers            []string
	}{
		{"POST", "/hub", "hub.mode=publish&hub.topic=" + h.URL + "/sets/SET/changes", asForm}, // makes no set
		{"POST", "/sets/SET/changes", aPage, asJSON},
		{"POST", "/sets/SET/changes", "nonsense", asJSON},
		{"POST", "/sets/SET/changes", "nonsense", asText},
		{"POST", "/sets/SET/changes", "", asJSON},
		{"POST", "/sets/SET/changes", aLine, asNDJSON},
		{"POST", "/hub", aPage, atHub},
		{"POST", "/hub", "nonsense", atHub},
		{"PUT", "/sets/SET", `{"title":"mine"}`, nil},
		{"PUT", "/sets/SET", `{"complete":true}`, nil},
		{"PUT", "/sets/SET", `nonsense`, nil},
		{"GET", "/sets/SET", "", nil},
		{"GET", "/sets/SET/changes?since=now", "", []string{"Accept", "text/event-stream"}},
		{"DELETE", "/sets/SET", "", nil},
	} {
		h.alike(t, r.method, r.path, r.body, r.headers, "hidden", "absent")
		h.alike(t, r.method, r.path, r.body, append(bearer(texts[1]), r.headers...), "hidden", "absent")
	}
}

// alike checks that a request is answered alike for two sets. In its texts SET is the set.
func (h *started) alike(t *testing.T, method, path, body string, headers []string, one, other string) {
	t.Helper()
	ask := func(set string) string {
		fill := strings.NewReplacer("SET", set).Replace
		filled := slices.Clone(headers)
		for i := range filled {
			filled[i] = fill(filled[i])
		}
		resp, text := servertest.Do(t, method, h.URL+fill(path), fill(body), filled...)
		return seen(resp, text, set)
	}
	if a, b := ask(one), ask(other); a != b {
		t.Errorf("%s %s %q with %q is answered for %s so:\n%s\nand for %s so:\n%s", method, path, body, headers, one, a, other, b)
	}
}
