package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestNewProblem(t *testing.T) {
	rule := &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: 3, Line: 7, Loc: "https://example.org/a", Rule: "loc is bad"}
	large := &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: "a document has at most 1 byte"}
	own := NewStatus(http.StatusTeapot, "teapot", "short and stout")
	for _, test := range []struct {
		err    error
		status int
		name   string
		detail string // a part of it
		retry  bool
	}{
		{rule, 400, "invalid", "loc is bad", false},
		{large, 413, "too-large", "1 byte", false},
		{&http.MaxBytesError{Limit: 5}, 413, "too-large", "5 bytes", false},
		{own, 418, "teapot", "stout", false},
		{ErrGone, 410, "gone", "read the resources", false},
		{ErrNoSet, 404, "no-such-set", "no such set", false},
		{ErrKeyReused, 422, "key-reused", "Idempotency-Key", false},
		{ErrFull, 507, "full", "nothing was written", false},
		{ErrUnknown, 503, "unknown", "same Idempotency-Key", true},
		{ErrClock, 503, "clock", "nothing was written", true},
		{ErrUnavailable, 503, "unavailable", "nothing was written", true},
		{context.DeadlineExceeded, 503, "unavailable", "", true},
		{context.Canceled, 503, "unavailable", "", true},
		{ErrCorrupt, 500, "internal", "log", false},
		{errors.New("password=secret"), 500, "internal", "log", false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			err := fmt.Errorf("publish to set %q: %w", "secret", test.err)
			p := NewProblem(err)
			if p.Status != test.status || p.Type != resourcesync.Terms+"problems/"+test.name || p.Title != http.StatusText(test.status) {
				t.Errorf("the problem is %d %s %s", p.Status, p.Type, p.Title)
			}
			if !strings.Contains(p.Detail, test.detail) || p.RetryAfter > 0 != test.retry {
				t.Errorf("it says %q, and to come again after %d s", p.Detail, p.RetryAfter)
			}
			body, merr := json.Marshal(p)
			if merr != nil || strings.Contains(string(body), "secret") {
				t.Errorf("the client sees %s (%v)", body, merr)
			}
			// What is asked of the error can be asked of its problem too.
			if !errors.Is(p, test.err) || NewProblem(fmt.Errorf("again: %w", p)) != p {
				t.Errorf("the problem %v is not %v", p, test.err)
			}
		})
	}
	if p := NewProblem(rule); p.Entry != 3 || p.Line != 7 || p.Loc != rule.Loc {
		t.Errorf("the problem is %+v", p)
	}
}

func TestProblemError(t *testing.T) {
	for _, test := range []struct {
		problem *Problem
		want    string
	}{
		{NewStatus(404, "x", ""), "Not Found"},
		{NewStatus(404, "x", "no such thing"), "Not Found: no such thing"},
		{NewProblem(errors.New("disk on fire")), "Internal Server Error: disk on fire"},
	} {
		if got := test.problem.Error(); got != test.want {
			t.Errorf("Error() = %q, want %q", got, test.want)
		}
	}
}

func TestWriteError(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		t.Run(method, func(t *testing.T) {
			w := httptest.NewRecorder()
			// What was meant for the document that could not be served.
			for _, name := range []string{"ETag", "Last-Modified", "Content-Encoding", "Content-Length", "Link", "Content-Type"} {
				w.Header().Set(name, "of the document")
			}
			w.Header().Set("Vary", "Accept")
			p := NewStatus(http.StatusServiceUnavailable, "busy", `"quoted"`)
			p.RetryAfter, p.Header = 7, http.Header{"Allow": {"GET"}, "Link": {"<x>; rel=help"}}
			if got := WriteError(w, httptest.NewRequest(method, "/", nil), p); got != p {
				t.Errorf("WriteError returned %v", got)
			}
			want := http.Header{
				"Allow": {"GET"}, "Cache-Control": {"no-store"}, "Content-Length": {w.Header().Get("Content-Length")},
				"Content-Type": {"application/problem+json"}, "Link": {"<x>; rel=help"}, "Retry-After": {"7"}, "Vary": {"Accept"},
			}
			if got, want := fmt.Sprint(w.Header()), fmt.Sprint(want); got != want {
				t.Errorf("the header is %s, want %s", got, want)
			}
			if w.Code != http.StatusServiceUnavailable || (w.Body.Len() > 0) == (method == http.MethodHead) {
				t.Errorf("the answer is %d %q", w.Code, w.Body)
			}
			if method == http.MethodGet && w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
				t.Errorf("the length is %s, the body has %d bytes", w.Header().Get("Content-Length"), w.Body.Len())
			}
		})
	}
}
