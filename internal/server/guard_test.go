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

// Requests of foreign pages are refused, and so are requests with a foreign Host, which DNS rebinding
// would use.
func TestHostAndOrigin(t *testing.T) {
	t.Parallel()
	guarded := t
	known, texts := tokens(t, "follow:*")
	hubs := map[string]*testHub{} // by configuration
	for _, test := range []struct {
		name         string
		config       Config
		host, origin string // HUB is the address
		status       int
		allowed      bool // whether the page may read the response
	}{
		{"without Origin", Config{}, "", "", 200, false},
		{"own page", Config{}, "", "http://HUB", 200, true},
		{"own page by name", Config{}, "localhost:1234", "http://localhost:1234", 200, true},
		{"foreign page", Config{}, "", "https://evil.example", 403, false},
		{"opaque origin", Config{}, "", "null", 403, false},
		{"other port", Config{}, "", "http://127.0.0.1:1", 403, false},
		{"rebound name", Config{}, "evil.example", "http://evil.example", 421, false},
		{"rebound name with port", Config{}, "evil.example:8080", "", 421, false},
		{"name that starts like loopback", Config{}, "127.0.0.1.evil.example", "", 421, false},
		{"IPv6", Config{}, "[::1]:8080", "", 200, false},
		{"own name", Config{BaseURL: "https://hub.example.org"}, "Hub.example.org", "", 200, false},
		{"own name with port", Config{BaseURL: "https://hub.example.org"}, "hub.example.org:443", "", 200, false},
		{"own name with final dot", Config{BaseURL: "https://hub.example.org"}, "hub.example.org.", "", 200, false},
		{"own name with two dots", Config{BaseURL: "https://hub.example.org"}, "hub.example.org..", "", 421, false},
		{"subdomain", Config{BaseURL: "https://hub.example.org"}, "x.hub.example.org.", "", 421, false},
		{"localhost with final dot", Config{}, "localhost.:1234", "", 200, false},
		{"localhost with final dot and its page", Config{}, "localhost.:1234", "http://localhost.:1234", 200, true},
		{"localhost in capitals", Config{}, "LocalHost", "", 200, false},
		{"loopback with final dot", Config{}, "127.0.0.1.", "", 200, false},
		{"address with final dot", Config{}, "10.0.0.1.", "", 200, false},
		{"foreign name with final dot", Config{}, "evil.example.", "http://evil.example.", 421, false},
		{"name that ends in localhost", Config{}, "evil.example.localhost", "", 421, false},
		{"only a dot", Config{}, ".", "", 421, false},
		{"only a port", Config{}, ":8080", "", 421, false},
		{"foreign name", Config{BaseURL: "https://hub.example.org"}, "other.example.org", "", 421, false},
		{"configured page", Config{Origins: []string{"https://friend.example"}}, "", "https://friend.example", 200, true},
		{"other port of a configured page", Config{Origins: []string{"https://friend.example"}}, "", "https://friend.example:444", 403, false},
		{"any page", Config{Origins: []string{"*"}}, "", "https://evil.example", 200, true},
		{"any page by a foreign name", Config{Origins: []string{"*"}}, "evil.example", "https://evil.example", 421, false},
		{"any name with tokens", Config{Callers: known}, "proxy.internal", "", 200, false},
		{"own page of any name with tokens", Config{Callers: known}, "evil.example", "http://evil.example", 200, true},
		{"foreign page with tokens", Config{Callers: known}, "", "https://evil.example", 403, false},
		{"foreign name without tokens", Config{Insecure: true}, "proxy.internal", "", 421, false},
		{"configured name", Config{Insecure: true, Hosts: []string{"proxy.internal"}}, "Proxy.internal:8080", "", 200, false},
		{"any name", Config{Hosts: []string{"*"}}, "proxy.internal", "", 200, false},
		{"address", Config{Insecure: true}, "10.1.2.3:8080", "", 200, false},
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
					want = http.StatusOK // probes may use any name
				}
				if url == h.Ops+"/healthz" && strings.Contains(test.origin, "HUB") {
					want = http.StatusForbidden // a foreign page for the operations address
				}
				if url == h.Ops+"/healthz" && test.config.Origins != nil && want == http.StatusOK {
					want = http.StatusForbidden // the operations address allows no foreign page
				}
				if resp.StatusCode != want {
					t.Errorf("GET %s: got %d %s, want %d", url, resp.StatusCode, body, want)
				}
				switch want {
				case http.StatusForbidden:
					checkProblem(t, resp, body, want, "origin")
				case http.StatusMisdirectedRequest:
					checkProblem(t, resp, body, want, "wrong-host")
				default:
					if got := resp.Header.Get("Access-Control-Allow-Origin"); test.allowed && got != origin || !test.allowed && got != "" {
						t.Errorf("GET %s: got Access-Control-Allow-Origin %q, want it: %t", url, got, test.allowed)
					}
					if !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Origin") {
						t.Errorf("GET %s: got Vary %v, want Origin", url, resp.Header.Values("Vary"))
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
	resp, body := ask("https://friend.example") // preflights have no token
	if resp.StatusCode != http.StatusNoContent || body != "" {
		t.Fatalf("OPTIONS: got %d %s, want 204", resp.StatusCode, body)
	}
	for header, values := range map[string][]string{
		"Access-Control-Allow-Origin":  {"https://friend.example"},
		"Access-Control-Allow-Methods": {"DELETE", "GET", "HEAD", "POST", "PUT"},
		"Access-Control-Allow-Headers": {"Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Link"},
	} {
		if got := resp.Header.Get(header); got != strings.Join(values, ", ") {
			t.Errorf("%s = %q, want %q", header, got, values)
		}
	}
	resp, body = ask("https://evil.example")
	checkProblem(t, resp, body, http.StatusForbidden, "origin")
	// Without Origin, OPTIONS is not a preflight.
	h.wantProblem(http.StatusMethodNotAllowed, "method-not-allowed", "OPTIONS", "/sets/demo/changes", "")
}

// A request without Host passes, because it does not come from a browser and so not from DNS rebinding.
func TestEmptyHost(t *testing.T) {
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
			t.Errorf("%q: got %v, want %d", test.request, answer, test.status)
		}
	}
}

