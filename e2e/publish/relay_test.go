package publish

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/internal/oaitest"
)

// resources returns what a hub says that a set holds.
func resources(t *testing.T, h *hubtest.Hub, set string) (locs []string) {
	t.Helper()
	page := hubtest.Get[struct {
		Complete  bool
		Resources []struct{ Loc string }
	}](t, h.URL+"/sets/"+set+"/resources", "Accept: application/json")
	if !page.Complete {
		t.Errorf("the set %s is not complete", set)
	}
	for _, r := range page.Resources {
		locs = append(locs, r.Loc)
	}
	return locs
}

func wantResources(t *testing.T, h *hubtest.Hub, set string, want ...string) {
	t.Helper()
	if got := resources(t, h, set); !slices.Equal(got, want) {
		t.Errorf("the set %s holds %q, not %q", set, got, want)
	}
}

// sitemap writes a sitemap of resources into a directory, as of a while ago, so that the
// web server can say that it did not change since.
func sitemap(t *testing.T, dir string, ago time.Duration, lastmods ...string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for i, lastmod := range lastmods {
		if lastmod != "" {
			fmt.Fprintf(&b, "<url><loc>https://example.org/%d</loc><lastmod>%s</lastmod></url>", i, lastmod)
		}
	}
	b.WriteString("</urlset>\n")
	path := filepath.Join(dir, "sitemap.xml")
	at := time.Now().Add(-ago)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestRelaySitemap relays a static website once and again.
func TestRelaySitemap(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	dir := t.TempDir()
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	state := filepath.Join(t.TempDir(), "state.json")
	look := func(code int, want string) {
		t.Helper()
		stdout, stderr := rspublish(t, code, nil, "relay", "-hub", h.URL, "-set", "site", "-once", "-state", state, web.URL+"/sitemap.xml")
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("relay says %s%s\nnot %s", stdout, stderr, want)
		}
	}
	sitemap(t, dir, 4*time.Hour, "2026-01-01", "2026-01-02", "2026-01-03")
	look(0, "relayed to site: 3 created, 0 updated, 0 deleted; compared 3 resources")
	look(0, "unchanged: site")
	sitemap(t, dir, 3*time.Hour, "2026-01-01", "2026-02-02", "", "2026-01-03T10:00:00+02:00")
	look(0, "relayed to site: 1 created, 1 updated, 1 deleted")
	wantResources(t, h, "site", "https://example.org/0", "https://example.org/1", "https://example.org/3")

	b, err := os.ReadFile(filepath.Join(dir, "sitemap.xml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sitemap.xml"), b[:len(b)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	look(3, "the document ends early")
	sitemap(t, dir, 2*time.Hour)
	look(5, "the source has no resource at all, and 3 are known")
	wantResources(t, h, "site", "https://example.org/0", "https://example.org/1", "https://example.org/3")
	sitemap(t, dir, time.Hour, "2026-01-01", "2026-02-02", "", "2026-01-03T10:00:00+02:00")
	look(0, "relayed to site: 0 created, 0 updated, 0 deleted")

	// The state is lost: everything is compared, and nothing is published twice.
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	look(0, "relayed to site: 0 created, 0 updated, 0 deleted; compared 3 resources")
	if _, stderr := rspublish(t, 2, nil, "relay", "-hub", h.URL, "-set", "other", "-once", "-state", state, web.URL+"/sitemap.xml"); !strings.Contains(stderr, "the state of another relay") {
		t.Errorf("relay says %s", stderr)
	}
	if _, stderr := rspublish(t, 3, nil, "relay", "-hub", h.URL, "-set", "site", "-once", web.URL+"/nothing"); !strings.Contains(stderr, "no source that can be relayed") {
		t.Errorf("relay says %s", stderr)
	}
}

// TestRelayRepository relays a repository that speaks OAI-PMH until it is told to stop,
// through a kill and through an outage of both ends.
func TestRelayRepository(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	repository := &oaitest.Repository{Parts: 3}
	for i := range 10 {
		repository.PutAt(fmt.Sprintf("oai:x:%d", i), "", "", time.Now().Add(-time.Hour))
	}
	web := httptest.NewServer(repository)
	defer web.Close()
	state := filepath.Join(t.TempDir(), "state.json")
	start := func() *hubtest.Process {
		return hubtest.Start(t, nil, nil, hubtest.Rspublish, "relay", "-hub", h.URL, "-set", "papers", "-every", "1s", "-retry", "20s",
			"-loc", "https://example.org/{local}", "-state", state, web.URL+"/oai")
	}
	p := start()
	p.Says(`the repository is "Test"; it says of deleted records: persistent`)
	hubtest.Until(t, "the first look is over", func() error {
		if said := p.Stdout.String(); !strings.Contains(said, "relayed to papers: 10 created, 0 updated, 0 deleted; compared 10 resources\n") {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
	repository.Put("oai:x:new", "", "")
	repository.Delete("oai:x:3")
	holds := func(want ...string) {
		t.Helper()
		hubtest.Until(t, "the hub has what the repository has", func() error {
			if got := resources(t, h, "papers"); !slices.Equal(got, want) {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	var want []string
	for _, name := range []string{"0", "1", "2", "4", "5", "6", "7", "8", "9", "new"} {
		want = append(want, "https://example.org/"+name)
	}
	holds(want...)
	p.Kill()
	repository.Delete("oai:x:4")
	repository.Misbehave(oaitest.Faults{Busy: 1, Cut: 2})
	p = start()
	want = slices.Delete(want, 3, 4)
	holds(want...)
	if _, stderr := rspublish(t, 3, nil, "relay", "-hub", h.URL, "-set", "papers", "-once", "-loc", "https://example.org/{local}", "-state", state, web.URL+"/oai"); !strings.Contains(stderr, "another rspublish relays with") {
		t.Errorf("a second relay says %s", stderr)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("relay ended with %d: %s", code, p.Stderr.String())
	}
}
