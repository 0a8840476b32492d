package problem

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Read parses the response of Write, and errors.Is gives the same result at both ends.
func TestRead(t *testing.T) {
	now := time.Now()
	for _, sent := range []error{
		feed.ErrGone, feed.ErrNoSet, feed.ErrKeyReused, feed.ErrFull, feed.ErrClock, feed.ErrUnavailable, feed.ErrUnknown,
		&resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: 3, Line: 7, Loc: "https://example.org/a", Msg: "loc is bad"},
		&feed.Problem{Type: "x", Title: "T", Status: 400, Accepted: &feed.Progress{Count: 2, Line: 3, Cursor: "4-5"}},
		New(http.StatusTeapot, "teapot", "short and stout"),
		errors.New("the hub's own fault"),
	} {
		w := httptest.NewRecorder()
		want := Write(w, httptest.NewRequest("GET", "/", nil), fmt.Errorf("wrapped: %w", sent))
		got, err := Read(w.Result(), now)
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != want.Type || got.Title != want.Title || got.Status != want.Status || got.Detail != want.Detail ||
			got.Entry != want.Entry || got.Line != want.Line || got.Loc != want.Loc || got.RetryAfter != want.RetryAfter {
			t.Errorf("Read() of %v = %+v", sent, got)
		}
		if want.Accepted != nil && (got.Accepted == nil || *got.Accepted != *want.Accepted) {
			t.Errorf("Read().Accepted = %+v", got.Accepted)
		}
		_, known := sent.(*feed.Error)
		if errors.Is(got, sent) != known || (got.Err != nil) != known {
			t.Errorf("error of %v = %v", sent, got.Err)
		}
	}
}

func TestReadOtherResponses(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 500, time.UTC)
	for _, test := range []struct {
		name, contentType, body, retry string
		title, detail                  string
		after                          int
	}{
		{"a page", "text/html", "<html>\x1b[31m", "", "Conflict", "", 0},
		{"plain JSON", "application/json", `{"detail":"no"}`, "", "Conflict", "", 0},
		{"half a document", "application/problem+json", `{"title":"T","detail":"no`, "", "Conflict", "", 0},
		{"another shape", "application/problem+json", `{"title":"T","detail":7}`, "", "Conflict", "", 0},
		{"with a parameter", "application/problem+json; charset=utf-8", `{"title":"T","status":200,"detail":"no"}`, "", "T", "no", 0},
		{"control characters", "application/problem+json", `{"title":"a\nb","detail":"a\u001b[31m\nb"}`, "", "a b", "a [31m b", 0},
		{"far too long", "application/problem+json", `{"detail":"` + strings.Repeat("ü", 501) + `"}`, "", "Conflict", strings.Repeat("ü", 500) + "…", 0},
		{"seconds", "", "", " 7 ", "Conflict", "", 7},
		{"too many seconds", "", "", "99999999999", "Conflict", "", 1e9},
		{"more than a number holds", "", "", "99999999999999999999", "Conflict", "", 1e9},
		{"negative", "", "", "-7", "Conflict", "", 0},
		{"a date", "", "", "Tue, 03 Feb 2026 04:06:06 GMT", "Conflict", "", 60},
		{"a date long ago", "", "", "Tue, 03 Feb 2015 04:06:06 GMT", "Conflict", "", 0},
		{"a date in a thousand years", "", "", "Tue, 03 Feb 3026 04:06:06 GMT", "Conflict", "", 1e9},
		{"nonsense", "", "", "soon", "Conflict", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Read(&http.Response{
				StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(test.body)),
				Header: http.Header{"Content-Type": {test.contentType}, "Retry-After": {test.retry}},
			}, now)
			if err != nil || p.Status != http.StatusConflict || p.Title != test.title || p.Detail != test.detail || p.RetryAfter != test.after || p.Err != nil {
				t.Errorf("Read() = %+v, %v", p, err)
			}
		})
	}
	broken := errors.New("the line broke")
	if _, err := Read(&http.Response{StatusCode: 400, Body: io.NopCloser(iotest.ErrReader(broken))}, now); !errors.Is(err, broken) {
		t.Errorf("Read() of interrupted response: err = %v", err)
	}
}
