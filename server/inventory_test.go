package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// What a set holds is read at URLs that its documents and links name.
func TestInventory(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	get := func(path string, headers ...string) (*http.Response, string) {
		return servertest.Do(t, "GET", h.URL+path, "", headers...)
	}
	for _, test := range []struct {
		method, path string
		accept       string
		status       int
		want         string // type of the content, or of the problem
		says         string
	}{
		{"GET", "/sets/demo/resources", "", 200, "application/json", `"complete":false,"count":1,`},
		{"GET", "/sets/demo/resources", "application/x-ndjson", 200, "application/x-ndjson", `"complete":false,"count":1,`},
		{"POST", "/sets/demo/resources", "", 405, "method-not-allowed", ""},
		{"GET", "/sets/other/resources", "", 404, "no-such-set", ""},
		{"GET", "/sets/Demo/resources", "", 400, "invalid", ""},
		{"GET", "/sets/demo/audit", "", 200, "application/json", `"count":1,`},
		{"POST", "/sets/demo/audit", "", 400, "invalid", ""},
		{"PUT", "/sets/demo/audit", "", 405, "method-not-allowed", ""},
		{"GET", "/sets/demo/changes?since=baseline", "", 200, "application/json", `"baseline":true,`},
		{"GET", "/sets/demo/changes?since=baseline", "application/x-ndjson", 200, "application/x-ndjson", `"position":1,`},
		{"GET", "/sets/demo/changes?since=baseline&change=created", "", 400, "invalid", ""},
		{"GET", "/sets/demo/changes?since=1-1", "", 410, "gone", "since=baseline"},
		{"GET", "/sets/demo/resourcelist.xml", "", 404, "incomplete", "complete"},
		{"GET", "/sets/demo/resourcelist-1-1-1.xml", "", 404, "incomplete", "complete"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			headers := []string{}
			if test.accept != "" {
				headers = []string{"Accept", test.accept}
			}
			resp, body := servertest.Do(t, test.method, h.URL+test.path, "", headers...)
			if test.status != 200 {
				checkProblem(t, resp, body, test.status, test.want)
			} else if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != test.want {
				t.Errorf("the answer is %d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
			}
			if !strings.Contains(body, test.says) {
				t.Errorf("it does not say %s: %s", test.says, body)
			}
			links := feed.ParseLinks(resp.Header.Values("Link"))
			if test.status == 410 && (len(links) != 3 || !links[0].Is(feed.RelBaseline)) {
				t.Errorf("what is gone links to %v", links)
			}
		})
	}

	resp, _ := get("/sets/demo/changes")
	var baseline string
	for _, l := range feed.ParseLinks(resp.Header.Values("Link")) {
		if l.Is(feed.RelBaseline) {
			baseline = l.URI
		}
	}
	if baseline != h.URL+"/sets/demo/changes?since=baseline" || len(feed.ParseLinks(resp.Header.Values("Link"))) != 5 {
		t.Errorf("the topic links to %v", resp.Header.Values("Link"))
	}

	if resp, body := servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"complete":true}`, "Content-Type", "application/json"); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	untiltest.Done(t, "there is a Resource List", func() bool {
		resp, _ := get("/sets/demo/resourcelist.xml")
		return resp.StatusCode == 200
	})
	_, list := get("/sets/demo/resourcelist.xml")
	_, look := get("/sets/demo/audit")
	var l struct {
		Cursor   string
		Complete bool
	}
	if err := json.Unmarshal([]byte(look), &l); err != nil || !l.Complete || !strings.Contains(list, `h:cursor="`+l.Cursor+`"`) || strings.Count(list, "<url>") != 1 {
		t.Errorf("the look is %s, %v, and the Resource List is %s", look, err, list)
	}
	if _, body := get("/sets/demo/capabilitylist.xml"); !strings.Contains(body, h.URL+"/sets/demo/resourcelist.xml") || !strings.Contains(body, feed.RelAudit) {
		t.Errorf("the Capability List is %s", body)
	}
}

// Whoever may follow a set may read what it holds, and nobody else may.
func TestInventoryRights(t *testing.T) {
	known, texts := tokens(t, "publish:demo", "follow:demo", "follow:other")
	h := start(t, Config{Callers: known})
	if resp, body := servertest.Do(t, "POST", h.URL+"/sets/demo/changes", servertest.OneChange, "Content-Type", "application/json", "Authorization", "Bearer "+texts[0]); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"resources", "audit", "changes?since=baseline"} {
		for i, want := range []int{403, 200, 403} {
			if resp, body := servertest.Do(t, "GET", h.URL+"/sets/demo/"+path, "", "Authorization", "Bearer "+texts[i]); resp.StatusCode != want {
				t.Errorf("%s with the token %d: %d %s", path, i, resp.StatusCode, body)
			}
		}
	}
	if resp, _ := servertest.Do(t, "POST", h.URL+"/sets/demo/audit", "{}", "Authorization", "Bearer "+texts[0]); resp.StatusCode != 403 {
		t.Errorf("a question of a publisher is %d", resp.StatusCode)
	}
}

// A hub without inventories says so, and links to none.
func TestNoInventory(t *testing.T) {
	h := start(t, Config{NoInventory: true})
	h.Publish("demo")
	for _, path := range []string{"resources", "audit", "changes?since=baseline", "resourcelist.xml"} {
		resp, body := servertest.Do(t, "GET", h.URL+"/sets/demo/"+path, "")
		checkProblem(t, resp, body, 404, "no-inventory")
	}
	resp, _ := servertest.Do(t, "GET", h.URL+"/sets/demo/changes", "")
	if links := feed.ParseLinks(resp.Header.Values("Link")); len(links) != 2 {
		t.Errorf("the topic links to %v", links)
	}
	if _, body := servertest.Do(t, "GET", h.URL+"/sets/demo/capabilitylist.xml", ""); strings.Contains(body, feed.RelBaseline) {
		t.Errorf("the Capability List is %s", body)
	}
}
