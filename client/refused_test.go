package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rshub/rshub/client"
)

// TestFollowRefused413 checks that Follow does not repeat a refused request with smaller pages.
func TestFollowRefused413(t *testing.T) {
	requests := 0
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	defer hub.Close()
	var last error
	for _, err := range newClient(t, hub.URL, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
		last = err
	}
	if _, ok := errors.AsType[*client.RefusedError](last); !ok || requests != 1 {
		t.Errorf("Follow sends %d requests and ends with %v, want 1 and a RefusedError", requests, last)
	}
}
