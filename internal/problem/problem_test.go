package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestFrom(t *testing.T) {
	rule := &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: 3, Line: 7, Loc: "https://example.org/a", Msg: "loc is bad"}
	large := &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: "a document has at most 1 byte"}
	own := New(http.StatusTeapot, "teapot", "short and stout")
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
		{feed.ErrGone, 410, "gone", "read the resources", false},
		{feed.ErrNoSet, 404, "no-such-set", "no such set", false},
		{feed.ErrKeyReused, 422, "key-reused", "Idempotency-Key", false},
		{feed.ErrFull, 507, "full", "nothing was written", false},
		{feed.ErrUnknown, 503, "unknown", "same Idempotency-Key", true},
		{feed.ErrClock, 503, "clock", "nothing was written", true},
		{feed.ErrUnavailable, 503, "unavailable", "nothing was written", true},
		{context.DeadlineExceeded, 503, "unavailable", "", true},
		{context.Canceled, 503, "unavailable", "", true},
		{errors.New("the change memory is damaged"), 500, "internal", "log", false},
		{errors.New("password=secret"), 500, "internal", "log", false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			err := fmt.Errorf("publish to set %q: %w", "secret", test.err)
			p := From(err)
			if p.Status != test.status || p.Type != resourcesync.Terms+"problems/"+test.name || p.Title != http.StatusText(test.status) {
				t.Errorf("From() = %d %s %s", p.Status, p.Type, p.Title)
			}
			if !strings.Contains(p.Detail, test.detail) || p.RetryAfter > 0 != test.retry {
				t.Errorf("got detail %q, Retry-After %d s", p.Detail, p.RetryAfter)
			}
			body, merr := json.Marshal(p)
			if merr != nil || strings.Contains(string(body), "secret") {
				t.Errorf("JSON = %s (err %v)", body, merr)
			}
			// errors.Is says the same of the error and of its Problem.
			if !errors.Is(p, test.err) || From(fmt.Errorf("again: %w", p)) != p {
				t.Errorf("errors.Is(%v, %v) = false, want true", p, test.err)
			}
		})
	}
	if p := From(rule); p.Entry != 3 || p.Line != 7 || p.Loc != rule.Loc {
		t.Errorf("From() = %+v", p)
	}
}

func TestProblemError(t *testing.T) {
	for _, test := range []struct {
		problem *feed.Problem
		want    string
	}{
		{New(404, "x", ""), "Not Found"},
		{New(404, "x", "no such thing"), "Not Found: no such thing"},
		{From(errors.New("disk on fire")), "Internal Server Error: disk on fire"},
	} {
		if got := test.problem.Error(); got != test.want {
			t.Errorf("Error() = %q, want %q", got, test.want)
		}
	}
}

func TestWrite(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		t.Run(method, func(t *testing.T) {
			w := httptest.NewRecorder()
			// These headers were meant for the document that could not be served.
			for _, name := range []string{"ETag", "Last-Modified", "Content-Encoding", "Content-Length", "Link", "Content-Type"} {
				w.Header().Set(name, "of the document")
			}
			w.Header().Set("Vary", "Accept")
			p := New(http.StatusServiceUnavailable, "busy", `"quoted"`)
			p.RetryAfter, p.Header = 7, http.Header{"Allow": {"GET"}, "Link": {"<x>; rel=help"}}
			if got := Write(w, httptest.NewRequest(method, "/", nil), p); got != p {
				t.Errorf("Write() = %v", got)
			}
			want := http.Header{
				"Allow": {"GET"}, "Cache-Control": {"no-store"}, "Content-Length": {w.Header().Get("Content-Length")},
				"Content-Type": {"application/problem+json"}, "Link": {"<x>; rel=help"}, "Retry-After": {"7"}, "Vary": {"Accept"},
			}
			if got, want := fmt.Sprint(w.Header()), fmt.Sprint(want); got != want {
				t.Errorf("got header %s, want %s", got, want)
			}
			if w.Code != http.StatusServiceUnavailable || (w.Body.Len() > 0) == (method == http.MethodHead) {
				t.Errorf("got response %d %q", w.Code, w.Body)
			}
			if method == http.MethodGet && w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
				t.Errorf("Content-Length = %s, but body has %d bytes", w.Header().Get("Content-Length"), w.Body.Len())
			}
		})
	}
}
