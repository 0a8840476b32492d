package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/servertest"
)

// A set that is described with a source is filled from a sitemap, and then known whole.
// Who may publish to it sees what came of the look; nobody else sees where the source is.
func TestSource(t *testing.T) {
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
	do := func(who int, method, path, body string) (int, string) {
		resp, text := servertest.Do(t, method, h.URL+path, body, "Authorization", "Bearer "+texts[who])
		return resp.StatusCode, text
	}
	looked := func(set string) (view setView) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); view.Looked == nil; {
			status, text := do(0, "GET", "/sets/"+set, "")
			if err := json.Unmarshal([]byte(text), &view); err != nil || status != http.StatusOK {
				t.Fatalf("GET: %d %s %v", status, text, err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("nobody looked at the source: %s\n%s", text, h.log)
			}
			if view.Looked == nil { // the next request waits a while, and the set may change meanwhile
				do(0, "GET", "/sets/"+set+"/changes?since=now&wait=1s", "")
			}
		}
		return view
	}

	if status, text := do(0, "PUT", "/sets/demo", `{"source":"`+source.URL+`/sitemap.xml","every":"15m"}`); status != http.StatusOK || !strings.Contains(text, `"every":"15m0s"`) {
		t.Fatalf("PUT: %d %s", status, text)
	}
	view := looked("demo")
	if l := view.Looked; l.Result != "ok" || l.Listed != 2 || l.Created != 2 || l.Next <= l.Time || view.Source != source.URL+"/sitemap.xml" {
		t.Errorf("the look: %+v\n%s", l, h.log)
	}
	if _, text := do(1, "GET", "/sets/demo/changes?since=start", ""); strings.Count(text, `"loc"`) != 2 || !strings.Contains(text, `"https://example.org/a"`) {
		t.Errorf("followers get %s", text)
	}
	if _, text := do(1, "GET", "/sets/demo/audit", ""); !strings.Contains(text, `"complete":true`) || !strings.Contains(text, `"count":2`) {
		t.Errorf("the audit says %s", text)
	}
	if _, text := do(1, "GET", "/sets/demo", ""); strings.Contains(text, "sitemap") || strings.Contains(text, "looked") || strings.Contains(text, "every") {
		t.Errorf("a follower sees %s", text)
	}

	if status, text := do(0, "PUT", "/sets/lost", `{"source":"`+source.URL+`/nothing.xml"}`); status != http.StatusOK || !strings.Contains(text, `"every":"1h0m0s"`) {
		t.Fatalf("PUT: %d %s", status, text)
	}
	if l := looked("lost").Looked; l.Result != "failed" || !strings.Contains(l.Error, "404") || l.Created != 0 {
		t.Errorf("the look at a source that is not there: %+v", l)
	}
	for path, want := range map[string]string{"/sources": `"set":"lost"`, "/failures": `"kind":"source","set":"lost"`} { // for operators
		if status, text := do(0, "GET", path, ""); status != http.StatusOK || !strings.Contains(text, want) || !strings.Contains(text, "404") {
			t.Errorf("%s is %d %s", path, status, text)
		}
	}

	for _, test := range []struct{ body, want string }{
		{`{"every":"15m"}`, "there is no source"},
		{`{"source":"` + source.URL + `","every":"15"}`, "every is a duration"},
		{`{"source":"` + source.URL + `","every":"1s"}`, "it is 1m0s to"},
		{`{"source":"` + source.URL + `","inventory":"off"}`, "has no source that is polled"},
		{`{"source":"http://10.1.2.3/sitemap.xml"}`, "source"},
		{`{"source":"ftp://example.org/"}`, "source"},
	} {
		if status, text := do(0, "PUT", "/sets/other", test.body); status != http.StatusBadRequest || !strings.Contains(text, test.want) {
			t.Errorf("PUT %s: %d %s, want 400 and %q", test.body, status, text, test.want)
		}
	}
}

// A set with a source follows it: what changed there, what others did to the set, and also
// while others publish. A set that was deleted is not made anew.
func TestSourceAgain(t *testing.T) {
	t.Parallel()
	var pages atomic.Value // "path date" each, by comma
	pages.Store("a 2026-01-01,b 2026-01-01,c 2026-01-01")
	meanwhile := make(chan func(), 1) // is called while the list is read
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case do := <-meanwhile:
			do()
		default:
		}
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for _, page := range strings.Split(pages.Load().(string), ",") {
			path, date, _ := strings.Cut(page, " ")
			fmt.Fprintf(w, "<url><loc>https://example.org/%s</loc><lastmod>%s</lastmod></url>", path, date)
		}
		fmt.Fprint(w, `</urlset>`)
	}))
	defer source.Close()
	h := start(t, Config{CallbackAllow: loopback})
	do := func(method, path, body string, headers ...string) string {
		resp, text := servertest.Do(t, method, h.URL+path, body, headers...)
		if resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
		}
		return text
	}
	cursor := "start"
	// said returns the changes since the last call, when there are so many.
	said := func(n int) string {
		t.Helper()
		var all []string
		for len(all) < n {
			var batch struct {
				Cursor  string
				Changes []struct{ Loc, Change string }
			}
			if err := json.Unmarshal([]byte(do("GET", "/sets/demo/changes?wait=30s&since="+cursor, "")), &batch); err != nil {
				t.Fatal(err)
			}
			for _, c := range batch.Changes {
				all = append(all, strings.TrimPrefix(c.Loc, "https://example.org/")+" "+c.Change)
			}
			cursor = batch.Cursor
		}
		return strings.Join(all, ",")
	}
	ping := func() {
		t.Helper()
		do("POST", "/hub", "hub.mode=publish&hub.url="+h.URL+"/sets/demo/changes", "Content-Type", "application/x-www-form-urlencoded")
	}
	do("PUT", "/sets/demo", `{"source":"`+source.URL+`/sitemap.xml"}`)
	if got := said(3); got != "a created,b created,c created" {
		t.Errorf("at first it says %s\n%s", got, h.log)
	}
	pages.Store("a 2026-01-01,b 2026-02-02,d 2026-01-01")
	ping()
	if got := said(3); got != "b updated,d created,c deleted" {
		t.Errorf("then it says %s\n%s", got, h.log)
	}
	do("POST", "/sets/demo/changes", `{"changes":[{"loc":"https://example.org/a","change":"deleted"}]}`, "Content-Type", "application/json")
	said(1)
	ping()
	if got := said(1); got != "a created" {
		t.Errorf("of what others deleted it says %s\n%s", got, h.log)
	}
	pages.Store("a 2026-01-01,b 2026-03-03,d 2026-04-04")
	meanwhile <- func() {
		do("POST", "/sets/demo/changes", `{"changes":[{"loc":"https://example.org/b","change":"updated","lastmod":"2026-03-03"}]}`, "Content-Type", "application/json")
	}
	ping()
	if got := said(2); got != "b updated,d updated" {
		t.Errorf("while others publish it says %s\n%s", got, h.log)
	}
	do("DELETE", "/sets/demo", "")
	servertest.Do(t, "POST", h.URL+"/hub", "hub.mode=publish&hub.url="+h.URL+"/sets/demo/changes", "Content-Type", "application/x-www-form-urlencoded")
	if resp, text := servertest.Do(t, "GET", h.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the set is there again: %d %s", resp.StatusCode, text)
	}
}
