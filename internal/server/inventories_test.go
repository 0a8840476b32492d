package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// Documents and links name the URLs of the inventory of a set, and only if it has one.
func TestInventories(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	set := h.URL + "/sets/demo"
	get := func(path string, status int) string {
		t.Helper()
		return h.wantStatus(status, "GET", "/sets/demo"+path, "")
	}
	linked := func(path string) (all []string) {
		resp, _ := servertest.Do(t, "GET", set+path, "")
		for _, l := range feed.ParseLinks(resp.Header.Values("Link")) {
			if l.HasRel(feed.RelBaseline) || l.HasRel(feed.RelResources) || l.HasRel(feed.RelAudit) {
				all = append(all, l.URI)
			}
		}
		return all
	}
	for _, path := range []string{"/resources", "/audit", "/changes?since=baseline"} {
		if body := get(path, http.StatusOK); !strings.Contains(body, `"complete":false`) {
			t.Errorf("GET %s = %s, want complete false", path, body)
		}
	}
	for _, path := range []string{"/changes", "/changes?since=1-1"} { // the second has status 410
		if got := linked(path); len(got) != 3 || got[0] != set+"/changes?since=baseline" {
			t.Errorf("links of %s = %q, want 3", path, got)
		}
	}
	h.wantProblem(http.StatusNotFound, "incomplete", "GET", "/sets/demo/resourcelist.xml", "")
	h.describe("demo", `{"complete":true}`)
	testutil.Until(t, "the Resource List exists", func() bool {
		resp, _ := servertest.Do(t, "GET", set+"/resourcelist.xml", "")
		return resp.StatusCode == http.StatusOK
	})
	testutil.Until(t, "the baseline is complete", func() bool { // readers may share a slightly older snapshot
		return strings.Contains(get("/changes?since=baseline", http.StatusOK), `"complete":true`)
	})
	var audit struct {
		Cursor   string
		Complete bool
	}
	list := get("/resourcelist.xml", http.StatusOK)
	if h.getJSON(&audit, "/sets/demo/audit"); !audit.Complete || !strings.Contains(list, `h:cursor="`+audit.Cursor+`"`) || strings.Count(list, "<url>") != 1 {
		t.Errorf("audit = %+v, Resource List = %s, want the same cursor and one URL", audit, list)
	}
	if body := get("/capabilitylist.xml", http.StatusOK); !strings.Contains(body, set+"/resourcelist.xml") || !strings.Contains(body, feed.RelAudit) {
		t.Errorf("Capability List = %s, want the Resource List and the audit", body)
	}
	h.describe("demo", `{"inventory":"off"}`)
	for _, path := range []string{"/resources", "/audit", "/changes?since=baseline", "/resourcelist.xml"} {
		get(path, http.StatusNotFound)
	}
	for _, path := range []string{"/changes", "/changes?since=start", "/changes?since=1-1"} {
		if got := linked(path); len(got) > 0 {
			t.Errorf("links of %s = %q, want none", path, got)
		}
	}
	h.Stop()
	if log := h.log.String(); strings.Contains(log, `"level":"WARN"`) || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("got the log\n%s\nwant no warnings", log)
	}
}

// With inventories disabled, requests for one get a problem that says so, and no document names one.
func TestInventoriesDisabled(t *testing.T) {
	h := start(t, Config{NoInventory: true})
	h.Publish("demo")
	for _, request := range []string{"GET /resources", "GET /audit", "GET /changes?since=baseline", "GET /resourcelist.xml", "PUT "} {
		method, path, _ := strings.Cut(request, " ")
		h.wantProblem(http.StatusNotFound, "no-inventory", method, "/sets/demo"+path, map[string]string{"PUT": `{"complete":true}`}[method])
	}
	resp, _ := servertest.Do(t, "GET", h.URL+"/sets/demo/changes", "")
	list := h.wantStatus(200, "GET", "/sets/demo/capabilitylist.xml", "")
	page := h.wantStatus(200, "GET", "/", "")
	if links := feed.ParseLinks(resp.Header.Values("Link")); len(links) != 3 || strings.Contains(list, feed.RelBaseline) || strings.Contains(page, "baseline") {
		t.Errorf("links = %v, Capability List = %s, page = %s, want no inventory", links, list, page)
	}
	if _, body := servertest.Do(t, "GET", h.Ops+"/metrics", ""); strings.Contains(body, "rshub_inventory_") {
		t.Error("got metrics of inventories, want none")
	}
	if ready, checks := readiness(t, h); !ready {
		t.Errorf("readyz: got not ready, %v, want ready", checks)
	}
}

// MaxBaselines and MaxAudits limit the readers of each kind.
func TestReaderLimits(t *testing.T) {
	t.Parallel()
	h := start(t, Config{MaxBaselines: 1, MaxAudits: 1})
	const count = 4_000                       // more than the buffers of a connection hold
	h.describe("demo", `{"inventory":"off"}`) // so that the first inventory has all resources
	h.wantStatus(200, "POST", "/sets/demo/changes", changes(count, 1_900), asNDJSON...)
	h.describe("demo", `{"inventory":"on"}`)
	testutil.Until(t, "the inventory has all resources", func() bool { // a smaller baseline ends too soon
		return strings.Contains(h.wantStatus(200, "GET", "/sets?details=1", ""), fmt.Sprintf(`"resources":%d`, count))
	})
	for _, test := range []struct {
		path, accept string
		others       []string // requests that are refused in the meantime
	}{
		{"/changes?since=baseline", "text/event-stream", []string{"GET /changes?since=baseline"}},
		{"/resources", "application/x-ndjson", []string{"GET /resources?limit=1", "GET /audit", "POST /audit"}},
	} {
		ask := func(other string) (*http.Response, string) {
			method, path, _ := strings.Cut(other, " ")
			body := map[string]string{"POST": `{"at":"0-0","by":"position","ranges":[{"count":0,"digest":"00000000000000000000000000000000"}]}`}[method]
			return servertest.Do(t, method, h.URL+"/sets/demo"+path, body)
		}
		stalled, err := smallBuffer(64<<10)(t.Context(), "tcp", strings.TrimPrefix(h.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(stalled, "GET /sets/demo%s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n", test.path, test.accept)
		if answer := testutil.ReadStart(stalled); !strings.HasPrefix(answer, "HTTP/1.1 200 ") { // and reads no more
			t.Fatalf("first reader: got %s, want 200", answer)
		}
		for _, other := range test.others {
			resp, body := ask(other)
			checkProblem(t, resp, body, http.StatusTooManyRequests, "too-many")
			if resp.Header.Get("Retry-After") != "5" {
				t.Errorf("Retry-After = %q, want 5", resp.Header.Get("Retry-After"))
			}
		}
		_ = stalled.Close()
		testutil.Until(t, "the next reader is admitted", func() bool { resp, _ := ask(test.others[0]); return resp.StatusCode == http.StatusOK })
	}
}
