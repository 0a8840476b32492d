package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// Each route has the documented content type and methods. TestMatrix checks all other statuses, and
// package documents the types and methods of documents.
func TestRouteMethodsAndTypes(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	for _, test := range []struct {
		method, path, accept string
		status               int
		want                 string // Content-Type, or Allow if the status is 405
	}{
		{"GET", "/", "", 200, "text/html; charset=utf-8"},
		{"POST", "/", "", 405, "GET, HEAD"},
		{"GET", "/hub", "", 200, "text/plain; charset=utf-8"},
		{"DELETE", "/hub", "", 405, "GET, HEAD, POST"},
		{"GET", "/sets", "", 200, "application/json"},
		{"POST", "/sets", "", 405, "GET, HEAD"},
		{"GET", "/sets/demo", "", 200, "application/json"},
		{"POST", "/sets/demo", "", 405, "DELETE, GET, HEAD, PUT"},
		{"GET", "/sets/demo/changes", "", 200, "application/xml"},
		{"GET", "/sets/demo/changes?since=start", "", 200, "application/json"},
		{"GET", "/sets/demo/changes", "application/x-ndjson", 200, "application/x-ndjson"},
		{"PUT", "/sets/demo/changes", "", 405, "GET, HEAD, POST"},
	} {
		resp, body := servertest.Do(t, test.method, h.URL+test.path, "", "Accept", test.accept)
		got := resp.Header.Get("Content-Type")
		if test.status == http.StatusMethodNotAllowed {
			got = resp.Header.Get("Allow")
			checkProblem(t, resp, body, test.status, "method-not-allowed")
		}
		if resp.StatusCode != test.status || got != test.want {
			t.Errorf("%s %s: got %d and %q, want %d and %q: %s", test.method, test.path, resp.StatusCode, got, test.status, test.want, body)
		}
	}
}

// A URL with a slash in the name of the set is refused with the rule for names.
func TestSlashInSetName(t *testing.T) {
	h := start(t, Config{})
	h.Publish("a")
	for _, test := range []struct{ method, path string }{
		{"POST", "/sets/a/b/changes"}, {"GET", "/sets/a/b/changes"}, {"GET", "/sets/a/b/c/changes?since=start"},
		{"POST", "/sets/a%2Fb/changes"}, {"GET", "/sets/a%2Fb/changes"}, {"GET", "/sets/a%2fb/changes?since=start"},
		{"GET", "/sets/a%2Fb/changelist.xml"}, {"GET", "/sets/a%2Fb"}, {"PUT", "/sets/a%2Fb"}, {"DELETE", "/sets/a%2Fb"},
		{"GET", "/sets/%2e%2e%2fa/changes"}, {"GET", "/sets/A/b/changes"},
	} {
		if detail := h.wantProblem(400, "invalid", test.method, test.path, aPage, asJSON...); !strings.Contains(detail, "want 1 to 63 of a-z") {
			t.Errorf("%s %s: got %q, want the rule", test.method, test.path, detail)
		}
	}
	body := h.wantStatus(200, "GET", "/sets", "")
	if n := strings.Count(body, `"topic"`); n != 1 {
		t.Errorf("got %d sets, want 1: %s", n, body)
	}
}

func TestDescribeAndDeleteSet(t *testing.T) {
	h := start(t, Config{})
	const description = `{"title":"A <demo>","describedby":"https://example.org/about","changelist":"https://example.org/changelist.xml?a=1"}`
	var v sets.View
	body := h.describe("demo", description)
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.Title != "A <demo>" || v.DescribedBy != "https://example.org/about" || v.ChangeList != "https://example.org/changelist.xml?a=1" || v.Topic != h.URL+"/sets/demo/changes" || v.Changes != 0 || v.Updated != "" {
		t.Errorf("PUT: got %+v, want the description", v)
	}
	h.Publish("demo")
	var after sets.View
	if h.getJSON(&after, "/sets/demo"); after.Changes != 1 || after.Updated == "" || after.Title != v.Title {
		t.Errorf("GET after a publish: got %+v, want one change and the title", after)
	}
	for _, test := range []struct{ body, want string }{
		{`{"title":"a\nb"}`, "one line"},
		{`{"titel":"a"}`, `unknown member "titel"; did you mean "title"?`},
		{`{"url":"a"}`, `invalid body: unknown member "url"; want {"title"`},
		{`{"changelist":"http://127.0.0.1:9000/list"}`, "the changelist's address 127.0.0.1 is not allowed"},
		{`{"source":"http://10.1.2.3/sitemap.xml"}`, "the source's address 10.1.2.3 is not allowed"},
		{`{"changelist":"` + h.URL + `/sets/other/changelist.xml"}`, "the changelist is on this hub"},
		{`{"private":true}`, "RSHUB_TOKENS_FILE"}, // requires tokens
	} {
		if detail := h.wantProblem(400, "invalid", "PUT", "/sets/demo", test.body); !strings.Contains(detail, test.want) {
			t.Errorf("PUT %.40q: got %q, want a part %q", test.body, detail, test.want)
		}
	}
	h.wantProblem(413, "too-large", "PUT", "/sets/demo", `{"title":"`+strings.Repeat("x", 20_000)+`"}`)
	h.wantStatus(http.StatusNoContent, "DELETE", "/sets/demo", "")
	h.wantProblem(http.StatusNotFound, "no-such-set", "GET", "/sets/demo", "")
}

