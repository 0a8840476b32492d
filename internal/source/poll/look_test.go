package poll_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/poll"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// A site is a website with a sitemap.
type site struct {
	*httptest.Server
	mu       sync.Mutex
	sitemap  string
	requests int
	version  int
	etag     bool
}

func newSite(t *testing.T) *site {
	s := &site{etag: true}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests++
		if s.etag {
			tag := fmt.Sprintf(`"%d"`, s.version)
			w.Header().Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		fmt.Fprint(w, s.sitemap)
	}))
	t.Cleanup(s.Close)
	return s
}

// has makes the sitemap one of these pages, "path date" each. It returns how many requests
// there were.
func (s *site) has(pages ...string) int {
	var b strings.Builder
	b.WriteString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, p := range pages {
		path, date, _ := strings.Cut(p, " ")
		fmt.Fprintf(&b, "<url><loc>https://example.org/%s</loc><lastmod>%s</lastmod></url>", path, cmp.Or(date, "2026-01-01"))
	}
	return s.is(b.String() + "</urlset>")
}

func (s *site) is(sitemap string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.requests
	s.sitemap, s.requests = sitemap, 0
	s.version++
	return n
}

// An ofHub is a set that is not made anew when it was deleted.
type ofHub struct{ reconcile.Set }

var errDeleted = errors.New("the set was deleted")

func (s *ofHub) Differences(ctx context.Context, tally reconcile.Tally, own auditor.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error] {
	return func(yield func(audit.Difference, error) bool) {
		for d, err := range s.Set.Differences(ctx, tally, own, look) {
			if errors.Is(err, feed.ErrNoSet) {
				err = errDeleted
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

func (*ofHub) Make(context.Context) error { return errDeleted }

// TestRelayed shows what becomes of what a sitemap says.
func TestRelayed(t *testing.T) {
	h := localhub.Start(t)
	c, err := client.New(h.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	dir, notes := filepath.Join(t.TempDir(), "not there yet"), []string{}
	look := poll.Relayed(&harvest.Getter{Client: s.Client(), Tries: 1}, func(set string) reconcile.Hub { return &ofHub{reconcile.Set{Client: c, Name: set}} }, poll.OnDisk(&testutil.Map{}), poll.RelayOptions{
		Dir: dir, Note: func(_, text string) { notes = append(notes, text) },
		Room:   func(context.Context, string, int64) error { return nil },
		Memory: func(context.Context) (func(), error) { return func() {}, nil },
	})
	out := &poll.Outcome{Begin: 1, Source: s.URL + "/sitemap.xml"}
	if err := c.Describe(t.Context(), "demo", feed.Description{}); err != nil {
		t.Fatal(err)
	}
	// again looks, and wants these numbers of resources and changes, or an error.
	again := func(set string, listed uint64, created, updated, deleted int, text string) {
		t.Helper()
		*out = poll.Outcome{Begin: 1, Source: out.Source}
		err := look(t.Context(), set, out)
		if (err != nil) != (text != "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("it fails with %v, want %q", err, text)
		}
		if out.Created != created || out.Updated != updated || out.Deleted != deleted || err == nil && out.Listed != listed {
			t.Errorf("%+v, want %d listed, %d, %d and %d changes", out, listed, created, updated, deleted)
		}
	}

	s.has("a", "b", "c")
	again("demo", 0, 0, 0, 0, "remove what an earlier run has left")
	left := filepath.Join(dir, "pages-7") // by a hub that was killed
	if err := os.MkdirAll(filepath.Join(left, "pages"), 0o700); err != nil {
		t.Fatal(err)
	}
	again("demo", 3, 3, 0, 0, "")
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", left, err)
	}
	again("demo", 0, 0, 0, 0, "")
	if n := s.has("a", "b 2026-02-02", "d"); !out.Unchanged || n != 3 { // to find out what it is, to list it, and to hear that nothing changed
		t.Errorf("nothing changed: %+v after %d requests", out, n)
	}
	again("demo", 3, 1, 1, 1, "")
	if out.Unchanged {
		t.Error("a sitemap that changed is taken for unchanged")
	}

	s.is("") // a server that is not quite there
	again("demo", 0, 0, 0, 0, "sitemap.xml")
	s.has()
	again("demo", 0, 0, 0, 0, "3") // to delete all of them is too much
	s.is(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://example.org/a</loc></url>`)
	again("demo", 0, 0, 0, 0, "sitemap.xml")
	s.has("a", "b 2026-02-02", "d", "e")
	again("demo", 4, 1, 0, 0, "")

	// Entries that cannot be read are counted, and the first of them noted.
	notes = nil
	s.has("a", "b 2026-02-02", strings.Repeat("x&y</loc></url><url><loc>https://example.org/", 30)+"f")
	again("demo", 3, 1, 0, 0, "")
	if want := "and 10 more parts of the source could not be read"; out.Gaps != 30 || len(notes) != 21 || notes[20] != want {
		t.Errorf("got %d gaps and the notes %q, want 30 and 21 notes, the last %q", out.Gaps, notes, want)
	}
	if text := strings.Join(notes, "\n"); strings.Contains(text, "sitemap.xml") || strings.Contains(text, "example.org/x") {
		t.Errorf("notes show the paths of URLs:\n%s", text)
	}
	s.has("a", "b 2026-02-02", "d", "e")
	again("demo", 4, 0, 0, 1, "")

	// What others delete comes back at the next look, when the server knows no versions.
	s.mu.Lock()
	s.etag = false
	s.mu.Unlock()
	again("demo", 4, 0, 0, 0, "")
	if resp, body := servertest.Do(t, "POST", h.URL+"/sets/demo/changes", `{"changes":[{"loc":"https://example.org/a","change":"deleted"}]}`, "Content-Type", "application/json"); resp.StatusCode >= 300 {
		t.Fatalf("publish: %d %s", resp.StatusCode, body)
	}
	again("demo", 4, 1, 0, 0, "")

	if resp, body := servertest.Do(t, "DELETE", h.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %d %s", resp.StatusCode, body)
	}
	again("demo", 0, 0, 0, 0, "deleted")
	if resp, _ := servertest.Do(t, "GET", h.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNotFound {
		t.Error("a look has made a set anew that was deleted")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := look(ctx, "demo", out); !errors.Is(err, context.Canceled) {
		t.Errorf("a look that is ended: %v", err)
	}
}
