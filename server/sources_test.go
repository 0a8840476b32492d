package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/running"
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
	known, texts := tokens(t, "publish:*,follow:*", "follow:demo")
	h := start(t, Config{Callers: known, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	do := func(who int, method, path, body string) (int, string) {
		resp, text := running.Do(t, method, h.URL+path, body, "Authorization", "Bearer "+texts[who])
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

	for _, test := range []struct{ body, want string }{
		{`{"every":"15m"}`, "the set has no source"},
		{`{"source":"` + source.URL + `","every":"15"}`, "every is a duration"},
		{`{"source":"` + source.URL + `","every":"1s"}`, "it is 1m0s to"},
		{`{"source":"` + source.URL + `","inventory":"off"}`, "cannot have a source"},
		{`{"source":"http://10.1.2.3/sitemap.xml"}`, "source"},
		{`{"source":"ftp://example.org/"}`, "source"},
	} {
		if status, text := do(0, "PUT", "/sets/other", test.body); status != http.StatusBadRequest || !strings.Contains(text, test.want) {
			t.Errorf("PUT %s: %d %s, want 400 and %q", test.body, status, text, test.want)
		}
	}
}
