package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
)

// readiness asks whether a hub is ready, and by which checks.
func readiness(t *testing.T, h *started) (ready bool, checks map[string]dependency) {
	t.Helper()
	resp, body := servertest.Do(t, "GET", h.Ops+"/readyz", "")
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

// Below the reserve it takes nothing and says so. It stays ready: what there is it
// goes on to hand out, and who is refused learns why.
func TestDiskReserve(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	h.Stop()
	low := start(t, Config{Data: h.data, DiskReserve: 1 << 60, Sets: []string{"demo", "new"}})
	ready, checks := readiness(t, low)
	if memory := checks["memory"]; !ready || memory.OK || memory.Required || !strings.Contains(memory.Reason, "full") {
		t.Errorf("ready is %v, %v", ready, checks)
	}
	if _, body := servertest.Do(t, "GET", low.Ops+"/metrics", ""); !strings.Contains(body, "\nrshub_ready 1\n") || !strings.Contains(body, "\nrshub_dependency_ok{dependency=\"memory\"} 0\n") {
		t.Errorf("the metrics are %s", body)
	}
	for _, set := range []string{"demo", "new"} {
		low.refuses(http.StatusInsufficientStorage, "full", "POST", "/sets/"+set+"/changes", servertest.OneChange, "Content-Type", "application/json", requestIDHeader, "mine-"+set)
	}
	for _, msg := range []string{"request refused", "request"} { // at a level that is seen
		if all := low.log.Lines(t, msg); len(all) != 2 || all[0]["requestId"] != "mine-demo" || all[0]["level"] != "WARN" {
			t.Errorf("%q is logged %v", msg, all)
		}
	}
	if resp, body := servertest.Do(t, "GET", low.URL+"/sets/demo/changes?since=start", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, "https://example.org/a") {
		t.Errorf("the changes are %d %s", resp.StatusCode, body)
	}
	low.wants(http.StatusNoContent, "DELETE", "/sets/demo", "")
}
