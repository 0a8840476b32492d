package main

import (
	"net/http"
	"strings"
	"testing"
)

// Pages of others are kept away, and so are names that were bound to this
// machine to get around that.
func TestGuard(t *testing.T) {
	file, texts := tokens(t, "follow:*")
	for _, test := range []struct {
		name         string
		variables    []string
		host, origin string // HUB is where it listens
		status       int
		allowed      bool // the page sees the answer
	}{
		{"no page", nil, "", "", 200, false},
		{"its own page", nil, "", "http://HUB", 200, true},
		{"its own page by name", nil, "localhost:1234", "http://localhost:1234", 200, true},
		{"another page", nil, "", "https://evil.example", 403, false},
		{"no page's name", nil, "", "null", 403, false},
		{"another port", nil, "", "http://127.0.0.1:1", 403, false},
		{"a name that was bound anew", nil, "evil.example", "http://evil.example", 421, false},
		{"one with the port", nil, "evil.example:8080", "", 421, false},
		{"one that looks like loopback", nil, "127.0.0.1.evil.example", "", 421, false},
		{"IPv6", nil, "[::1]:8080", "", 200, false},
		{"the name it is known by", []string{"RSHUB_BASE_URL", "https://hub.example.org"}, "Hub.example.org", "", 200, false},
		{"another name", []string{"RSHUB_BASE_URL", "https://hub.example.org"}, "other.example.org", "", 421, false},
		{"a configured page", []string{"RSHUB_ORIGINS", "https://friend.example"}, "", "https://friend.example", 200, true},
		{"a page beside it", []string{"RSHUB_ORIGINS", "https://friend.example"}, "", "https://friend.example:444", 403, false},
		{"any page", []string{"RSHUB_ORIGINS", "*"}, "", "https://evil.example", 200, true},
		{"any page, by another name", []string{"RSHUB_ORIGINS", "*"}, "evil.example", "https://evil.example", 421, false},
		{"tokens protect, whatever the name", []string{"RSHUB_TOKENS_FILE", file}, "proxy.internal", "", 200, false},
		{"tokens, and a page", []string{"RSHUB_TOKENS_FILE", file}, "", "https://evil.example", 403, false},
		{"anyone may", []string{"RSHUB_INSECURE", insecure}, "proxy.internal", "", 200, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := start(t, test.variables...)
			headers := []string{"Authorization", "Bearer " + texts[0]}
			if test.host != "" {
				headers = append(headers, "Host", test.host)
			}
			origin := strings.ReplaceAll(test.origin, "HUB", strings.TrimPrefix(h.url, "http://"))
			if origin != "" {
				headers = append(headers, "Origin", origin)
			}
			for _, url := range []string{h.url + "/sets", h.ops + "/healthz"} {
				resp, body := do(t, "GET", url, "", headers...)
				want := test.status
				if url == h.ops+"/healthz" && strings.Contains(test.origin, "HUB") {
					want = http.StatusForbidden // there it is another's page
				}
				if resp.StatusCode != want {
					t.Errorf("%s is %d %s", url, resp.StatusCode, body)
				}
				switch want {
				case http.StatusForbidden:
					problem(t, resp, body, want, "origin")
				case http.StatusMisdirectedRequest:
					problem(t, resp, body, want, "wrong-host")
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
	file, _ := tokens(t, "follow:*")
	h := start(t, "RSHUB_ORIGINS", "https://friend.example", "RSHUB_TOKENS_FILE", file)
	ask := func(origin string) (*http.Response, string) {
		return do(t, "OPTIONS", h.url+"/sets/demo/changes", "", "Origin", origin, "Access-Control-Request-Method", "POST",
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
	problem(t, resp, body, http.StatusForbidden, "origin")
	// Without an Origin it is no preflight.
	resp, body = do(t, "OPTIONS", h.url+"/sets/demo/changes", "")
	problem(t, resp, body, http.StatusMethodNotAllowed, "method-not-allowed")
}

// A probe of Kubernetes has the address of the pod as its Host. There the hub
// listens beyond loopback, with tokens or in the open.
func TestProbes(t *testing.T) {
	path, _ := tokens(t, "operate")
	for _, variables := range [][]string{{"RSHUB_TOKENS_FILE", path}, {"RSHUB_INSECURE", insecure}} {
		h := start(t, variables...)
		for _, probe := range []string{"/healthz", "/readyz"} {
			if resp, body := do(t, "GET", h.ops+probe, "", "Host", "10.1.2.3:8081"); resp.StatusCode != http.StatusOK {
				t.Errorf("with %s, %s is %d %s", variables[0], probe, resp.StatusCode, body)
			}
		}
	}
}
