package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/redistest"
)

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
			if text, _ := lines[before]["err"].(string); !strings.Contains(text, word) {
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
