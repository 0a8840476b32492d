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
	if body := low.wants(200, "GET", "/sets/demo/changes?since=start", ""); !strings.Contains(body, "https://example.org/a") {
		t.Errorf("the changes are %s", body)
	}
	low.wants(http.StatusNoContent, "DELETE", "/sets/demo", "")
}

// A damaged block is served to nobody, in no form. The log names it, and what is whole
// is served.
func TestDamagedMemory(t *testing.T) {
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
		t.Fatalf("the block is %q", whole)
	}

	h = start(t, c) // which has nothing in its window
	for _, test := range []struct{ path, accept string }{
		{"/sets/demo/changes?since=start", "application/json"},
		{"/sets/demo/changes?since=start", "application/x-ndjson"},
		{"/sets/demo/changelist.xml", ""},
	} {
		before := len(h.log.Lines(t, "request failed"))
		h.refuses(http.StatusInternalServerError, "internal", "GET", test.path, "", "Accept", test.accept)
		lines := h.log.Lines(t, "request failed")
		if len(lines) != before+1 {
			t.Fatalf("%s: the log has %d lines more", test.path, len(lines)-before)
		}
		for _, word := range []string{"damaged", `"demo"`, "position 3"} {
			if text, _ := lines[before]["err"].(string); !strings.Contains(text, word) || !strings.HasPrefix(test.path, lines[before]["path"].(string)) {
				t.Errorf("%s: the log does not name %s: %v", test.path, word, lines[before])
			}
		}
	}
	if body := h.wants(200, "GET", "/sets/demo/changes?since=start", "", "Accept", "text/event-stream"); !strings.Contains(body, "event: error\ndata: ") || strings.Contains(body, "example.org") {
		t.Errorf("an event stream is %s", body)
	}
	lines := h.log.Lines(t, "follow failed")
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["err"]), "position 3") {
		t.Errorf("about the stream the log says %v", lines)
	}
	for _, path := range []string{"/sets/demo/changes?since=start&limit=2", "/sets/demo/changes", "/sets/other/changes?since=start", "/sets/other/changelist.xml"} {
		if body := h.wants(200, "GET", path, ""); !strings.Contains(body, "https://example.org/a") {
			t.Errorf("%s is %s", path, body)
		}
	}
}
