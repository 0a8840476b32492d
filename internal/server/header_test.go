package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/testutil"
)

func TestBoundHeader(t *testing.T) {
	const rest = len("URL") + len("/") + len("Host") + len("example.com") + 2*fieldOverhead // size of a request without fields
	field := func(name string, size int) http.Header {
		return http.Header{name: {strings.Repeat("a", size-len(name)-fieldOverhead)}}
	}
	small := http.Header{}
	for i := range maxHeader / 35 {
		small[fmt.Sprintf("%03d", i)] = []string{""}
	}
	for _, tt := range []struct {
		name      string
		url, host string
		header    http.Header
		trailer   http.Header
		largest   string // named in the 431; empty if the request passes
	}{
		{name: "no field"},
		{name: "limit", header: field("Authorization", maxHeader-rest)},
		{name: "above the limit", header: field("Authorization", maxHeader-rest+1), largest: `"Authorization"`},
		{name: "far above", header: field("Authorization", 250<<10), largest: `"Authorization"`},
		{name: "many values", header: http.Header{"Cookie": strings.Split(strings.Repeat("abcdefgh,", 1000), ",")}, largest: `"Cookie"`},
		{name: "many fields", header: small, largest: `"Host"`},
		{name: "long name", header: http.Header{strings.Repeat("N", maxHeader): {""}}, largest: `"` + strings.Repeat("N", 120) + `…"`},
		{name: "long URL", url: "/" + strings.Repeat("a", maxHeader), largest: `"URL"`},
		{name: "long query", url: "/sets?after=" + strings.Repeat("a", maxHeader), largest: `"URL"`},
		{name: "long host", host: strings.Repeat("a", maxHeader), largest: `"Host"`},
		{name: "trailer", trailer: http.Header{strings.Repeat("T", maxHeader): nil}, largest: `"Trailer"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/"+strings.TrimPrefix(tt.url, "/"), nil)
			if tt.host != "" {
				r.Host = tt.host
			}
			r.Header, r.Trailer = tt.header, tt.trailer
			passed := false
			w := httptest.NewRecorder()
			limitHeader(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(w, r)
			if passed != (tt.largest == "") {
				t.Fatalf("got passed = %t, want %t", passed, !passed)
			}
			if passed {
				return
			}
			if detail := checkProblem(t, w.Result(), w.Body.String(), http.StatusRequestHeaderFieldsTooLarge, "header-too-large"); !strings.HasSuffix(detail, tt.largest) {
				t.Errorf("got the detail %.300q, want the largest part %s", detail, tt.largest)
			}
			if len(r.Header) > 0 {
				t.Errorf("got %d fields of the header still in memory, want 0", len(r.Header))
			}
		})
	}
}

// A large header is refused at every URL over HTTP/1.1, and the connection stays open.
func TestLargeHeaderHTTP1(t *testing.T) {
	h := start(t, Config{Metrics: prometheus.NewRegistry()})
	large := "X-Large: " + strings.Repeat("a", 200<<10) + "\r\n"
	for _, tt := range []struct {
		name, base, request string
	}{
		{"GET", h.URL, "GET /sets HTTP/1.1\r\nHost: localhost\r\n" + large},
		{"POST", h.URL, "POST /sets/demo/changes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + large},
		{"expect", h.URL, "POST /sets/demo/changes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" + large},
		{"form", h.URL, "POST /hub HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n" + large},
		{"RDM", h.URL, "GET /rdm/incoming HTTP/1.1\r\nHost: localhost\r\n" + large},
		{"WebSocket", h.URL, "GET /sets/demo/changes HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + large},
		{"URL", h.URL, "GET /sets?after=" + strings.Repeat("a", 200<<10) + " HTTP/1.1\r\nHost: localhost\r\n"},
		{"wrong host", h.URL, "GET /sets HTTP/1.1\r\nHost: evil.example\r\n" + large},
		{"operations", h.Ops, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + large},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.request + "\r\n"
			if strings.Contains(text, "Content-Length") && !strings.Contains(text, "Expect") {
				text += "{}"
			}
			conn := testutil.Dial(t, "", strings.TrimPrefix(tt.base, "http://"), text)
			reader := bufio.NewReader(conn)
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("read the response: %v", err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatalf("read the response: %v", err)
			}
			checkProblem(t, resp, string(body), http.StatusRequestHeaderFieldsTooLarge, "header-too-large")
			if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("X-Content-Type-Options") == "" {
				t.Errorf("got headers %v, want X-Request-Id and X-Content-Type-Options", resp.Header)
			}
			if strings.Contains(text, "Expect") {
				return // the client may or may not send the body, so the connection is closed
			}
			if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatalf("send another request: %v", err)
			}
			if resp, err := http.ReadResponse(reader, nil); err != nil || resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("second request: got %v, %v, want a response on the same connection", resp, err)
			}
		})
	}
	if got := h.metric(`rshub_http_responses_total{code="4xx",route="sets"}`); got != 3 {
		t.Errorf("got %v responses 4xx of the route sets, want 3", got)
	}
}

// A large header over HTTP/2 does not end the other streams of the connection.
func TestLargeHeaderHTTP2(t *testing.T) {
	plain, p := start(t, Config{}), newProxy(t, 64<<10)
	secure := startTLS(t, Config{})
	for _, tt := range []struct {
		name, url string
		client    *http.Client
	}{
		{"cleartext", plain.URL, p.Client},
		{"TLS", secure.URL, secure.http},
	} {
		t.Run(tt.name, func(t *testing.T) {
			topic := tt.url + "/sets/demo/changes"
			doRequest(t, tt.client, "POST", topic, `{"loc":"https://example.org/first","change":"updated"}`, asNDJSON...)
			follower := followEvents(t, tt.client, topic)
			for _, step := range []struct{ size, status int }{
				{31 << 10, http.StatusOK},
				{33 << 10, http.StatusRequestHeaderFieldsTooLarge},
				{64 << 10, http.StatusRequestHeaderFieldsTooLarge},
				{255 << 10, http.StatusRequestHeaderFieldsTooLarge},
				{31 << 10, http.StatusOK},
			} {
				resp, text := doRequest(t, tt.client, "GET", tt.url+"/sets", "", "X-Large", strings.Repeat("a", step.size))
				if resp.ProtoMajor != 2 || resp.StatusCode != step.status {
					t.Fatalf("header of %d bytes: got %s %s, want %d over HTTP/2", step.size, resp.Proto, resp.Status, step.status)
				}
				if step.status != http.StatusOK {
					checkProblem(t, resp, text, step.status, "header-too-large")
				}
				loc := fmt.Sprintf("https://example.org/after/%d", step.size)
				doRequest(t, tt.client, "POST", topic, `{"loc":"`+loc+`","change":"updated"}`, asNDJSON...)
				follower.waitFor(loc)
			}
		})
	}
	p.wantOneConn()
}
