package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/testutil"
)

// A set whose description names a sitemap is filled from it, and is complete then. Publishers to the
// set see the result of the poll; others do not see the URL of the source.
func TestSitemapSource(t *testing.T) {
	t.Parallel()
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sitemap.xml" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
			<url><loc>https://example.org/a</loc><lastmod>2026-01-01</lastmod></url><url><loc>https://example.org/b</loc></url></urlset>`)
	}))
	defer source.Close()
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:demo")
	h := start(t, Config{Callers: known, CallbackAllow: loopback})
	owner, follower := bearer(texts[0]), bearer(texts[1])
	polled := func(set string) (view sets.View) {
		t.Helper()
		testutil.Until(t, "the hub polls the source", func() bool {
			h.getJSON(&view, "/sets/"+set, owner...)
			return view.LastPoll != nil
		})
		return view
	}

	if text := h.describe("demo", `{"source":"`+source.URL+`/sitemap.xml","every":"15m"}`, owner...); !strings.Contains(text, `"every":"15m0s"`) {
		t.Errorf("PUT: got %s, want the interval", text)
	}
	view := polled("demo")
	if l := view.LastPoll; l.Result != "ok" || l.Listed != 2 || l.Created != 2 || l.Next <= l.Time || view.Source != source.URL+"/sitemap.xml" {
		t.Errorf("poll: got %+v, want 2 listed and created\n%s", l, h.log)
	}
	if text := h.wantStatus(200, "GET", "/sets/demo/changes?since=start", "", follower...); strings.Count(text, `"loc"`) != 2 || !strings.Contains(text, `"https://example.org/a"`) {
		t.Errorf("changes = %s, want a and b", text)
	}
	if text := h.wantStatus(200, "GET", "/sets/demo/audit", "", follower...); !strings.Contains(text, `"complete":true`) || !strings.Contains(text, `"count":2`) {
		t.Errorf("audit = %s, want 2 resources, complete", text)
	}
	if text := h.wantStatus(200, "GET", "/sets/demo", "", follower...); strings.Contains(text, "sitemap") || strings.Contains(text, "looked") || strings.Contains(text, "every") {
		t.Errorf("set for a follower = %s, want nothing about the source", text)
	}

	if text := h.describe("lost", `{"source":"`+source.URL+`/nothing.xml"}`, owner...); !strings.Contains(text, `"every":"1h0m0s"`) {
		t.Errorf("PUT: got %s, want the interval", text)
	}
	if l := polled("lost").LastPoll; l.Result != "failed" || !strings.Contains(l.Error, "404") || l.Created != 0 {
		t.Errorf("poll of a missing source: got %+v, want failed with 404", l)
	}
	for path, want := range map[string]string{"/sources": `"set":"lost"`, "/failures": `"kind":"source","set":"lost"`} { // for operators
		if text := h.wantStatus(200, "GET", path, "", owner...); !strings.Contains(text, want) || !strings.Contains(text, "404") {
			t.Errorf("GET %s = %s, want %s and 404", path, text, want)
		}
	}
}

// A change that is published during a poll is not overwritten by the poll, and a deleted set is not
// created again. Package poll tests all other results of polls.
func TestPublishDuringPoll(t *testing.T) {
	t.Parallel()
	h := start(t, Config{CallbackAllow: loopback})
	page := func(path, date string) string {
		return "<url><loc>https://example.org/" + path + "</loc><lastmod>" + date + "</lastmod></url>"
	}
	var pages atomic.Value
	pages.Store(page("a", "2026-01-01") + page("b", "2026-01-01") + page("c", "2026-01-01"))
	meanwhile := make(chan string, 1) // published while the list is read
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case line := <-meanwhile:
			h.wantStatus(200, "POST", "/sets/demo/changes", line, asNDJSON...)
		default:
		}
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`, pages.Load(), `</urlset>`)
	}))
	defer source.Close()
	cursor := "start"
	wantChanges := func(want ...string) { // in order, since the last call
		t.Helper()
		var got []string
		for len(got) < len(want) {
			var batch struct {
				Cursor  string
				Changes []struct{ Loc, Change string }
			}
			h.getJSON(&batch, "/sets/demo/changes?wait=30s&since="+cursor)
			for _, c := range batch.Changes {
				got = append(got, strings.TrimPrefix(c.Loc, "https://example.org/")+" "+c.Change)
			}
			cursor = batch.Cursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("got the changes %q, want %q\n%s", got, want, h.log)
		}
	}
	h.describe("demo", `{"source":"`+source.URL+`/sitemap.xml"}`)
	wantChanges("a created", "b created", "c created")
	pages.Store(page("a", "2026-01-01") + page("b", "2026-03-03") + page("d", "2026-04-04"))
	meanwhile <- `{"loc":"https://example.org/b","change":"updated","lastmod":"2026-03-03"}`
	ping := func(status int) {
		h.wantStatus(status, "POST", "/hub", "hub.mode=publish&hub.url="+h.topic("demo"), asForm...)
	}
	ping(204)
	wantChanges("b updated", "d created", "c deleted")
	h.wantStatus(204, "DELETE", "/sets/demo", "")
	ping(400)
	h.wantStatus(404, "GET", "/sets/demo", "")
}

// A ping makes the hub read the Change List of the set.
func TestPing(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>
			<url><loc>https://example.org/fetched</loc><rs:md change="created" datetime="2026-01-01T00:00:00Z"/></url></urlset>`)
	}))
	defer source.Close()
	h := start(t, Config{CallbackAllow: loopback})
	ping := func(h *testHub, status int) string {
		return h.wantStatus(status, "POST", "/hub", "hub.mode=publish&hub.url="+h.topic("demo"), asForm...)
	}
	if body := ping(h, 400); !strings.Contains(body, "PUT "+h.URL+"/sets/demo with") {
		t.Errorf("ping without a description: got %s, want advice", body)
	}
	h.describe("demo", `{"changelist":"`+source.URL+`/list"}`)
	if body := ping(h, 204); body != "" {
		t.Errorf("ping: got %s, want no body", body)
	}
	body := h.wantStatus(200, "GET", "/sets/demo/changes?since=start&wait=30s", "")
	if strings.Count(body, `"loc"`) != 1 || !strings.Contains(body, `"sourceDatetime":"2026-01-01T00:00:00Z","loc":"https://example.org/fetched"`) {
		t.Errorf("changes = %s, want one with sourceDatetime\n%s", body, h.log)
	}

	none := start(t, Config{NoPoll: true}) // sources are disabled
	if detail := none.wantProblem(400, "invalid", "PUT", "/sets/demo", `{"source":"https://example.org/"}`); !strings.Contains(detail, "RSHUB_POLL=off") {
		t.Errorf("PUT with a source: got %s, want RSHUB_POLL", detail)
	}
	if body := ping(none, 400); !strings.Contains(body, "does not fetch changes") {
		t.Errorf("ping: got %s, want a refusal", body)
	}
}
