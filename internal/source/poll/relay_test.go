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

// setPages makes the sitemap list these pages, each "path date". It returns the number of
// requests since the last call.
func (s *site) setPages(pages ...string) int {
	var b strings.Builder
	b.WriteString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, p := range pages {
		path, date, _ := strings.Cut(p, " ")
		fmt.Fprintf(&b, "<url><loc>https://example.org/%s</loc><lastmod>%s</lastmod></url>", path, cmp.Or(date, "2026-01-01"))
	}
	return s.setSitemap(b.String() + "</urlset>")
}

func (s *site) setSitemap(sitemap string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.requests
	s.sitemap, s.requests = sitemap, 0
	s.version++
	return n
}

// A hubSet is a set that is not recreated after it was deleted.
type hubSet struct{ reconcile.Set }

var errDeleted = errors.New("the set was deleted")

func (s *hubSet) Differences(ctx context.Context, tally reconcile.TallyFunc, own auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error] {
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

func (*hubSet) Create(context.Context) error { return errDeleted }

// TestNewFunc polls a sitemap in many states.
func TestNewFunc(t *testing.T) {
	h := localhub.Start(t)
	c, err := client.New(h.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	dir, notes := filepath.Join(t.TempDir(), "new"), []string{}
	pollFunc := poll.NewFunc(&harvest.Getter{Client: s.Client(), Tries: 1}, func(set string) reconcile.Hub { return &hubSet{reconcile.Set{Client: c, Name: set}} }, poll.DiskOutcomes(&testutil.Map{}), poll.FuncOptions{
		Dir: dir, Note: func(_, text string) { notes = append(notes, text) },
		ReserveDisk:   func(context.Context, string, int64) error { return nil },
		ReserveMemory: func(context.Context) (func(), error) { return func() {}, nil },
	})
	out := &poll.Outcome{Begin: 1, Source: s.URL + "/sitemap.xml"}
	if err := c.Describe(t.Context(), "demo", feed.Description{}); err != nil {
		t.Fatal(err)
	}
	// pollWant polls, and wants these numbers of resources and changes, or an error.
	pollWant := func(set string, listed uint64, created, updated, deleted int, text string) {
		t.Helper()
		*out = poll.Outcome{Begin: 1, Source: out.Source}
		err := pollFunc(t.Context(), set, out)
		if (err != nil) != (text != "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("poll = %v, want an error with %q", err, text)
		}
		if out.Created != created || out.Updated != updated || out.Deleted != deleted || err == nil && out.Listed != listed {
			t.Errorf("got outcome %+v, want %d listed, %d created, %d updated, %d deleted", out, listed, created, updated, deleted)
		}
	}

	s.setPages("a", "b", "c")
	pollWant("demo", 0, 0, 0, 0, "remove temporary directories of an earlier run")
	left := filepath.Join(dir, "pages-7") // of a killed hub
	if err := os.MkdirAll(filepath.Join(left, "pages"), 0o700); err != nil {
		t.Fatal(err)
	}
	pollWant("demo", 3, 3, 0, 0, "")
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat(%s) = %v, want ErrNotExist", left, err)
	}
	pollWant("demo", 0, 0, 0, 0, "")
	if n := s.setPages("a", "b 2026-02-02", "d"); !out.Unchanged || n != 3 { // to identify it, to list it, and to learn that nothing changed
		t.Errorf("unchanged source: got outcome %+v after %d requests, want Unchanged after 3", out, n)
	}
	pollWant("demo", 3, 1, 1, 1, "")
	if out.Unchanged {
		t.Error("changed sitemap: got Unchanged")
	}

	s.setSitemap("") // a server that is starting
	pollWant("demo", 0, 0, 0, 0, "sitemap.xml")
	s.setPages()
	pollWant("demo", 0, 0, 0, 0, "3") // deleting all of them is too much
	s.setSitemap(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://example.org/a</loc></url>`)
	pollWant("demo", 0, 0, 0, 0, "sitemap.xml")
	s.setPages("a", "b 2026-02-02", "d", "e")
	pollWant("demo", 4, 1, 0, 0, "")

	// Unreadable entries are counted, and the first of them are noted.
	notes = nil
	s.setPages("a", "b 2026-02-02", strings.Repeat("x&y</loc></url><url><loc>https://example.org/", 30)+"f")
	pollWant("demo", 3, 1, 0, 0, "")
	if want := "and 10 more parts of the source could not be read"; out.Gaps != 30 || len(notes) != 21 || notes[20] != want {
		t.Errorf("got %d gaps and the notes %q, want 30 and 21 notes, the last %q", out.Gaps, notes, want)
	}
	if text := strings.Join(notes, "\n"); strings.Contains(text, "sitemap.xml") || strings.Contains(text, "example.org/x") {
		t.Errorf("got notes with paths of URLs:\n%s", text)
	}
	s.setPages("a", "b 2026-02-02", "d", "e")
	pollWant("demo", 4, 0, 0, 1, "")

	// A resource that others deleted is created again by the next poll, if the server sends no versions.
	s.mu.Lock()
	s.etag = false
	s.mu.Unlock()
	pollWant("demo", 4, 0, 0, 0, "")
	if resp, body := servertest.Do(t, "POST", h.URL+"/sets/demo/changes", `{"changes":[{"loc":"https://example.org/a","change":"deleted"}]}`, "Content-Type", "application/json"); resp.StatusCode >= 300 {
		t.Fatalf("publish: %d %s", resp.StatusCode, body)
	}
	pollWant("demo", 4, 1, 0, 0, "")

	if resp, body := servertest.Do(t, "DELETE", h.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %d %s", resp.StatusCode, body)
	}
	pollWant("demo", 0, 0, 0, 0, "deleted")
	if resp, _ := servertest.Do(t, "GET", h.URL+"/sets/demo", ""); resp.StatusCode != http.StatusNotFound {
		t.Error("poll has recreated a deleted set")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pollFunc(ctx, "demo", out); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled poll = %v, want context.Canceled", err)
	}
}
