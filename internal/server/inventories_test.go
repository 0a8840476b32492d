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

// What a set holds is read at URLs that its documents and links name, and nothing names
// what there is not.
func TestInventories(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	set := h.URL + "/sets/demo"
	get := func(path string, status int) string {
		t.Helper()
		return h.wants(status, "GET", "/sets/demo"+path, "")
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
			t.Errorf("%s is %s", path, body)
		}
	}
	for _, path := range []string{"/changes", "/changes?since=1-1"} { // the second is gone
		if got := linked(path); len(got) != 3 || got[0] != set+"/changes?since=baseline" {
			t.Errorf("%s links to %q", path, got)
		}
	}
	h.refuses(http.StatusNotFound, "incomplete", "GET", "/sets/demo/resourcelist.xml", "")
	h.describes("demo", `{"complete":true}`)
	testutil.Until(t, "there is a Resource List", func() bool {
		resp, _ := servertest.Do(t, "GET", set+"/resourcelist.xml", "")
		return resp.StatusCode == http.StatusOK
	})
	testutil.Until(t, "the baseline is of a complete inventory", func() bool { // readers may share a state that is a moment older
		return strings.Contains(get("/changes?since=baseline", http.StatusOK), `"complete":true`)
	})
	var look struct {
		Cursor   string
		Complete bool
	}
	list := get("/resourcelist.xml", http.StatusOK)
	if h.reads(&look, "/sets/demo/audit"); !look.Complete || !strings.Contains(list, `h:cursor="`+look.Cursor+`"`) || strings.Count(list, "<url>") != 1 {
		t.Errorf("the look is %+v, and the Resource List is %s", look, list)
	}
	if body := get("/capabilitylist.xml", http.StatusOK); !strings.Contains(body, set+"/resourcelist.xml") || !strings.Contains(body, feed.RelAudit) {
		t.Errorf("the Capability List is %s", body)
	}
	h.describes("demo", `{"inventory":"off"}`)
	for _, path := range []string{"/resources", "/audit", "/changes?since=baseline", "/resourcelist.xml"} {
		get(path, http.StatusNotFound)
	}
	for _, path := range []string{"/changes", "/changes?since=start", "/changes?since=1-1"} {
		if got := linked(path); len(got) > 0 {
			t.Errorf("%s links to %q", path, got)
		}
	}
	h.Stop()
	if log := h.log.String(); strings.Contains(log, `"level":"WARN"`) || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log is\n%s", log)
	}
}

// A hub without inventories says so, and names none.
func TestNoInventories(t *testing.T) {
	h := start(t, Config{NoInventory: true})
	h.Publish("demo")
	for _, request := range []string{"GET /resources", "GET /audit", "GET /changes?since=baseline", "GET /resourcelist.xml", "PUT "} {
		method, path, _ := strings.Cut(request, " ")
		h.refuses(http.StatusNotFound, "no-inventory", method, "/sets/demo"+path, map[string]string{"PUT": `{"complete":true}`}[method])
	}
	resp, _ := servertest.Do(t, "GET", h.URL+"/sets/demo/changes", "")
	list := h.wants(200, "GET", "/sets/demo/capabilitylist.xml", "")
	page := h.wants(200, "GET", "/", "")
	if links := feed.ParseLinks(resp.Header.Values("Link")); len(links) != 3 || strings.Contains(list, feed.RelBaseline) || strings.Contains(page, "baseline") {
		t.Errorf("the topic links to %v, the Capability List is %s, and the page %s", links, list, page)
	}
	if _, body := servertest.Do(t, "GET", h.Ops+"/metrics", ""); strings.Contains(body, "rshub_inventory_") {
		t.Error("it measures inventories")
	}
	if ready, checks := readiness(t, h); !ready {
		t.Errorf("it is not ready: %v", checks)
	}
}

// One reader of each kind reads at a time, if so many may.
func TestReadersLimits(t *testing.T) {
	t.Parallel()
	h := start(t, Config{MaxBaselines: 1, MaxAudits: 1})
	const count = 4_000                        // more than what a connection holds that nobody reads
	h.describes("demo", `{"inventory":"off"}`) // so that the first one has all resources
	h.wants(200, "POST", "/sets/demo/changes", changes(count, 1_900), asNDJSON...)
	h.describes("demo", `{"inventory":"on"}`)
	testutil.Until(t, "the inventory is written with all resources", func() bool { // a baseline of fewer is soon over
		return strings.Contains(h.wants(200, "GET", "/sets?details=1", ""), fmt.Sprintf(`"resources":%d`, count))
	})
	for _, test := range []struct {
		path, accept string
		others       []string // that are refused meanwhile
	}{
		{"/changes?since=baseline", "text/event-stream", []string{"GET /changes?since=baseline"}},
		{"/resources", "application/x-ndjson", []string{"GET /resources?limit=1", "GET /audit", "POST /audit"}},
	} {
		ask := func(other string) (*http.Response, string) {
			method, path, _ := strings.Cut(other, " ")
			question := map[string]string{"POST": `{"at":"0-0","by":"position","ranges":[{"count":0,"digest":"00000000000000000000000000000000"}]}`}[method]
			return servertest.Do(t, method, h.URL+"/sets/demo"+path, question)
		}
		stalled, err := smallBuffer(64<<10)(t.Context(), "tcp", strings.TrimPrefix(h.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(stalled, "GET /sets/demo%s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n", test.path, test.accept)
		if answer := testutil.ReadStart(stalled); !strings.HasPrefix(answer, "HTTP/1.1 200 ") { // it reads no more than that
			t.Fatalf("the first reader: %s", answer)
		}
		for _, other := range test.others {
			resp, body := ask(other)
			checkProblem(t, resp, body, http.StatusTooManyRequests, "too-many")
			if resp.Header.Get("Retry-After") != "5" {
				t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
			}
		}
		_ = stalled.Close()
		testutil.Until(t, "the next one may read", func() bool { resp, _ := ask(test.others[0]); return resp.StatusCode == http.StatusOK })
	}
}
