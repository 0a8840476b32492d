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

func TestValidCursor(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{RetryTimeout: -1})
	check := func(at feed.Cursor, want bool) {
		t.Helper()
		if got, err := c.ValidCursor(t.Context(), "demo", at); err != nil || got != want {
			t.Errorf("ValidCursor(%v) = %v, %v, want %v", at, got, err, want)
		}
	}
	if err := s.log.Make(t.Context(), "demo", feed.Description{}, 2); err != nil { // lists of two entries
		t.Fatal(err)
	}
	first := s.publish(t, "urn:1")
	last := s.publish(t, "urn:2", "urn:3", "urn:4", "urn:5", "urn:6", "urn:7")
	check(first, true)
	check(last, true)
	check(feed.Cursor{Position: last.Position + 1, Micros: last.Micros + 1}, false) // the log lost its tail
	check(feed.Cursor{Position: last.Position, Micros: last.Micros + 1}, false)     // and has other entries since

	if n, err := s.log.Trim(t.Context(), "demo", changelog.Retention{Count: 1}); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	check(first, true) // removed by retention
	check(last, true)

	if err := s.hub.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	check(last, false)
	again := s.publish(t, "urn:1", "urn:2", "urn:3", "urn:4", "urn:5", "urn:6", "urn:7", "urn:8", "urn:9")
	check(first, false)
	check(last, false)
	check(again, true)
}

// TestPublishUnsent checks that Unsent distinguishes publishes that cannot have reached the hub
// from those that may have.
func TestPublishUnsent(t *testing.T) {
	s, clock := newSite(t), newClock()
	var answers atomic.Bool
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if answers.Load() {
			problemHandler(503, "away", "")(w, r)
		} else {
			abortHandler(w, r)
		}
		return true
	}
	try := func(url string) *client.UnavailableError {
		t.Helper()
		o := clock.options()
		_, err := newClient(t, url, o).Publish(t.Context(), "demo", "", updated("urn:a"))
		u, ok := errors.AsType[*client.UnavailableError](err)
		if !ok {
			t.Fatalf("Publish: got error %v, want an UnavailableError", err)
		}
		return u
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if u := try(gone.URL); !u.Unsent || u.Tries < 2 {
		t.Errorf("no listener: got %+v, want Unsent after several tries", u)
	}
	if u := try(strings.Replace(s.URL, "http:", "https:", 1)); !u.Unsent {
		t.Errorf("another scheme: got %+v, want Unsent", u)
	}
	if u := try(s.URL); u.Unsent {
		t.Errorf("no response: got %+v, want not Unsent", u)
	}
	answers.Store(true)
	if u := try(s.URL); u.Unsent {
		t.Errorf("503: got %+v, want not Unsent", u)
	}
}