// A foreign page cannot use a rebound name of a hub where anyone has rights, even if it has tokens, and
// cannot start the work of the operations address.
func TestForeignPages(t *testing.T) {
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
		{"rebound name", "GET", public.URL + "/sets", []string{"Host", "evil.example"}, 421, "wrong-host"},
		{"publish by a rebound name", "POST", public.URL + "/sets/a/changes", []string{"Host", "evil.example", "Content-Type", "application/json"}, 421, "wrong-host"},
		{"cross-site image", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"same-site image", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"cross-site link", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, ""},
		{"own image", "GET", public.URL + "/sets", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors"}, 200, ""},
		{"backup by link", "GET", open.Ops + "/backup", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 403, "origin"},
		{"backup by image", "GET", open.Ops + "/backup", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "origin"},
		{"backup by old browser", "GET", open.Ops + "/backup", []string{"User-Agent", browser}, 403, "origin"},
		{"profile by old browser", "GET", open.Ops + "/debug/pprof/profile?seconds=30", []string{"User-Agent", browser}, 403, "origin"},
		{"backup by form", "POST", open.Ops + "/backup", []string{"Origin", "https://evil.example"}, 403, "origin"},
		{"profile by address bar", "GET", open.Ops + "/debug/pprof/heap", []string{"User-Agent", browser, "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200, ""},
		{"profile by tool", "GET", open.Ops + "/debug/pprof/heap", []string{"User-Agent", "Go-http-client/1.1"}, 200, ""},
		{"backup by tool", "POST", open.Ops + "/backup", nil, 200, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, body := servertest.Do(t, test.method, test.url, "", test.headers...)
			if test.kind != "" {
				checkProblem(t, resp, body, test.status, test.kind)
			} else if resp.StatusCode != test.status {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, test.status)
			}
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer",
			} {
				if got := resp.Header.Get(header); !strings.Contains(got, want) {
					t.Errorf("%s = %q, want a part %q", header, got, want)
				}
			}
		})
	}
}

// With configured sets, a caller who may publish only because anyone may cannot find out which sets are
// private. TestMatrix checks this for other hubs.
func TestPrivateSetsHiddenFromAnyone(t *testing.T) {
	t.Parallel()
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:other", "anyone - follow:*,publish:*")
	h := start(t, Config{Callers: known, Sets: []string{"hidden", "shown"}})
	owner := bearer(texts[0])
	h.Publish("hidden", owner...)
	h.describe("hidden", `{"title":"the hidden one","private":true,"changelist":"https://example.org/list.xml"}`, owner...)
	atHub := slices.Concat(asJSON, []string{"Link", `<` + h.URL + `/sets/SET/changes>; rel="self", <` + h.URL + `/hub>; rel="hub"`})
	for _, r := range []struct {
		method, path, body string
		headers            []string
	}{
		{"POST", "/hub", "hub.mode=publish&hub.topic=" + h.URL + "/sets/SET/changes", asForm}, // creates no set
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
		h.wantSame(t, r.method, r.path, r.body, r.headers, "hidden", "absent")
		h.wantSame(t, r.method, r.path, r.body, append(bearer(texts[1]), r.headers...), "hidden", "absent")
	}
}

// wantSame checks that a request has the same response for two sets. SET stands for the set in path,
// body and headers.
func (h *testHub) wantSame(t *testing.T, method, path, body string, headers []string, one, other string) {
	t.Helper()
	ask := func(set string) string {
		fill := strings.NewReplacer("SET", set).Replace
		filled := slices.Clone(headers)
		for i := range filled {
			filled[i] = fill(filled[i])
		}
		resp, text := servertest.Do(t, method, h.URL+fill(path), fill(body), filled...)
		return visible(resp, text, set)
	}
	if a, b := ask(one), ask(other); a != b {
		t.Errorf("%s %s %q with %q: got for %s\n%s\nand for %s\n%s\nwant the same", method, path, body, headers, one, a, other, b)
	}
}
