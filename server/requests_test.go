package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/loggedtest"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/problem"
)

// A request keeps its id where that is harmless. It is in the answer, in the
// problem and in the log.
func TestRequestID(t *testing.T) {
	h := start(t, Config{}, slog.LevelDebug)
	for _, test := range []struct {
		name, id string
		kept     bool
	}{
		{"a UUID", "0b2fcf8d-7e2b-4a2e-9f0e-2c7f2f6f5a11", true},
		{"of a tracing balancer", "Root=1-67891233-abcdef012345678912345678", true},
		{"none", "", false},
		{"too long", strings.Repeat("x", maxRequestID+1), false},
		{"as long as may be", strings.Repeat("x", maxRequestID), true},
		{"a quote", `a"b`, false},
		{"a blank", "a b", false},
		{"not ASCII", "é", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/sets/demo/nothing-" + strings.ReplaceAll(test.name, " ", "-")
			resp, body := servertest.Do(t, "GET", h.URL+path, "", requestIDHeader, test.id)
			id := resp.Header.Get(requestIDHeader)
			if (id == test.id) != test.kept || !goodRequestID(id) {
				t.Errorf("the id %q is answered with %q", test.id, id)
			}
			var p problem.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.RequestID != id {
				t.Errorf("the problem is %s, and the id %q", body, id)
			}
			n := 0
			for _, line := range h.log.Lines(t, "request") {
				if line["path"] == path && line["requestId"] == id && line["status"] == float64(resp.StatusCode) && line["level"] == "DEBUG" {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d lines tell of it:\n%s", n, h.log)
			}
		})
	}
	one, _ := servertest.Do(t, "GET", h.URL+"/", "")
	two, _ := servertest.Do(t, "GET", h.Ops+"/healthz", "")
	if a, b := one.Header.Get(requestIDHeader), two.Header.Get(requestIDHeader); a == b || a == "" || b == "" {
		t.Errorf("two requests have the ids %q and %q", a, b)
	}
}

// The line of a request has the status that the client got, also where the handler
// wrote nothing or took the connection over.
func TestLoggedStatus(t *testing.T) {
	log := &loggedtest.Log{}
	q := &requests{log: slog.New(requestHandler{log.Logger(slog.LevelDebug).Handler()})}
	mux := http.NewServeMux()
	mux.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/written", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) })
	mux.HandleFunc("/taken", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	})
	srv := httptest.NewServer(q.logged(mux, slog.LevelWarn))
	defer srv.Close()
	var want []int
	for _, path := range []string{"/nothing", "/written", "/taken", "/missing"} {
		resp, _ := servertest.Do(t, "GET", srv.URL+path, "")
		want = append(want, resp.StatusCode)
	}
	for len(log.Lines(t, "request")) < len(want) { // the last is written just after its answer
		runtime.Gosched()
	}
	var got []int
	for _, line := range log.Lines(t, "request") {
		got = append(got, int(line["status"].(float64)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the lines have %v, and the answers were %v", got, want)
	}
}

// What is logged about a request that failed has its id, at a level that is seen.
func TestFailedRequestIsLogged(t *testing.T) {
	h := start(t, Config{DiskReserve: 1 << 60, Sets: []string{"demo"}})
	servertest.Do(t, "POST", h.URL+"/sets/demo/changes", servertest.OneChange, "Content-Type", "application/json", requestIDHeader, "mine")
	for _, msg := range []string{"request refused", "request"} {
		if all := h.log.Lines(t, msg); len(all) != 1 || all[0]["requestId"] != "mine" || all[0]["level"] != "WARN" {
			t.Errorf("%q is logged %v", msg, all)
		}
	}
}

// A panic is no secret, and ends nothing but its request.
func TestPanicIsLogged(t *testing.T) {
	log := &loggedtest.Log{}
	q := &requests{log: slog.New(requestHandler{log.Logger(slog.LevelInfo).Handler()})}
	for _, what := range []any{"a bug", http.ErrAbortHandler} {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%v becomes %v", what, p)
				}
			}()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set(requestIDHeader, "mine")
			q.logged(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(what) }), slog.LevelWarn).ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	all := log.Lines(t, "http: panic in a request")
	if len(all) != 1 || all[0]["panic"] != "a bug" || all[0]["requestId"] != "mine" || !strings.Contains(all[0]["stack"].(string), "TestPanicIsLogged") {
		t.Errorf("it is logged %v", all)
	}
}

func TestShownPath(t *testing.T) {
	for path, want := range map[string]string{
		"/sets/a.b/changes":                         "/sets/a.b/changes",
		"/subscriptions/0123.SECRET":                "/subscriptions/0123",
		"//subscriptions/0123.SECRET":               "//subscriptions/0123",
		"/sets/a.b/subscriptions/0123/cursor":       "/sets/a.b/subscriptions/0123/cursor",
		"/" + strings.Repeat("x", 1000):             "/" + strings.Repeat("x", 199) + "…",
		"/subscriptions/" + strings.Repeat("x", 15): "/subscriptions/" + strings.Repeat("x", 15),
		"/a\x1b[2Jb\u009bc\u202e\n":                 "/a\ufffd[2Jb\ufffdc\ufffd\ufffd",
	} {
		if got := shownPath(path); got != want {
			t.Errorf("shownPath(%q) = %q, want %q", path, got, want)
		}
	}
}

// A visitor who comes while the hub starts is told so, and is nothing to warn of.
func TestEarlyVisitor(t *testing.T) {
	log := &loggedtest.Log{}
	q := &requests{log: log.Logger(slog.LevelDebug)}
	h := q.logged(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }), slog.LevelWarn)
	for _, test := range []struct {
		starting bool
		want     string
	}{{true, "DEBUG"}, {false, "WARN"}} {
		q.starting.Store(test.starting)
		before := len(log.Lines(t, "request"))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if lines := log.Lines(t, "request"); len(lines) != before+1 || lines[before]["level"] != test.want {
			t.Errorf("starting %v: %v", test.starting, lines[before:])
		}
	}
}

// A hub that is alone logs that it runs and that it stops, and nothing of sharing.
func TestQuietAlone(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	h.Stop()
	for line := range strings.Lines(h.log.String()) {
		if !strings.Contains(line, "rshub is running") && !strings.Contains(line, "stop") {
			t.Errorf("the log has %s", line)
		}
	}
}
