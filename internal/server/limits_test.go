package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

func limits(t testing.TB, text string) limit.Limits {
	t.Helper()
	l, err := limit.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Limits count per caller and per address. Operators and probes are not limited.
func TestCallerAndAddressLimits(t *testing.T) {
	known, texts := tokens(t, "publish:*", "publish:* limits=publishes:2/h", "publish:* operate", "anyone - follow:*")
	h := start(t, Config{
		Callers: known, CallerLimits: limits(t, "publishes:4/h,requests:none"), AddressLimits: limits(t, "requests:20/h"), Metrics: prometheus.NewRegistry(),
	})
	for i, test := range []struct {
		caller int
		want   string // part of the detail, or empty if the publish succeeds
	}{
		{1, ""}, {1, ""}, {1, "callerb has reached its limit of 2 publishes in an hour"},
		{0, ""}, {0, ""}, {0, ""}, {0, ""}, {0, "callera has reached its limit of 4 publishes in an hour"},
		{2, ""}, {2, ""},
	} {
		resp, body := servertest.Do(t, "POST", h.topic("demo"), aPage, append(asJSON[:2:2], bearer(texts[test.caller])...)...)
		if test.want == "" {
			if resp.StatusCode != http.StatusOK {
				t.Errorf("publish %d: got %d %s, want 200", i, resp.StatusCode, body)
			}
			continue
		}
		if detail := checkProblem(t, resp, body, http.StatusTooManyRequests, "limit"); !strings.Contains(detail, test.want) || resp.Header.Get("Retry-After") == "" ||
			!strings.HasPrefix(resp.Header.Get("RateLimit-Policy"), `"publishes";q=`) || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"publishes";r=0;t=`) {
			t.Errorf("publish %d: got %s %v, want %q and the rate limit headers", i, body, resp.Header, test.want)
		}
	}

	// Requests without a token or with an invalid one count for the address.
	for range 10 {
		servertest.Do(t, "GET", h.URL+"/sets", "")
		servertest.Do(t, "GET", h.URL+"/sets", "", "Authorization", "Bearer wrong")
	}
	for _, headers := range [][]string{nil, bearer("wrong")} {
		if detail := h.wantProblem(http.StatusTooManyRequests, "limit", "GET", "/sets", "", headers...); !strings.Contains(detail, "the address 127.0.0.1 has reached its limit of 20 requests in an hour") {
			t.Errorf("got %q, want the limit of the address", detail)
		}
	}
	h.wantStatus(200, "GET", "/sets", "", bearer(texts[0])...) // a caller with a token, from the same address
	for _, url := range []string{h.URL + "/sets", h.Ops + "/readyz", h.Ops + "/metrics", h.Ops + "/debug/pprof/"} {
		if resp, body := servertest.Do(t, "GET", url, "", bearer(texts[2])...); resp.StatusCode != http.StatusOK {
			t.Errorf("operator: GET %s: got %d %s, want 200", url, resp.StatusCode, body)
		}
	}
	for _, limit := range []string{`limit="publishes",whose="caller"`, `limit="requests",whose="address"`} {
		if n := h.metric("rshub_limit_refused_total{" + limit + "}"); n != 2 {
			t.Errorf("refused by %s = %v, want 2", limit, n)
		}
	}
}

// A follower occupies a connection while it follows, over each of the three transports.
func TestConnectionLimit(t *testing.T) {
	known, texts := tokens(t, "publish:* operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, AddressLimits: limits(t, "connections:3"), Metrics: prometheus.NewRegistry()})
	h.describe("demo", "{}", bearer(texts[0])...)
	addr := strings.TrimPrefix(h.URL, "http://")
	open := func(how string) net.Conn {
		t.Helper()
		return testutil.Dial(t, "", addr, "GET /sets/demo/changes"+how+"\r\n\r\n")
	}
	const (
		stream = " HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream"
		socket = " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	)
	one, two := open(stream), open(socket)
	if answer := testutil.ReadStart(one); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Fatalf("event stream: got %s, want 200", answer)
	}
	if answer := testutil.ReadStart(two); !strings.HasPrefix(answer, "HTTP/1.1 101 ") {
		t.Fatalf("WebSocket: got %s, want 101", answer)
	}
	three := open("?since=now&wait=1m HTTP/1.1\r\nHost: localhost")
	testutil.Until(t, "the hub holds the poll", func() bool { return h.metric(`rshub_followers{kind="longpoll"}`) == 1 })
	if answer := testutil.ReadStart(open(stream)); !strings.HasPrefix(answer, "HTTP/1.1 429 ") || !strings.Contains(strings.ToLower(answer), "ratelimit-policy: \"connections\";q=3\r\n") {
		t.Errorf("fourth follower: got %s, want 429 and the limit", answer)
	}
	for _, conn := range []net.Conn{one, two, three} {
		_ = conn.Close()
	}
	// The hub notices each disconnect separately, so one free connection says nothing about the others.
	for range 3 {
		testutil.Until(t, "three connections are free again", func() bool {
			return strings.HasPrefix(testutil.ReadStart(open(stream)), "HTTP/1.1 200 ")
		})
	}
}

// One client behind a proxy cannot take all connections, and releases what it has. Direct connections
// and requests of operators do not count.
func TestClientShareBehindProxy(t *testing.T) {
	const one = 2
	known, texts := tokens(t, "follow:*", "operate")
	for name, test := range map[string]struct {
		callers access.Authenticator
		token   string
		limited bool
	}{
		"without tokens": {nil, "none", true},
		"caller":         {known, texts[0], true},
		"operator":       {known, texts[1], false},
	} {
		c := newCallers(&Config{Callers: test.callers}, prometheus.NewRegistry(), &problem.Adapter{Logger: slog.New(slog.DiscardHandler)}, slog.New(slog.DiscardHandler))
		c.share = limit.New(limit.Options{Address: limit.Limits{limit.Connections: {Most: one}}})
		requests := &requestLog{log: slog.New(slog.DiscardHandler), proxies: forwarded.Proxies{netip.MustParsePrefix("10.0.0.0/8")}}
		var held []func()
		h := chain(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			held = append(held, shareSlot(r.Context())) // as a WebSocket does
		}), requests.logged(slog.LevelError), c.limited)
		ask := func(peer, client string, want bool) {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = peer
			if client != "" {
				r.Header.Set("X-Forwarded-For", client)
			}
			r.Header.Set("Authorization", "Bearer "+test.token)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); (w.Code == http.StatusOK) != want || !want && w.Code != http.StatusTooManyRequests {
				t.Errorf("%s: %s for %q with %d connections: got %d, want 200: %t", name, peer, client, len(held), w.Code, want)
			}
		}
		const proxy, client = "10.0.0.1:5", "198.51.100.1"
		for range one {
			ask(proxy, client, true)
		}
		ask(proxy, client, !test.limited)
		ask(proxy, "198.51.100.2", true)
		ask(proxy, "", true)
		ask(client+":5", "", true)
		for _, release := range held {
			release()
		}
		ask(proxy, client, true)
	}
}
