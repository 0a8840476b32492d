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

// Describe and Complete say what the hub reads, and try again while it is not ready.
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
		c.Complete(t.Context(), "demo", true),
		c.Complete(t.Context(), "demo", false),
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
		t.Errorf("it sends %q", bodies)
	}
	answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"set":"other"}`) }
	if err := c.Complete(t.Context(), "demo", true); !errors.Is(err, client.ErrNoHub) {
		t.Errorf("an answer about another set is %v", err)
	}
	answer = func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoSet) }
	if err := c.Complete(t.Context(), "demo", true); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("no set is %v", err)
	}
	if err := c.Complete(t.Context(), "BAD", true); err == nil {
		t.Error("a bad name is sent")
	}
}
