package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// readiness returns the result of /readyz.
func readiness(t *testing.T, h *testHub) (ready bool, checks map[string]dependency) {
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
		t.Errorf("readyz: got %d %s, want a status that matches", resp.StatusCode, body)
	}
	return answer.Ready, answer.Checks
}

// With less free space than the reserve, the hub refuses changes with a reason. It stays ready,
// because it still serves the stored changes.
func TestDiskReserve(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	h.Stop()
	low := start(t, Config{Data: h.data, DiskReserve: 1 << 60, Sets: []string{"demo", "new"}})
	ready, checks := readiness(t, low)
	if memory := checks["memory"]; !ready || memory.OK || memory.Required || !strings.Contains(memory.Reason, "full") {
		t.Errorf("readyz: got %v, %v, want ready with a full memory", ready, checks)
	}
	if _, body := servertest.Do(t, "GET", low.Ops+"/metrics", ""); !strings.Contains(body, "\nrshub_ready 1\n") || !strings.Contains(body, "\nrshub_dependency_ok{dependency=\"memory\"} 0\n") {
		t.Errorf("metrics = %s, want ready and the memory not OK", body)
	}
	for _, set := range []string{"demo", "new"} {
		low.wantProblem(http.StatusInsufficientStorage, "full", "POST", "/sets/"+set+"/changes", servertest.OneChange, "Content-Type", "application/json", requestIDHeader, "mine-"+set)
	}
	for _, msg := range []string{"request refused", "request"} { // at WARN, which is logged by default
		if all := low.log.Lines(t, msg); len(all) != 2 || all[0]["requestId"] != "mine-demo" || all[0]["level"] != "WARN" {
			t.Errorf("log lines %q = %v, want 2 warnings", msg, all)
		}
	}
	if body := low.wantStatus(200, "GET", "/sets/demo/changes?since=start", ""); !strings.Contains(body, "https://example.org/a") {
		t.Errorf("changes = %s, want the stored one", body)
	}
	low.wantStatus(http.StatusNoContent, "DELETE", "/sets/demo", "")
}

// A damaged block is not served in any format. The log names it, and intact blocks are served.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	c := Config{RedisURL: "redis://" + redis.Addr, BaseURL: "http://127.0.0.1:1"}
	h := start(t, c)
	for range 6 {
		h.Publish("demo")
	}
	h.Publish("other")
	h.Stop()
	client := redis.Client()
	defer client.Close()
	const key, field = "rshub:{demo}:live", "3"
	whole := client.HGet(t.Context(), key, field).Val()
	damaged := []byte(whole)
	damaged[len(damaged)-10] ^= 4
	if whole == "" || client.HSet(t.Context(), key, field, damaged).Err() != nil {
		t.Fatalf("block = %q, want one to damage", whole)
	}

	h = start(t, c) // with an empty window
	for _, test := range []struct{ path, accept string }{
		{"/sets/demo/changes?since=start", "application/json"},
		{"/sets/demo/changes?since=start", "application/x-ndjson"},
		{"/sets/demo/changelist.xml", ""},
	} {
		before := len(h.log.Lines(t, "request failed"))
		h.wantProblem(http.StatusInternalServerError, "internal", "GET", test.path, "", "Accept", test.accept)
		lines := h.log.Lines(t, "request failed")
		if len(lines) != before+1 {
			t.Fatalf("GET %s: got %d more log lines, want 1", test.path, len(lines)-before)
		}
		for _, word := range []string{"damaged", `"demo"`, "position 3"} {
			if text, _ := lines[before]["err"].(string); !strings.Contains(text, word) || !strings.HasPrefix(test.path, lines[before]["path"].(string)) {
				t.Errorf("GET %s: log line = %v, want the path and %s", test.path, lines[before], word)
			}
		}
	}
	if body := h.wantStatus(200, "GET", "/sets/demo/changes?since=start", "", "Accept", "text/event-stream"); !strings.Contains(body, "event: error\ndata: ") || strings.Contains(body, "example.org") {
		t.Errorf("event stream = %s, want an error event and no changes", body)
	}
	lines := h.log.Lines(t, "follow failed")
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["err"]), "position 3") {
		t.Errorf("log lines of the stream = %v, want one with position 3", lines)
	}
	for _, path := range []string{"/sets/demo/changes?since=start&limit=2", "/sets/demo/changes", "/sets/other/changes?since=start", "/sets/other/changelist.xml"} {
		if body := h.wantStatus(200, "GET", path, ""); !strings.Contains(body, "https://example.org/a") {
			t.Errorf("GET %s = %s, want intact changes", path, body)
		}
	}
}
