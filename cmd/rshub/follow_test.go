package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
)

// A reading is a follow that goes on beside a test.
type reading struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
	code  chan int
	errs  output
}

func startFollow(t *testing.T, args ...string) *reading {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r := &reading{t: t, lines: bufio.NewScanner(out), stop: stop, code: make(chan int, 1)}
	go func() {
		r.code <- run(ctx, append([]string{"follow"}, args...), in, &r.errs)
		in.Close()
	}()
	t.Cleanup(func() {
		stop()
		out.Close() // or it would wait to be read
	})
	return r
}

// next returns the loc of the next line.
func (r *reading) next() string {
	r.t.Helper()
	var change struct {
		Loc      string
		Position int
	}
	if !r.lines.Scan() {
		r.t.Fatalf("there is no more line: %s", r.errs.String())
	}
	if err := json.Unmarshal(r.lines.Bytes(), &change); err != nil || change.Position == 0 {
		r.t.Fatalf("the line %s is no change: %v", r.lines.Text(), err)
	}
	return change.Loc
}

// end waits for the end, and returns the exit code and the cursor to go on with.
func (r *reading) end() (code int, since string) {
	r.t.Helper()
	if r.lines.Scan() {
		r.t.Errorf("there is a line more: %s", r.lines.Text())
	}
	_, since, _ = strings.Cut(r.errs.String(), "go on with -since ")
	return <-r.code, strings.TrimSpace(since)
}

// publishLocs publishes a change of each.
func (h *running) publishLocs(set string, locs ...string) {
	h.t.Helper()
	var body strings.Builder
	for _, loc := range locs {
		body.WriteString(`{"loc":"` + loc + `","change":"updated"}` + "\n")
	}
	resp, text := do(h.t, "POST", h.url+"/sets/"+set+"/changes", body.String(), "Content-Type", "application/x-ndjson")
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("publish: %d %s", resp.StatusCode, text)
	}
}

// What was there and what comes is printed, and nothing twice when it goes on.
func TestFollow(t *testing.T) {
	h := start(t)
	h.publishLocs("demo", "urn:a", "urn:b")
	r := startFollow(t, "-hub", h.url+"/", "-set", "demo", "-since", "start")
	for _, want := range []string{"urn:a", "urn:b"} {
		if got := r.next(); got != want {
			t.Errorf("%s came, and not %s", got, want)
		}
	}
	h.publishLocs("demo", "urn:c")
	if got := r.next(); got != "urn:c" {
		t.Errorf("%s came, and not urn:c", got)
	}
	r.stop()
	code, since := r.end()
	if code != 0 || since == "" {
		t.Fatalf("it ended with %d: %s", code, &r.errs)
	}

	h.publishLocs("demo", "urn:d", "urn:e:1", "urn:e:2", "urn:e:3")
	r = startFollow(t, "-hub", h.url, "-set", "demo", "-since", since, "-prefix", "urn:e", "-count", "2")
	for _, want := range []string{"urn:e:1", "urn:e:2"} {
		if got := r.next(); got != want {
			t.Errorf("%s came, and not %s", got, want)
		}
	}
	if code, since := r.end(); code != 0 || !strings.HasPrefix(since, "6-") {
		t.Errorf("it ended with %d: %s", code, &r.errs)
	}
}

// What goes wrong on the way costs time, and no change.
func TestFollowThroughTrouble(t *testing.T) {
	h := start(t)
	hub, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(hub)
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1, 5:
			changelog.WriteError(w, r, changelog.ErrUnavailable)
		case 2, 6:
			panic(http.ErrAbortHandler)
		case 3, 7: // half of an answer
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"loc":"urn:wrong"`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	h.publishLocs("demo", "urn:a", "urn:b", "urn:c")
	f := &followed{
		topic: server.URL + "/sets/demo/changes", query: url.Values{"since": {"start"}, "limit": {"2"}},
		stderr: io.Discard, pause: time.Microsecond,
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := f.run(ctx, in, 0)
		done <- err
	}()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"urn:a", "urn:b", "urn:c"} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Errorf("%s came, and not %s", lines.Text(), want)
		}
	}
	stop()
	if err := <-done; err != context.Canceled {
		t.Errorf("it ended with %v", err)
	}
	if n := requests.Load(); n < 8 {
		t.Errorf("there were only %d requests", n)
	}
}

func TestFollowRefused(t *testing.T) {
	path, texts := tokens(t, "publish:*", "follow:demo")
	h := start(t, "RSHUB_TOKENS_FILE", path)
	h.publish("demo", "Authorization", "Bearer "+texts[0])
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome\n") }))
	defer other.Close()
	for _, test := range []struct {
		name, token string
		args        []string
		code        int
		want        string
	}{
		{"no token", "", []string{"-set", "demo"}, 1, "401: this needs a token with the right follow:demo"},
		{"the wrong token", texts[0], []string{"-set", "demo"}, 1, "403: your token"},
		{"a place that was never there", texts[1], []string{"-set", "demo", "-since", "7-7"}, 1, "410: the change memory"},
		{"no place", texts[1], []string{"-set", "demo", "-since", "yesterday"}, 1, "400: "},
		{"too few", texts[1], []string{"-set", "demo", "-count", "1", "-for", "1ms"}, 1, "0 changes came within 1ms, and not 1"},
		{"time is over", texts[1], []string{"-set", "demo", "-for", "1ms"}, 0, ""},
		{"another server", "", []string{"-set", "demo", "-hub", other.URL}, 1, "is no topic of an rshub"},
		{"no set", "", nil, 2, "rshub follow -set SET"},
		{"no name of a set", "", []string{"-set", "a/b"}, 2, "rshub follow -set SET"},
		{"no hub", "", []string{"-set", "demo", "-hub", "hub.example.org"}, 2, "-hub is a URL"},
		{"a negative count", "", []string{"-set", "demo", "-count", "-1"}, 2, "rshub follow -h"},
		{"an argument", "", []string{"-set", "demo", "demo"}, 2, "rshub follow -h"},
		{"help", "", []string{"-h"}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, "RSHUB_TOKEN", test.token)
			code, stdout, stderr := command(t, append([]string{"follow", "-hub", h.url}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.want) {
				t.Errorf("exit %d, %q", code, stderr)
			}
			if strings.Contains(stdout, "-since PLACE") != (test.name == "help") || test.token != "" && strings.Contains(stderr, test.token) {
				t.Errorf("it says %q and %q", stdout, stderr)
			}
		})
	}
}
