package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
)

func TestHolds(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{Patience: -1})
	holds := func(at feed.Cursor, want bool) {
		t.Helper()
		if got, err := c.Holds(t.Context(), "demo", at); err != nil || got != want {
			t.Errorf("it holds %v: %v, %v", at, got, err)
		}
	}
	if err := s.log.Make(t.Context(), "demo", feed.Description{}, 2); err != nil { // lists of two entries
		t.Fatal(err)
	}
	first := s.publish(t, "urn:1")
	last := s.publish(t, "urn:2", "urn:3", "urn:4", "urn:5", "urn:6", "urn:7")
	holds(first, true)
	holds(last, true)
	holds(feed.Cursor{Position: last.Position + 1, Micros: last.Micros + 1}, false) // the memory lost its tail
	holds(feed.Cursor{Position: last.Position, Micros: last.Micros + 1}, false)     // and has others since

	if n, err := s.log.Trim(t.Context(), "demo", changelog.Retention{Count: 1}); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	holds(first, true) // retention is no loss
	holds(last, true)

	if err := s.hub.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	holds(last, false)
	again := s.publish(t, "urn:1", "urn:2", "urn:3", "urn:4", "urn:5", "urn:6", "urn:7", "urn:8", "urn:9")
	holds(first, false)
	holds(last, false)
	holds(again, true)
}

// What surely did not reach the hub is told from what may have.
func TestPublishUnsent(t *testing.T) {
	s, clock := newSite(t), newClock()
	var answers atomic.Bool
	s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if answers.Load() {
			trouble(503, "away", "")(w, r)
		} else {
			abort(w, r)
		}
		return true
	}
	try := func(url string) *client.Unavailable {
		t.Helper()
		o := clock.options()
		_, err := newClient(t, url, o).Publish(t.Context(), "demo", "", updated("urn:a"))
		u, ok := errors.AsType[*client.Unavailable](err)
		if !ok {
			t.Fatalf("it ended with %v", err)
		}
		return u
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if u := try(gone.URL); !u.Unsent || u.Tries < 2 {
		t.Errorf("nobody listens: %+v", u)
	}
	if u := try(strings.Replace(s.URL, "http:", "https:", 1)); !u.Unsent {
		t.Errorf("another scheme: %+v", u)
	}
	if u := try(s.URL); u.Unsent {
		t.Errorf("no answer: %+v", u)
	}
	answers.Store(true)
	if u := try(s.URL); u.Unsent {
		t.Errorf("503: %+v", u)
	}
}