// The URLs of the Change List and of CloudEvents may be secret: only callers who may publish to the
// set see them.
func TestSourceURLsAreForPublishers(t *testing.T) {
	known, texts := tokens(t, "publish:demo,follow:demo", "follow:demo,publish:other", "follow:demo,operate", "anyone - follow:demo")
	h := start(t, Config{Callers: known})
	const list = "https://example.org/secret/changelist.xml"
	if body := h.describe("demo", `{"changelist":"`+list+`","cloudevents":{"loc":"https://example.org/secret/{subject}"}}`, bearer(texts[0])...); !strings.Contains(body, list) || !strings.Contains(body, "secret/{subject}") {
		t.Fatalf("PUT: got %s, want the Change List and the CloudEvents template", body)
	}
	for who, want := range []bool{true, false, true, false} {
		for _, path := range []string{"/sets/demo", "/sets", "/", "/sets/demo/capabilitylist.xml", "/.well-known/resourcesync"} {
			body := h.wantStatus(200, "GET", path, "", bearer(texts[who])...)
			if !strings.Contains(body, "demo") {
				t.Errorf("caller %d: GET %s = %s, want the set", who, path, body)
			}
			if got := strings.Contains(body, "secret"); got != (want && strings.HasPrefix(path, "/sets") && !strings.HasSuffix(path, ".xml")) {
				t.Errorf("caller %d sees the URL of the list at %s: got %t, want %t", who, path, got, !got)
			}
		}
	}
}

func TestConfiguredSets(t *testing.T) {
	h := start(t, Config{Sets: []string{"demo"}})
	h.Publish("demo")
	h.wantProblem(http.StatusNotFound, "no-such-set", "POST", "/sets/other/changes", aPage, asJSON...)
	h.wantProblem(http.StatusNotFound, "no-such-set", "GET", "/sets/other/changes?since=now", "")
}

// A misspelled parameter is refused with a suggestion, whether the set exists or not.
func TestUnknownParameters(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	for _, test := range []struct{ path, want string }{
		{"/sets/demo/changes?sicne=start", `unknown parameter "sicne"; did you mean "since"?`},
		{"/sets/none/changes?sicne=start", `unknown parameter "sicne"; did you mean "since"?`},
		{"/sets/demo/changes?since=start&cursor=1", `unknown parameter "cursor", want since, limit, wait, prefix, change, type`},
		{"/sets/demo/resources?prefx=a", `did you mean "prefix"?`},
		{"/sets/demo/changelist.xml?form=2026-01-01", `did you mean "from"?`},
		{"/sets?limits=1", `did you mean "limit"?`},
		{"/sets/demo/ticket?limit=1", `want none`},
	} {
		if detail := h.wantProblem(400, "invalid", "GET", test.path, ""); !strings.Contains(detail, test.want) {
			t.Errorf("GET %s: got %q, want a part %q", test.path, detail, test.want)
		}
	}
	for _, path := range []string{"/?x=1", "/sets/demo/changes?since=start&ticket=x", "/.well-known/resourcesync?x=1"} {
		h.wantStatus(200, "GET", path, "")
	}
}

// Errors of forms are one line of text. A body that is neither a form nor changes gets an error that
// describes both.
func TestFormErrors(t *testing.T) {
	t.Parallel()
	known, texts := tokens(t, "follow:*,publish:*")
	const form = "application/x-www-form-urlencoded"
	open, guarded := start(t, Config{}), start(t, Config{Callers: known})
	for _, test := range []struct {
		h       *testHub
		path    string
		headers []string
		status  int
		text    bool // whether the error is text rather than a problem document
		want    string
	}{
		{open, "/hub", []string{"Content-Type", form}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", form + "; charset"}, 400, true, "hub.mode"},
		{open, "/subscribe", []string{"Content-Type", form + "; charset=utf-8"}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, true, form},
		{open, "/subscribe", []string{"Content-Type", "text/plain"}, 415, true, "application/x-ndjson, application/ndjson, application/jsonl, application/cloudevents+json, application/cloudevents-batch+json, or with the header Ce-Specversion with Link headers"},
		{open, "/hub", nil, 415, true, form},
		{open, "/hub", []string{"Content-Type", "application/json"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", "text/plain", "Link", "<x>"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", form, "Origin", "https://evil.example"}, 403, true, "evil.example"},
		{open, "/hub", []string{"Content-Type", form, "Host", "evil.example"}, 421, true, "evil.example"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, true, "token"},
		{guarded, "/hub", []string{"Content-Type", "application/xml", "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/sets/demo/changes", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer " + texts[0]}, 400, true, "hub.mode"},
	} {
		resp, body := servertest.Do(t, "POST", test.h.URL+test.path, "", test.headers...)
		contentType := "application/problem+json"
		if test.text {
			contentType = "text/plain; charset=utf-8"
		}
		if resp.StatusCode != test.status || resp.Header.Get("Content-Type") != contentType || !strings.Contains(body, test.want) || strings.Count(body, "\n") != 1 {
			t.Errorf("POST %s with %q: got %d %s: %s, want %d %s with a part %q", test.path, test.headers, resp.StatusCode, resp.Header.Get("Content-Type"), body, test.status, contentType, test.want)
		}
		if got := resp.Header.Get("WWW-Authenticate") != ""; got != (test.status == http.StatusUnauthorized) {
			t.Errorf("POST %s with %q: got WWW-Authenticate %t, want %t", test.path, test.headers, got, !got)
		}
	}
}
