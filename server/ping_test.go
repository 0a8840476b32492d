package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
)

// A source that only pings is read.
func TestPing(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>
			<url><loc>https://example.org/fetched</loc><rs:md change="created" datetime="2026-01-01T00:00:00Z"/></url></urlset>`))
	}))
	defer source.Close()
	h := start(t, Config{CallbackAllow: loopback})
	ping := func() (int, string) {
		resp, body := servertest.Do(t, "POST", h.URL+"/hub", "hub.mode=publish&hub.url="+h.URL+"/sets/demo/changes", "Content-Type", "application/x-www-form-urlencoded")
		return resp.StatusCode, body
	}
	if status, body := ping(); status != http.StatusBadRequest || !strings.Contains(body, "PUT "+h.URL+"/sets/demo with") {
		t.Errorf("without a description a ping is answered %d %s", status, body)
	}
	if resp, body := servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"changelist":"`+source.URL+`/list"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT: %d %s", resp.StatusCode, body)
	}
	if status, body := ping(); status != http.StatusNoContent || body != "" {
		t.Errorf("a ping is answered %d %s", status, body)
	}
	_, body := servertest.Do(t, "GET", h.URL+"/sets/demo/changes?since=start&wait=30s", "")
	if strings.Count(body, `"loc"`) != 1 || !strings.Contains(body, `"sourceDatetime":"2026-01-01T00:00:00Z","loc":"https://example.org/fetched"`) {
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
