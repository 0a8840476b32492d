package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
	"github.com/rshub/rshub/inventory"
)

// A damaged block is served to nobody, in no form. The log names it, and what is whole
// is served.
func TestDamagedMemory(t *testing.T) {
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
		resp, body := servertest.Do(t, "GET", h.URL+test.path, "", "Accept", test.accept)
		checkProblem(t, resp, body, http.StatusInternalServerError, "internal")
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
	resp, body := servertest.Do(t, "GET", h.URL+"/sets/demo/changes?since=start", "", "Accept", "text/event-stream")
	if !strings.Contains(body, "event: error\ndata: ") || strings.Contains(body, "example.org") {
		t.Errorf("an event stream is %d %s", resp.StatusCode, body)
	}
	lines := h.log.Lines(t, "follow failed")
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["err"]), "position 3") {
		t.Errorf("about the stream the log says %v", lines)
	}
	for _, path := range []string{"/sets/demo/changes?since=start&limit=2", "/sets/demo/changes", "/sets/other/changes?since=start", "/sets/other/changelist.xml"} {
		resp, body := servertest.Do(t, "GET", h.URL+path, "")
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "https://example.org/a") {
			t.Errorf("%s is %d %s", path, resp.StatusCode, body)
		}
	}
}

// Whoever reads a damaged inventory gets to know which page it is, whatever is read, and
// the hub makes the inventory anew.
func TestDamagedInventory(t *testing.T) {
	t.Parallel()
	const count = 1_000
	var changes []string
	for i := range count {
		changes = append(changes, fmt.Sprintf(`{"loc":"https://example.org/%06d","change":"updated"}`, i))
	}
	for _, request := range []string{
		"GET /resources?after=https://example.org/000300 ",
		`POST /audit {"at":"%s","by":"position","ranges":[{"count":0,"digest":"00000000000000000000000000000000"}]}`,
		"GET /changes?since=baseline&prefix=https://example.org/0005 ",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			h := start(t, Config{})
			if resp, body := servertest.Do(t, "POST", h.URL+"/sets/set/changes", `{"changes":[`+strings.Join(changes, ",")+`]}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
				t.Fatalf("publish is %d %s", resp.StatusCode, body)
			}
			untiltest.Done(t, "the inventory is written", func() bool {
				_, body := servertest.Do(t, "GET", h.URL+"/sets?details=1", "")
				return strings.Contains(body, fmt.Sprintf(`"resources":%d`, count))
			})
			h.Stop()
			at, gone := h.losePages(t)

			h = start(t, Config{Data: h.data})
			method, path, _ := strings.Cut(request, " ")
			path, question, _ := strings.Cut(path, " ")
			if question != "" {
				question = fmt.Sprintf(question, at)
			}
			ask := func() (*http.Response, string) { return servertest.Do(t, method, h.URL+"/sets/set"+path, question) }
			names := func(text string) bool {
				return slices.ContainsFunc(gone, func(n uint64) bool { return strings.Contains(text, fmt.Sprintf("page %d of ", n)) })
			}
			resp, body := ask()
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !names(body) {
				t.Errorf("the answer is %d %s, want 503 that names a page of %v", resp.StatusCode, body, gone)
			}
			untiltest.Done(t, "the inventory is made anew", func() bool {
				resp, body = ask()
				return resp.StatusCode == http.StatusOK
			})
			if lines := h.log.Lines(t, "a damaged inventory is made anew from the log"); len(lines) != 1 || !names(fmt.Sprint(lines[0]["err"])) {
				t.Errorf("the log says %v", lines)
			}
		})
	}
}

// losePages removes all pages of the inventory of set, but the top, from the data of a hub
// that has ended. It returns at which cursor the inventory is, and the pages.
func (h *started) losePages(t *testing.T) (at feed.Cursor, gone []uint64) {
	t.Helper()
	memory, err := disklog.Open(filepath.Join(h.data, storeDir), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	store := memory.Inventories()
	_, head, err := inventory.New(store, "set", inventory.Options{}).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root := head.Newest()
	for n, err := range store.Numbers(t.Context(), "set", root.Begin) {
		if err != nil {
			t.Fatal(err)
		}
		if n != root.Page {
			gone = append(gone, n)
		}
	}
	if err := store.Remove(t.Context(), "set", root.Begin, gone); err != nil || len(gone) == 0 {
		t.Fatalf("%d pages are removed, %v", len(gone), err)
	}
	return root.Cursor, gone
}
