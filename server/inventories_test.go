package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
)

// TestInventories reads what a set holds from a hub that keeps inventories, and stops it.
func TestInventories(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	set := h.URL + "/sets/demo"
	get := func(path string, status int) string {
		t.Helper()
		resp, body := running.Do(t, "GET", set+path, "")
		if resp.StatusCode != status {
			t.Fatalf("%s is %d %s, want %d", path, resp.StatusCode, body, status)
		}
		return body
	}
	for _, path := range []string{"/resources", "/audit"} {
		if body := get(path, http.StatusOK); !strings.Contains(body, `"complete":false`) {
			t.Errorf("%s is %s", path, body)
		}
	}
	get("/resourcelist.xml", http.StatusNotFound)
	if resp, body := running.Do(t, "PUT", set, `{"complete":true}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("complete is %d %s", resp.StatusCode, body)
	}
	until.Done(t, "there is a Resource List", func() bool {
		resp, _ := running.Do(t, "GET", set+"/resourcelist.xml", "")
		return resp.StatusCode == http.StatusOK
	})
	if body := get("/changes?since=baseline", http.StatusOK); !strings.Contains(body, `"complete":true`) {
		t.Errorf("the baseline is %s", body)
	}
	if resp, body := running.Do(t, "PUT", set, `{"inventory":"off"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("off is %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/resources", "/audit", "/changes?since=baseline", "/resourcelist.xml"} {
		get(path, http.StatusNotFound)
	}
	for _, path := range []string{"/changes", "/changes?since=start", "/changes?since=1-1"} { // nothing names what there is not
		resp, body := running.Do(t, "GET", set+path, "")
		for _, l := range feed.ParseLinks(resp.Header.Values("Link")) {
			if l.Is(feed.RelBaseline) || l.Is(feed.RelResources) || l.Is(feed.RelAudit) {
				t.Errorf("%s is %d %s with the link %+v", path, resp.StatusCode, body, l)
			}
		}
	}
	h.Stop()
	if log := h.log.String(); strings.Contains(log, `"level":"WARN"`) || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log is\n%s", log)
	}
}

// TestNoInventories asks a hub that keeps none.
func TestNoInventories(t *testing.T) {
	h := start(t, Config{NoInventory: true})
	h.Publish("demo")
	for _, request := range []string{"GET /resources", "GET /audit", "GET /changes?since=baseline", "GET /resourcelist.xml", "PUT "} {
		method, path, _ := strings.Cut(request, " ")
		if resp, body := running.Do(t, method, h.URL+"/sets/demo"+path, map[string]string{"PUT": `{"complete":true}`}[method]); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s is %d %s", request, resp.StatusCode, body)
		}
	}
	if _, body := running.Do(t, "GET", h.Ops+"/metrics", ""); strings.Contains(body, "rshub_inventory_") {
		t.Error("it measures inventories")
	}
	if resp, body := running.Do(t, "GET", fmt.Sprint(h.Ops, "/readyz"), ""); resp.StatusCode != http.StatusOK {
		t.Errorf("readyz is %d %s", resp.StatusCode, body)
	}
}
