package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/running"
)

// readiness asks whether a hub is ready, and by which checks.
func readiness(t *testing.T, h *started) (ready bool, checks map[string]dependency) {
	t.Helper()
	resp, body := running.Do(t, "GET", h.Ops+"/readyz", "")
	var answer struct {
		Ready  bool
		Checks map[string]dependency
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Ready != (resp.StatusCode == http.StatusOK) || !answer.Ready && resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d %s", resp.StatusCode, body)
	}
	return answer.Ready, answer.Checks
}

// As soon as /readyz says that the hub is ready, requests are answered: a balancer that
// saw it sends them in the same millisecond.
func TestReadyIsNotEarly(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", Data: t.TempDir(), Hosts: []string{"example.org"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	for ready := false; !ready; {
		ready, _ = s.health.ready(ctx)
	}
	answer := httptest.NewRecorder()
	s.front.public.Handler.ServeHTTP(answer, httptest.NewRequest("GET", "http://example.org/sets", nil))
	if answer.Code != http.StatusOK {
		t.Errorf("the first request is answered %d %s", answer.Code, answer.Body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Below the reserve it takes nothing and says so. It stays ready: what there is it
// goes on to hand out, and who is refused learns why.
func TestDiskReserve(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	h.Stop()
	low := start(t, Config{Data: h.data, DiskReserve: 1 << 60, Sets: []string{"demo", "new"}})
	ready, checks := readiness(t, low)
	if memory := checks["memory"]; !ready || memory.OK || memory.Required || !strings.Contains(memory.Reason, "full") {
		t.Errorf("ready is %v, %v", ready, checks)
	}
	if _, body := running.Do(t, "GET", low.Ops+"/metrics", ""); !strings.Contains(body, "\nrshub_ready 1\n") || !strings.Contains(body, "\nrshub_dependency_ok{dependency=\"memory\"} 0\n") {
		t.Errorf("the metrics are %s", body)
	}
	for _, set := range []string{"demo", "new"} {
		resp, body := running.Do(t, "POST", low.URL+"/sets/"+set+"/changes", running.OneChange, "Content-Type", "application/json")
		checkProblem(t, resp, body, http.StatusInsufficientStorage, "full")
	}
	if resp, body := running.Do(t, "GET", low.URL+"/sets/demo/changes?since=start", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, "https://example.org/a") {
		t.Errorf("the changes are %d %s", resp.StatusCode, body)
	}
	if resp, body := running.Do(t, "DELETE", low.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("making room is answered %d %s", resp.StatusCode, body)
	}
}
