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

// none is an address for operations that is none.
const none = "none"

// A started is a server that a test has started.
type started struct {
	*servertest.Hub
	server *Server
	data   string
	log    *testutil.Log
}

// start starts a server with ports, a directory and a log of its own where c has
// none. Its log has more than the usual where a level is given.
func start(t *testing.T, c Config, level ...slog.Level) *started {
	t.Helper()
	c.Listen, c.OpsListen = cmp.Or(c.Listen, "127.0.0.1:0"), cmp.Or(c.OpsListen, "127.0.0.1:0")
	if c.OpsListen == none {
		c.OpsListen = ""
	}
	if c.Data == "" {
		c.Data = t.TempDir()
	}
	h := &started{data: c.Data, log: &testutil.Log{}}
	c.Logger = h.log.Logger(append(level, slog.LevelInfo)[0])
	c.Version = "v1.2.3"
	var err error
	if h.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	h.Hub = servertest.Start(t, h.server, h.log)
	return h
}

// wants makes a request of a path, which has to be answered with a status, and returns the
// body of the answer.
func (h *started) wants(status int, method, path, body string, headers ...string) string {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), method, h.URL+path, body, headers...)
	if resp.StatusCode != status {
		h.Testing().Fatalf("%s %s: %d %.500s, want %d", method, path, resp.StatusCode, text, status)
	}
	return text
}

// describes puts a description of a set.
func (h *started) describes(set, description string, headers ...string) string {
	h.Testing().Helper()
	return h.wants(http.StatusOK, "PUT", "/sets/"+set, description, headers...)
}

// reads makes a GET of a path, which has to be answered with JSON, and reads that into v.
func (h *started) reads(v any, path string, headers ...string) {
	h.Testing().Helper()
	if text := h.wants(http.StatusOK, "GET", path, "", headers...); json.Unmarshal([]byte(text), v) != nil {
		h.Testing().Fatalf("%s is %s", path, text)
	}
}

// refuses makes a request of a path, which has to be answered with a problem of a kind, and
// returns its detail.
func (h *started) refuses(status int, kind, method, path, body string, headers ...string) string {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), method, h.URL+path, body, headers...)
	return checkProblem(h.Testing(), resp, text, status, kind)
}

// says waits until the log has a text.
func (h *started) says(text string) {
	h.Testing().Helper()
	testutil.Until(h.Testing(), "the log has "+text, func() bool { return strings.Contains(h.log.String(), text) })
}

// value returns the value of one of the hub's metrics.
func (h *started) value(name string) float64 {
	h.Testing().Helper()
	return metricstest.Values(h.Testing(), h.server.metrics)[name]
}

// checkProblem checks that an answer is a problem of a kind, and returns its detail.
func checkProblem(t testing.TB, resp *http.Response, body string, status int, kind string) string {
	t.Helper()
	var p feed.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the answer is no problem: %d %s", resp.StatusCode, body)
		return ""
	}
	if resp.StatusCode != status || p.Status != status || p.Type != resourcesync.Terms+"problems/"+kind || p.Detail == "" {
		t.Errorf("the problem is %d %s, want %d %s", resp.StatusCode, body, status, kind)
	}
	return p.Detail
}

// ask makes a request by a client, and leaves the body of the answer to be read.
func ask(t testing.TB, by *http.Client, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host") // empty: the URL's
	resp, err := by.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// asked makes a request by a client, and reads the body of the answer.
func asked(t testing.TB, by *http.Client, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp := ask(t, by, method, url, strings.NewReader(body), headers...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// A stream is an event stream that is read all the time.
type stream struct {
	t     testing.TB
	what  string
	lines chan string // closed at the end
	err   error       // how it ended; only after lines is closed
}

// events follows a topic by an event stream, from now on, until the test ends.
func events(t testing.TB, by *http.Client, topic string, headers ...string) *stream {
	t.Helper()
	resp := ask(t, by, "GET", topic+"?since=now", nil, append(headers, "Accept", "text/event-stream")...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("following %s is answered %d", topic, resp.StatusCode)
	}
	s := &stream{t: t, what: "an event stream of " + topic, lines: make(chan string, 10_000)}
	go func() {
		defer close(s.lines)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			s.lines <- lines.Text()
		}
		s.err = lines.Err()
	}()
	s.gets(`"changes":[]`)
	return s
}

// gets waits for a line with a text.
func (s *stream) gets(text string) {
	s.t.Helper()
	s.until(text, func(line string) bool { return strings.Contains(line, text) })
}

// lives waits for the next sign of life, which is no event.
func (s *stream) lives() {
	s.t.Helper()
	s.until("a sign of life", func(line string) bool { return strings.HasPrefix(line, ":") })
}

func (s *stream) until(what string, found func(line string) bool) {
	s.t.Helper()
	for line := range s.lines {
		if found(line) {
			return
		}
	}
	s.t.Fatalf("%s ends without %s: %v", s.what, what, s.err)
}

// ends waits until the stream has ended, without an error.
func (s *stream) ends() {
	s.t.Helper()
	for range s.lines {
	}
	if s.err != nil {
		s.t.Errorf("%s ends with %v", s.what, s.err)
	}
}

// polls asks a client's long poll of a set for what comes next, and waits until it waits.
func (h *started) polls(by *http.Client, set string, headers ...string) <-chan *http.Response {
	h.Testing().Helper()
	polled := make(chan *http.Response, 1)
	go func() { polled <- ask(h.Testing(), by, "GET", h.topic(set)+"?since=now&wait=5m", nil, headers...) }()
	testutil.Until(h.Testing(), "the poll waits", func() bool { return h.value(`rshub_followers{kind="longpoll"}`) == 1 })
	return polled
}

// tokens returns what knows the tokens of servertest.Tokens, and the tokens.
func tokens(t *testing.T, rights ...string) (known *access.TokensFile, texts []string) {
	t.Helper()
	f := newTokensFile(t, rights...)
	return f.open(t), f.texts
}

// bearer is the header of a request with a token, which has none without one.
func bearer(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + token}
}

// changes is a body of n changes, as NDJSON, with locs of about size bytes.
func changes(n, size int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"loc":"https://example.org/%06d/%s","change":"updated"}`+"\n", i, strings.Repeat("x", size))
	}
	return b.String()
}

// writeFile replaces a file as a whole, as editors and Kubernetes do it.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
