package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// TestDescribe checks the requests of Describe and SetComplete, and that they are retried while the
// hub is not ready.
func TestDescribe(t *testing.T) {
	var bodies []string
	answer := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"set":"demo","head":"0-1"}`) }
	busy := 0
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+string(b))
		if busy > 0 {
			busy--
			problem.Write(w, r, feed.ErrUnknown)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	defer hub.Close()
	c := newClient(t, hub.URL, newClock().options())
	busy = 2
	for _, err := range []error{
		c.Describe(t.Context(), "demo", feed.Description{}),
		c.Describe(t.Context(), "demo", feed.Description{Title: "T", ResourceList: "https://e.org/r", NoInventory: true}),
		c.SetComplete(t.Context(), "demo", true),
		c.SetComplete(t.Context(), "demo", false),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"PUT /sets/demo {}", "PUT /sets/demo {}", "PUT /sets/demo {}",
		`PUT /sets/demo {"title":"T","resourcelist":"https://e.org/r","inventory":"off"}`,
		`PUT /sets/demo {"complete":true}`, `PUT /sets/demo {"complete":false}`,
	}
	if !slices.Equal(bodies, want) {
		t.Errorf("got requests %q, want %q", bodies, want)
	}
	answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"set":"other"}`) }
	if err := c.SetComplete(t.Context(), "demo", true); !errors.Is(err, client.ErrNotHub) {
		t.Errorf("SetComplete with a response for another set = %v, want %v", err, client.ErrNotHub)
	}
	answer = func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoSet) }
	if err := c.SetComplete(t.Context(), "demo", true); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("SetComplete of an unknown set = %v, want %v", err, feed.ErrNoSet)
	}
	if err := c.SetComplete(t.Context(), "BAD", true); err == nil {
		t.Error("SetComplete of an invalid name succeeds, want an error")
	}
}
