package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
)

// A source that only pings is read, for who may publish its set.
func TestPing(t *testing.T) {
	var more atomic.Value
	more.Store("")
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>
			<url><loc>https://example.org/fetched</loc><rs:md change="created" datetime="2026-01-01T00:00:00Z"/></url>` + more.Load().(string) + `</urlset>`))
	}))
	defer source.Close()
	known, texts := tokens(t, "publish:demo,follow:demo", "follow:demo")
	h := start(t, Config{Callers: known, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	ping := func(who int, name, set string) (int, string) {
		resp, body := servertest.Do(t, "POST", h.URL+"/hub", "hub.mode=publish&"+name+"="+h.URL+"/sets/"+set+"/changes",
			"Content-Type", "application/x-www-form-urlencoded", "Authorization", "Bearer "+texts[who])
		return resp.StatusCode, body
	}
	if status, body := ping(0, "hub.url", "demo"); status != http.StatusBadRequest || !strings.Contains(body, "PUT "+h.URL+"/sets/demo with") {
		t.Errorf("without a description a ping is answered %d %s", status, body)
	}
	resp, body := servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"changelist":"`+source.URL+`/list"}`, "Authorization", "Bearer "+texts[0])
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT: %d %s", resp.StatusCode, body)
	}
	if status, body := ping(1, "hub.url", "demo"); status != http.StatusForbidden {
		t.Errorf("a follower's ping is answered %d %s", status, body)
	}
	for _, name := range []string{"hub.url", "hub.topic"} {
		if status, body := ping(0, name, "demo"); status != http.StatusNoContent || body != "" {
			t.Errorf("%s: a ping is answered %d %s", name, status, body)
		}
	}
	_, body = servertest.Do(t, "GET", h.URL+"/sets/demo/changes?since=start&wait=30s", "", "Authorization", "Bearer "+texts[1])
	if strings.Count(body, `"loc"`) != 1 || !strings.Contains(body, `"sourceDatetime":"2026-01-01T00:00:00Z","loc":"https://example.org/fetched"`) {
		t.Errorf("followers get %s\n%s", body, h.log)
	}

	// The next ping brings what is new. Lists of version 1.0 have the time in lastmod.
	more.Store(`<url><loc>https://example.org/more</loc><lastmod>2026-01-02T00:00:00Z</lastmod><rs:md change="updated"/></url>`)
	if status, body := ping(0, "hub.url", "demo"); status != http.StatusNoContent {
		t.Errorf("a ping is answered %d %s", status, body)
	}
	_, first, _ := strings.Cut(body, `"cursor":"`)
	first, _, _ = strings.Cut(first, `"`)
	_, body = servertest.Do(t, "GET", h.URL+"/sets/demo/changes?since="+first+"&wait=30s", "", "Authorization", "Bearer "+texts[1])
	if strings.Count(body, `"loc"`) != 1 || !strings.Contains(body, `"sourceDatetime":"2026-01-02T00:00:00Z"`) || !strings.Contains(body, `"loc":"https://example.org/more"`) {
		t.Errorf("followers get %s\n%s", body, h.log)
	}
}

// A hub may look at no sources.
func TestNoPoll(t *testing.T) {
	h := start(t, Config{NoPoll: true})
	if resp, body := servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"source":"https://example.org/"}`); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "RSHUB_POLL=off") {
		t.Errorf("a source: %d %s", resp.StatusCode, body)
	}
	resp, body := servertest.Do(t, "POST", h.URL+"/hub", "hub.mode=publish&hub.url="+h.URL+"/sets/demo/changes", "Content-Type", "application/x-www-form-urlencoded")
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "fetches nothing") {
		t.Errorf("a ping: %d %s", resp.StatusCode, body)
	}
}
