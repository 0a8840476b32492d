package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// A valid request ID of the client is used in the response, the problem and the log; an invalid
// one is replaced.
func TestRequestID(t *testing.T) {
	h := start(t, Config{}, slog.LevelDebug)
	for _, test := range []struct {
		name, id string
		valid    bool
	}{
		{"UUID", "0b2fcf8d-7e2b-4a2e-9f0e-2c7f2f6f5a11", true},
		{"trace ID of a load balancer", "Root=1-67891233-abcdef012345678912345678", true},
		{"none", "", false},
		{"too long", strings.Repeat("x", maxRequestID+1), false},
		{"longest", strings.Repeat("x", maxRequestID), true},
		{"quotation mark", `a"b`, false},
		{"space", "a b", false},
		{"not ASCII", "é", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/sets/demo/nothing-" + strings.ReplaceAll(test.name, " ", "-")
			resp, body := servertest.Do(t, "GET", h.URL+path, "", requestIDHeader, test.id)
			id := resp.Header.Get(requestIDHeader)
			if (id == test.id) != test.valid || !validRequestID(id) {
				t.Errorf("request ID of %q = %q, want the same: %t", test.id, id, test.valid)
			}
			var p feed.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.RequestID != id {
				t.Errorf("got the problem %s, want requestId %q", body, id)
			}
			n := 0
			for _, line := range h.log.Lines(t, "request") {
				if line["path"] == path && line["requestId"] == id && line["status"] == float64(resp.StatusCode) && line["level"] == "DEBUG" {
					n++
				}
			}
			if n != 1 {
				t.Errorf("got %d log lines of the request, want 1:\n%s", n, h.log)
			}
		})
	}
	one, _ := servertest.Do(t, "GET", h.URL+"/", "")
	two, _ := servertest.Do(t, "GET", h.Ops+"/healthz", "")
	if a, b := one.Header.Get(requestIDHeader), two.Header.Get(requestIDHeader); a == b || a == "" || b == "" {
		t.Errorf("request IDs of two requests = %q, %q, want different ones", a, b)
	}
}

// A panic is logged with its stack and aborts only its request. http.ErrAbortHandler is not logged.
func TestPanicIsLogged(t *testing.T) {
	log := &testutil.Log{}
	q := &requestLog{log: slog.New(requestHandler{log.Logger(slog.LevelInfo).Handler()})}
	for _, what := range []any{"a bug", http.ErrAbortHandler} {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("panic(%v) reaches net/http as %v, want %v", what, p, http.ErrAbortHandler)
				}
			}()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set(requestIDHeader, "mine")
			q.logged(slog.LevelWarn)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(what) })).ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	all := log.Lines(t, "panic in a request")
	if len(all) != 1 || all[0]["panic"] != "a bug" || all[0]["requestId"] != "mine" || !strings.Contains(all[0]["stack"].(string), "TestPanicIsLogged") {
		t.Errorf("got the log lines %v, want one with the panic, the request ID and the stack", all)
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
