package server

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/resourcesync"
)

// none as Config.OpsListen disables the operations address.
const none = "none"

// A testHub is a server that a test started.
type testHub struct {
	*servertest.Hub
	server *Server
	data   string
	log    *testutil.Log
}

// start starts a server. Fields of c that are empty get free ports and a temporary directory.
// The server logs from the given level, by default from INFO.
func start(t *testing.T, c Config, level ...slog.Level) *testHub {
	t.Helper()
	c.Listen, c.OpsListen = cmp.Or(c.Listen, "127.0.0.1:0"), cmp.Or(c.OpsListen, "127.0.0.1:0")
	if c.OpsListen == none {
		c.OpsListen = ""
	}
	if c.Data == "" {
		c.Data = t.TempDir()
	}
	h := &testHub{data: c.Data, log: &testutil.Log{}}
	c.Logger = h.log.Logger(append(level, slog.LevelInfo)[0])
	c.Version = "v1.2.3"
	var err error
	if h.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	h.Hub = servertest.Start(t, h.server, h.log)
	return h
}

// wantStatus sends a request, checks the status, and returns the body of the response.
func (h *testHub) wantStatus(status int, method, path, body string, headers ...string) string {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), method, h.URL+path, body, headers...)
	if resp.StatusCode != status {
		h.Testing().Fatalf("%s %s: got %d %.500s, want %d", method, path, resp.StatusCode, text, status)
	}
	return text
}

// describe sends a description of a set.
func (h *testHub) describe(set, description string, headers ...string) string {
	h.Testing().Helper()
	return h.wantStatus(http.StatusOK, "PUT", "/sets/"+set, description, headers...)
}

// getJSON sends a GET and decodes the JSON response into v.
func (h *testHub) getJSON(v any, path string, headers ...string) {
	h.Testing().Helper()
	if text := h.wantStatus(http.StatusOK, "GET", path, "", headers...); json.Unmarshal([]byte(text), v) != nil {
		h.Testing().Fatalf("GET %s: got %s, want JSON", path, text)
	}
}

// wantProblem sends a request, checks that the response is a problem of a kind, and returns its
// detail.
func (h *testHub) wantProblem(status int, kind, method, path, body string, headers ...string) string {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), method, h.URL+path, body, headers...)
	return checkProblem(h.Testing(), resp, text, status, kind)
}

// waitForLog waits until the log contains text.
func (h *testHub) waitForLog(text string) {
	h.Testing().Helper()
	testutil.Until(h.Testing(), "the log contains "+text, func() bool { return strings.Contains(h.log.String(), text) })
}

// metric returns the value of a metric of the hub.
func (h *testHub) metric(name string) float64 {
	h.Testing().Helper()
	return metricstest.Values(h.Testing(), h.server.metrics)[name]
}

// checkProblem checks that a response is a problem of a kind, and returns its detail.
func checkProblem(t testing.TB, resp *http.Response, body string, status int, kind string) string {
	t.Helper()
	var p feed.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s, want a problem document", resp.StatusCode, body)
		return ""
	}
	if resp.StatusCode != status || p.Status != status || p.Type != resourcesync.Terms+"problems/"+kind || p.Detail == "" {
		t.Errorf("got the problem %d %s, want %d %s with a detail", resp.StatusCode, body, status, kind)
	}
	return p.Detail
}

// sendRequest sends a request with a client. The caller reads the body of the response, which is
// closed when the test ends.
func sendRequest(t testing.TB, by *http.Client, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host") // if empty, the host of the URL
	resp, err := by.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// doRequest sends a request with a client and reads the body of the response.
func doRequest(t testing.TB, by *http.Client, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp := sendRequest(t, by, method, url, strings.NewReader(body), headers...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// A stream is an event stream that a goroutine reads to its end.
type stream struct {
	t     testing.TB
	what  string
	lines chan string // closed at the end of the stream
	err   error       // why it ended; valid once lines is closed
}

// followEvents follows a topic with an event stream from now on, until the test ends.
func followEvents(t testing.TB, by *http.Client, topic string, headers ...string) *stream {
	t.Helper()
	resp := sendRequest(t, by, "GET", topic+"?since=now", nil, append(headers, "Accept", "text/event-stream")...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("follow %s: got %d, want 200", topic, resp.StatusCode)
	}
	s := &stream{t: t, what: "event stream of " + topic, lines: make(chan string, 10_000)}
	go func() {
		defer close(s.lines)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			s.lines <- lines.Text()
		}
		s.err = lines.Err()
	}()
	s.waitFor(`"changes":[]`)
	return s
}

// waitFor waits for a line that contains text.
func (s *stream) waitFor(text string) {
	s.t.Helper()
	s.until(text, func(line string) bool { return strings.Contains(line, text) })
}

// waitForHeartbeat waits for the next heartbeat, which is a comment.
func (s *stream) waitForHeartbeat() {
	s.t.Helper()
	s.until("a heartbeat", func(line string) bool { return strings.HasPrefix(line, ":") })
}

func (s *stream) until(what string, found func(line string) bool) {
	s.t.Helper()
	for line := range s.lines {
		if found(line) {
			return
		}
	}
	s.t.Fatalf("%s ended with %v, want %s before", s.what, s.err, what)
}

// waitForEnd waits until the stream has ended without an error.
func (s *stream) waitForEnd() {
	s.t.Helper()
	for range s.lines {
	}
	if s.err != nil {
		s.t.Errorf("%s ended with %v, want no error", s.what, s.err)
	}
}

// startPoll starts a long poll of a set, and waits until the hub holds it.
func (h *testHub) startPoll(by *http.Client, set string, headers ...string) <-chan *http.Response {
	h.Testing().Helper()
	polled := make(chan *http.Response, 1)
	go func() {
		polled <- sendRequest(h.Testing(), by, "GET", h.topic(set)+"?since=now&wait=5m", nil, headers...)
	}()
	testutil.Until(h.Testing(), "the hub holds the poll", func() bool { return h.metric(`rshub_followers{kind="longpoll"}`) == 1 })
	return polled
}

// tokens opens a tokens file with one token for each of rights, and returns the tokens too.
func tokens(t *testing.T, rights ...string) (known *access.TokensFile, texts []string) {
	t.Helper()
	f := newTokensFile(t, rights...)
	return f.open(t), f.texts
}

// bearer returns the header with a token, or nil if it is empty.
func bearer(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + token}
}

// changes returns n changes as NDJSON, with locs of about size bytes.
func changes(n, size int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"loc":"https://example.org/%06d/%s","change":"updated"}`+"\n", i, strings.Repeat("x", size))
	}
	return b.String()
}

// writeFile replaces a file atomically, as editors and Kubernetes do.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
