package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// TestInventories reads what a set holds from a hub that keeps inventories, and stops it.
func TestInventories(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	set := h.URL + "/sets/demo"
	get := func(path string, status int) string {
		t.Helper()
		resp, body := servertest.Do(t, "GET", set+path, "")
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
	if resp, body := servertest.Do(t, "PUT", set, `{"complete":true}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("complete is %d %s", resp.StatusCode, body)
	}
	untiltest.Done(t, "there is a Resource List", func() bool {
		resp, _ := servertest.Do(t, "GET", set+"/resourcelist.xml", "")
		return resp.StatusCode == http.StatusOK
	})
	untiltest.Done(t, "the baseline is of a complete inventory", func() bool { // readers may share a state that is a moment older
		return strings.Contains(get("/changes?since=baseline", http.StatusOK), `"complete":true`)
	})
	if resp, body := servertest.Do(t, "PUT", set, `{"inventory":"off"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("off is %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/resources", "/audit", "/changes?since=baseline", "/resourcelist.xml"} {
		get(path, http.StatusNotFound)
	}
	for _, path := range []string{"/changes", "/changes?since=start", "/changes?since=1-1"} { // nothing names what there is not
		resp, body := servertest.Do(t, "GET", set+path, "")
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
		if resp, body := servertest.Do(t, method, h.URL+"/sets/demo"+path, map[string]string{"PUT": `{"complete":true}`}[method]); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s is %d %s", request, resp.StatusCode, body)
		}
	}
	if _, body := servertest.Do(t, "GET", h.Ops+"/metrics", ""); strings.Contains(body, "rshub_inventory_") {
		t.Error("it measures inventories")
	}
	if resp, body := servertest.Do(t, "GET", fmt.Sprint(h.Ops, "/readyz"), ""); resp.StatusCode != http.StatusOK {
		t.Errorf("readyz is %d %s", resp.StatusCode, body)
	}
}

// TestReadersLimits reads from a hub that lets one reader of each kind read at a time.
func TestReadersLimits(t *testing.T) {
	t.Parallel()
	h := start(t, Config{MaxBaselines: 1, MaxAudits: 1})
	set, long := h.URL+"/sets/demo", strings.Repeat("x", 1_900)
	for from := 0; from < 8_000; from += 1_000 { // more than what connections hold that nobody reads
		var changes []string
		for i := range 1_000 {
			changes = append(changes, fmt.Sprintf(`{"loc":"https://example.org/%s/%06d","change":"created"}`, long, from+i))
		}
		if resp, body := servertest.Do(t, "POST", set+"/changes", `{"changes":[`+strings.Join(changes, ",")+`]}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
			t.Fatalf("publish is %d %s", resp.StatusCode, body)
		}
	}
	untiltest.Done(t, "the inventory is written with all resources", func() bool { // a baseline of fewer is soon over
		_, body := servertest.Do(t, "GET", h.URL+"/sets?details=1", "")
		return strings.Contains(body, `"resources":8000`)
	})
	for _, test := range []struct {
		path, accept string
		others       []string // that are refused meanwhile
	}{
		{"/changes?since=baseline", "text/event-stream", []string{"/changes?since=baseline"}},
		{"/resources", "application/x-ndjson", []string{"/resources?limit=1", "/audit", "POST /audit"}},
	} {
		t.Run(test.path, func(t *testing.T) {
			status := func(other string) int {
				method, path, ok := strings.Cut(other, " ")
				if !ok {
					method, path = "GET", other
				}
				at := ""
				if method == "POST" {
					at = `{"at":"0-0","by":"position","ranges":[{"count":0,"digest":"00000000000000000000000000000000"}]}`
				}
				resp, body := servertest.Do(t, method, set+path, at)
				if resp.StatusCode == http.StatusTooManyRequests {
					checkProblem(t, resp, body, http.StatusTooManyRequests, "too-many")
					if resp.Header.Get("Retry-After") != "5" {
						t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
					}
				}
				return resp.StatusCode
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "GET", set+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", test.accept)
			resp, err := http.DefaultClient.Do(r) // which reads no more than the beginning
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("the first reader: %v, %v", resp, err)
			}
			defer resp.Body.Close()
			for _, other := range test.others {
				if got := status(other); got != http.StatusTooManyRequests {
					t.Errorf("%s is %d while another one reads", other, got)
				}
			}
			cancel()
			untiltest.Done(t, "the next one may read", func() bool { return status(test.others[0]) == http.StatusOK })
		})
	}
}
