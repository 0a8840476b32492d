package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/resourcesync"
)

// A followRun is an rshub follow that runs in the background of a test.
type followRun struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
	code  chan int
	errs  testutil.Log
}

func startFollow(t *testing.T, args ...string) *followRun {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r := &followRun{t: t, lines: bufio.NewScanner(out), stop: stop, code: make(chan int, 1)}
	go func() {
		r.code <- run(ctx, append([]string{"follow"}, args...), in, &r.errs)
		in.Close()
	}()
	t.Cleanup(func() {
		stop()
		out.Close() // unblocks writes of the command
	})
	return r
}

// nextLoc waits for the next line, and returns its loc.
func (r *followRun) nextLoc() string {
	r.t.Helper()
	var change struct {
		Loc      string
		Position int
	}
	if !r.lines.Scan() {
		r.t.Fatalf("output ended, want another line: %s", r.errs.String())
	}
	if err := json.Unmarshal(r.lines.Bytes(), &change); err != nil || change.Position == 0 {
		r.t.Fatalf("line %s is not a change with a position: %v", r.lines.Text(), err)
	}
	return change.Loc
}

// wait waits for the command to exit, and returns its exit code and the cursor for resuming.
func (r *followRun) wait() (code int, cursor string) {
	r.t.Helper()
	if r.lines.Scan() {
		r.t.Errorf("unexpected line: %s", r.lines.Text())
	}
	_, cursor, _ = strings.Cut(r.errs.String(), "to resume, use -since ")
	return <-r.code, strings.TrimSpace(cursor)
}

// publishLocs publishes a change of each loc.
func (h *testHub) publishLocs(set string, locs ...string) {
	h.t.Helper()
	var body strings.Builder
	for _, loc := range locs {
		body.WriteString(`{"loc":"` + loc + `","change":"updated"}` + "\n")
	}
	resp, text := servertest.Do(h.t, "POST", h.URL+"/sets/"+set+"/changes", body.String(), "Content-Type", "application/x-ndjson")
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("POST changes = %d %s, want 200", resp.StatusCode, text)
	}
}

// TestFollow checks that follow prints existing and new changes, and that a second follow from
// the cursor of the first repeats none.
func TestFollow(t *testing.T) {
	h := startHub(t)
	h.publishLocs("demo", "urn:a", "urn:b")
	r := startFollow(t, "-hub", h.URL+"/", "-set", "demo", "-since", "start")
	for _, want := range []string{"urn:a", "urn:b"} {
		if got := r.nextLoc(); got != want {
			t.Errorf("nextLoc() = %s, want %s", got, want)
		}
	}
	h.publishLocs("demo", "urn:c")
	if got := r.nextLoc(); got != "urn:c" {
		t.Errorf("nextLoc() = %s, want urn:c", got)
	}
	r.stop()
	code, since := r.wait()
	if code != 0 || since == "" {
		t.Fatalf("wait() = %d, %q, want 0 and a cursor: %s", code, since, &r.errs)
	}

	h.publishLocs("demo", "urn:d", "urn:e:1", "urn:e:2", "urn:e:3")
	r = startFollow(t, "-hub", h.URL, "-set", "demo", "-since", since, "-prefix", "urn:e", "-count", "2")
	for _, want := range []string{"urn:e:1", "urn:e:2"} {
		if got := r.nextLoc(); got != want {
			t.Errorf("nextLoc() = %s, want %s", got, want)
		}
	}
	if code, since := r.wait(); code != 0 || !strings.HasPrefix(since, "6-") {
		t.Errorf("wait() = %d, %q, want 0 and a cursor at position 6: %s", code, since, &r.errs)
	}
}

// TestFollowMessages checks that follow reports retries, lost changes, and how to resume.
func TestFollowMessages(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			problem.Write(w, r, problem.New(http.StatusServiceUnavailable, "away", "memory is unreachable"))
			return
		}
		b := feed.NewBatch("demo", feed.Cursor{Position: 4, Micros: 4}, feed.Cursor{Position: 6, Micros: 6}, []resourcesync.Change{
			{Loc: "urn:a", Change: resourcesync.Created, Attrs: []resourcesync.Attr{{Namespace: "urn:n", Name: "a", Value: "ü"}}},
			{Loc: "urn:b", Change: resourcesync.Deleted},
		})
		b.Diverged = true
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b.JSON())
	}))
	defer server.Close()
	code, stdout, stderr := runCommand(t, "follow", "-hub", server.URL, "-set", "demo", "-count", "1", "-since", "7-7")
	if want := `{"position":5,"datetime":"1970-01-01T00:00:00.000005Z","loc":"urn:a","change":"created","{urn:n}a":"ü"}` + "\n"; code != 0 || stdout != want {
		t.Errorf("rshub follow = %d, %s, want 0, %s", code, stdout, want)
	}
	if want := "rshub: hub returned 503: memory is unreachable; retrying\n" +
		"rshub: the change memory lost its newest changes; some changes may be repeated\nrshub: to resume, use -since 5-5\n"; stderr != want {
		t.Errorf("stderr = %q, want %q", stderr, want)
	}
}

func TestFollowRefused(t *testing.T) {
	path, texts := writeTokens(t, "publish:*", "follow:demo")
	h := startHub(t, "RSHUB_TOKENS_FILE", path)
	h.Publish("demo", "Authorization", "Bearer "+texts[0])
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome\n") }))
	defer other.Close()
	for _, test := range []struct {
		name, token string
		args        []string
		code        int
		want        string
	}{
		{"no token", "", []string{"-set", "demo"}, 1, "401: this request requires a token with the right follow:demo"},
		{"wrong token", texts[0], []string{"-set", "demo"}, 1, "403: your token"},
		{"unknown cursor", texts[1], []string{"-set", "demo", "-since", "7-7"}, 1, "410: the change memory"},
		{"invalid since", texts[1], []string{"-set", "demo", "-since", "yesterday"}, 1, "400: "},
		{"too few changes", texts[1], []string{"-set", "demo", "-count", "1", "-for", "1ms"}, 1, "received 0 changes within 1ms, want 1"},
		{"time limit", texts[1], []string{"-set", "demo", "-for", "1ms"}, 0, ""},
		{"not a hub", "", []string{"-set", "demo", "-hub", other.URL}, 1, "response is not from a hub; check the URL"},
		{"no set", "", nil, 2, "rshub follow -set SET"},
		{"invalid set", "", []string{"-set", "a/b"}, 2, "rshub follow -set SET"},
		{"invalid hub URL", "", []string{"-set", "demo", "-hub", "hub.example.org"}, 2, "-hub, RSHUB_TOKEN: want a URL"},
		{"negative count", "", []string{"-set", "demo", "-count", "-1"}, 2, "rshub follow -h"},
		{"extra argument", "", []string{"-set", "demo", "demo"}, 2, "rshub follow -h"},
		{"help", "", []string{"-h"}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, "RSHUB_TOKEN", test.token)
			code, stdout, stderr := runCommand(t, append([]string{"follow", "-hub", h.URL}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.want) {
				t.Errorf("rshub follow = %d, %q, want %d, %q", code, stderr, test.code, test.want)
			}
			if strings.Contains(stdout, "-since POSITION") != (test.name == "help") || test.token != "" && strings.Contains(stderr, test.token) {
				t.Errorf("output %q and %q has the token, or the help at the wrong time", stdout, stderr)
			}
		})
	}
}
