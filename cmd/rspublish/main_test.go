package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A testHub implements the hub's API for NDJSON batches with idempotency keys.
type testHub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	locs     []string // locs of the accepted changes, in order
	first    map[string]request
	ends     map[string]int
	logStart int // start of the log; the entry at position p has the datetime logStart+p

	// before and after run before and after request n, starting at 1, is accepted. They
	// return true if they have written the response.
	before, after func(n int, w http.ResponseWriter, r *http.Request) bool
}

type request struct {
	key, body, auth, agent, contentType string
}

func newHub(t *testing.T) *testHub {
	h := &testHub{first: map[string]request{}, ends: map[string]int{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// deleteSet deletes the set. The next publish creates it again.
func (h *testHub) deleteSet() {
	h.logStart += len(h.locs) + 1
	h.locs, h.first, h.ends = nil, map[string]request{}, map[string]int{}
}

func (h *testHub) cursor(position int) string {
	return fmt.Sprintf("%d-%d", position, h.logStart+position)
}

func (h *testHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	got := request{r.Header.Get("Idempotency-Key"), string(body), r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Header.Get("Content-Type")}
	h.mu.Lock()
	h.requests = append(h.requests, got)
	n := len(h.requests)
	before, after := h.before, h.after
	h.mu.Unlock()
	if before != nil && before(n, w, r) {
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/sets/peps/changes" {
		problem404(w)
		return
	}
	h.mu.Lock()
	old, replayed := h.first[got.key]
	if replayed && old.body != got.body {
		h.mu.Unlock()
		problem.Write(w, r, feed.ErrKeyReused)
		return
	}
	lines := strings.Split(strings.TrimSuffix(got.body, "\n"), "\n")
	if !replayed {
		for _, line := range lines {
			var c struct{ Loc string }
			_ = json.Unmarshal([]byte(line), &c)
			h.locs = append(h.locs, c.Loc)
		}
		h.first[got.key] = got
		h.ends[got.key] = len(h.locs)
	}
	end := h.ends[got.key]
	h.mu.Unlock()
	if after != nil && after(n, w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"set": "peps", "first": h.cursor(end - len(lines) + 1), "cursor": h.cursor(end), "count": len(lines), "replayed": replayed})
}

func problem404(w http.ResponseWriter) { writeProblem(w, 404, `"detail":"set does not exist"`) }

func writeProblem(w http.ResponseWriter, status int, members string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"title":%q,%s}`, status, http.StatusText(status), members)
}

// batchNumbers returns the number of the batch in each request, starting at 1. Requests with the
// same key have the same number.
func (h *testHub) batchNumbers() (numbers []int) {
	numberOf := map[string]int{}
	for _, r := range h.requests {
		if numberOf[r.key] == 0 {
			numberOf[r.key] = len(numberOf) + 1
		}
		numbers = append(numbers, numberOf[r.key])
	}
	return numbers
}

// A testClock is a fake clock. sleep advances it without blocking.
type testClock struct {
	mu    sync.Mutex
	t     time.Time
	waits []time.Duration
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *testClock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	c.waits = append(c.waits, d)
	return ctx.Err()
}

// A testEnv is the environment in which a test runs rspublish: a hub, files, input and a clock.
type testEnv struct {
	t              *testing.T
	hub            *testHub
	dir, cache     string
	env            map[string]string
	stdin          io.Reader
	terminal       bool
	clock          *testClock
	ctx            context.Context
	stdout, stderr string // output of the last run
}

func newTestEnv(t *testing.T) *testEnv {
	return &testEnv{t: t, hub: newHub(t), dir: t.TempDir(), cache: t.TempDir(), env: map[string]string{}, stdin: strings.NewReader(""),
		clock: &testClock{t: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}, ctx: t.Context()}
}

// run runs rspublish for the set peps of the test hub, and checks the exit code.
func (b *testEnv) run(want int, args ...string) {
	b.t.Helper()
	b.runArgs(want, append([]string{"-hub", b.hub.URL, "-set", "peps"}, args...)...)
}

// runArgs runs rspublish, and checks the exit code.
func (b *testEnv) runArgs(want int, args ...string) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	p := &program{
		env: func(name string) string { return b.env[name] }, stdin: b.stdin, stdout: &stdout, stderr: &stderr,
		terminal: b.terminal, cacheDir: func() (string, error) { return b.cache, nil }, now: b.clock.now, sleep: b.clock.sleep,
	}
	got := p.run(b.ctx, args)
	b.stdout, b.stderr = stdout.String(), stderr.String()
	if got != want {
		b.t.Fatalf("rspublish %q = %d, want %d\n%s", args, got, want, b.stderr)
	}
}

func (b *testEnv) write(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *testEnv) checkStderr(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if !strings.Contains(b.stderr, text) {
			b.t.Errorf("stderr = %s, want %q", b.stderr, text)
		}
	}
}

// checkPublished checks that the hub has the changes 1 to n of lines, each once and in order.
func (b *testEnv) checkPublished(n int) {
	b.t.Helper()
	if len(b.hub.locs) != n {
		b.t.Fatalf("the hub has %d changes, want %d", len(b.hub.locs), n)
	}
	for i, loc := range b.hub.locs {
		if want := testLoc(i + 1); loc != want {
			b.t.Fatalf("loc of change %d = %s, want %s", i+1, loc, want)
		}
	}
}

func testLoc(i int) string { return fmt.Sprintf("https://example.org/%d", i) }

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, `{"loc":%q,"change":"updated"}`+"\n", testLoc(i))
	}
	return b.String()
}

func TestMixedFlagsKeepTheirOrder(t *testing.T) {
	b := newTestEnv(t)
	b.run(0, "-updated", testLoc(1), "-deleted", testLoc(2), "-updated", testLoc(3), "-created", testLoc(4))
	b.checkPublished(4)
	want := `{"loc":"https://example.org/1","change":"updated"}
{"loc":"https://example.org/2","change":"deleted"}
{"loc":"https://example.org/3","change":"updated"}
{"loc":"https://example.org/4","change":"created"}
`
	if got := b.hub.requests[0]; got.body != want || got.contentType != "application/x-ndjson" || !strings.HasPrefix(got.agent, "rspublish/") {
		t.Errorf("request = %+v, want body %s", got, want)
	}
	if want := "published 4 changes to peps, cursor 4-4\n"; b.stdout != want {
		t.Errorf("stdout %q, want %q", b.stdout, want)
	}
}

func TestUsage(t *testing.T) {
	b := newTestEnv(t)
	file := b.write("a", lines(1, 1))
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", []string{"-set", "peps"}, "nothing to publish"},
		{"no set", []string{file}, "-set NAME"},
		{"bad set", []string{"-set", "Peps/1", file}, `invalid set name "Peps/1"`},
		{"unknown flag", []string{"-x"}, "-x"},
		{"no command", []string{"snyc", "-set", "peps", file}, "no such command or file snyc; the commands are sync, watch, relay and dump"},
		{"invalid duration", []string{"-set", "peps", "-retry", "5", file}, "want a duration with a unit"},
		{"token on the command line", []string{"-set", "peps", "-token", "abc", file}, "rspublish has no flag -token"},
		{"flag after file", []string{"-set", "peps", file, "-q"}, "flag -q must be before the files"},
		{"both", []string{"-set", "peps", "-updated", "https://a/", file}, "not both"},
		{"stdin twice", []string{"-set", "peps", "-", "-"}, "only once"},
		{"no http", []string{"-set", "peps", "-hub", "ftp://h", file}, "-hub: a hub's URL must be like https://"},
		{"no host", []string{"-set", "peps", "-hub", "http:///x", file}, "-hub: a hub's URL must be like"},
		{"password", []string{"-set", "peps", "-hub", "http://me:pw@h", file}, "must not have a user"},
		{"unreadable URL", []string{"-set", "peps", "-hub", "http://me:pw@h:x", file}, "-hub: a hub's URL must be like"},
		{"key of two inputs", []string{"-set", "peps", "-key", "k", file, "-"}, "-key requires a single input"},
		{"bad key", []string{"-set", "peps", "-key", "a b", "-"}, "-key must be at most"},
		{"negative retry", []string{"-set", "peps", "-retry", "-1s", file}, "-retry"},
		{"no token file", []string{"-set", "peps", "-token-file", file + ".nosuch", file}, "read token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.runArgs(exitUsage, test.args...)
			b.checkStderr(test.want)
			if strings.Contains(b.stderr, "pw") {
				t.Errorf("stderr has a password: %s", b.stderr)
			}
		})
	}
	if len(b.hub.requests) > 0 {
		t.Errorf("hub received %d requests, want 0", len(b.hub.requests))
	}
}

// TestHelp checks that the help of each command describes each of its flags once.
func TestHelp(t *testing.T) {
	for command, flags := range map[string]string{
		"":      "hub set token-file retry q json key again check allow-empty version created updated deleted",
		"sync":  "hub set token-file retry q json base exclude temporary settle max-delete state prefix unknown no-lastmod dry-run",
		"watch": "hub set token-file retry q json base exclude temporary settle max-delete state every",
		"relay": "hub set token-file retry q json max-delete once every full state oai prefix oai-set loc",
		"dump":  "base exclude temporary settle q out-url package-size package-count full full-every keep max-delete",
	} {
		b := newTestEnv(t)
		b.runArgs(exitOK, append(strings.Fields(command), "-h")...)
		for _, name := range strings.Fields(flags) {
			if strings.Count(b.stdout, "\n  -"+name+" ") != 1 {
				t.Errorf("help of %q does not have -%s exactly once:\n%s", command, name, b.stdout)
			}
		}
		if !strings.HasSuffix(b.stdout, exitCodes) {
			t.Errorf("help of %q does not end with the exit codes", command)
		}
	}
}

func TestEnvironment(t *testing.T) {
	b := newTestEnv(t)
	b.env["RSPUBLISH_HUB"], b.env["RSPUBLISH_SET"] = b.hub.URL+"/", "peps"
	b.runArgs(0, "-q", b.write("a", lines(1, 2)))
	b.checkPublished(2)
	if b.stdout+b.stderr != "" {
		t.Errorf("output with -q = %q %q, want none", b.stdout, b.stderr)
	}
}

func TestTokenIsSentButNotPrinted(t *testing.T) {
	const token = "s3cret-tok3n"
	b := newTestEnv(t)
	b.env["RSPUBLISH_TOKEN"] = token
	file := b.write("a", lines(1, 3))
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n < 3 {
			writeProblem(w, 503, `"detail":"later"`)
		}
		return n < 3
	}
	b.run(0, file)
	output := b.stdout + b.stderr

	b.env["RSPUBLISH_TOKEN"] = "other"
	b.run(0, "-again", "-token-file", b.write("token", token+"\n"), file)
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		writeProblem(w, 403, `"detail":"not yours"`)
		return true
	}
	output += b.stdout + b.stderr
	b.run(exitRefused, "-again", "-token-file", filepath.Join(b.dir, "token"), file)
	output += b.stdout + b.stderr
	for _, r := range b.hub.requests {
		if r.auth != "Bearer "+token {
			t.Errorf("Authorization = %q, want the token", r.auth)
		}
	}
	if strings.Contains(output, token) {
		t.Errorf("output has the token:\n%s", output)
	}
	b.env["RSPUBLISH_TOKEN"] = token + "\n" + token
	b.run(exitUsage, file)
	if strings.Contains(b.stderr, token) {
		t.Errorf("stderr has the token: %s", b.stderr)
	}
}

func TestTokenExposed(t *testing.T) {
	for _, test := range []struct {
		hub, token string
		want       bool
	}{
		{"http://hub.example.org", "t", true},
		{"http://192.0.2.1:8080", "t", true},
		{"http://hub.example.org", "", false},
		{"https://hub.example.org", "t", false},
		{"http://localhost:8080", "t", false},
		{"http://127.0.0.1:8080", "t", false},
		{"http://[::1]:8080", "t", false},
	} {
		t.Run(test.hub+" "+test.token, func(t *testing.T) {
			env := map[string]string{"RSPUBLISH_TOKEN": test.token}
			cfg, err := parseArgs([]string{"-hub", test.hub, "-set", "peps", "a"}, func(name string) string { return env[name] })
			if err != nil || cfg.tokenExposed != test.want {
				t.Errorf("tokenExposed of %s with token %q = %v, %v, want %v", test.hub, test.token, cfg.tokenExposed, err, test.want)
			}
		})
	}
}

func TestSummaryAsJSON(t *testing.T) {
	b := newTestEnv(t)
	b.run(0, "-json", b.write("a", lines(1, 2)))
	if want := `{"set":"peps","published":2,"already":0,"cursor":"2-2"}` + "\n"; b.stdout != want {
		t.Errorf("stdout = %s, want %s", b.stdout, want)
	}
}

func TestCheckSendsNoRequests(t *testing.T) {
	b := newTestEnv(t)
	b.stdin = strings.NewReader(lines(3, 5))
	b.runArgs(0, "-check", b.write("a", lines(1, 2)), "-")
	if len(b.hub.requests) > 0 || b.stdout != "checked 5 changes\n" {
		t.Errorf("rspublish -check sent %d requests and printed %q, want no request and 5 changes", len(b.hub.requests), b.stdout)
	}
}
