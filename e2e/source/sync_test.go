package source

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/inventory/diskpages"
	"github.com/rshub/rshub/resourcesync"
)

const base = "https://example.org/files/"

// A site is a hub, a directory, and the requests to the hub.
type site struct {
	*testing.T
	hub        *hubtest.Hub
	dir, cache string
	proxy      *httptest.Server

	mu       sync.Mutex
	requests []string // "GET /path"
}

func newSite(t *testing.T) *site {
	s := &site{T: t, hub: hubtest.StartHub(t), dir: t.TempDir(), cache: t.TempDir()}
	to, err := url.Parse(s.hub.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	s.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.proxy.Close)
	return s
}

// asked returns the requests since the last time.
func (s *site) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

func (s *site) write(name, content string) {
	s.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *site) remove(name string) {
	s.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
		s.Fatal(err)
	}
}

// env has what the runs of rspublish share.
func (s *site) env() []string { return []string{"XDG_CACHE_HOME=" + s.cache} }

// A summary is what rspublish sync says with -json.
type summary struct {
	Listed, Created, Updated, Deleted, Unknown, Gaps, Kept int
	Complete                                               bool
}

// sync runs rspublish sync of the set files, and returns what it says.
func (s *site) sync(code int, stdin string, args ...string) (summary, string) {
	s.Helper()
	args = append([]string{"sync", "-hub", s.proxy.URL, "-set", "files", "-settle", "0", "-json"}, args...)
	got, out, stderr := hubtest.Run(s.T, s.env(), strings.NewReader(stdin), hubtest.Rspublish, args...)
	if got != code {
		s.Fatalf("rspublish %q ends with %d, not %d: %s%s", args, got, code, out, stderr)
	}
	var sum summary
	if out != "" && !slices.Contains(args, "-dry-run") {
		if err := json.Unmarshal([]byte(out), &sum); err != nil {
			s.Fatalf("%s: %v", out, err)
		}
	}
	return sum, out + stderr
}

// directory syncs the directory.
func (s *site) directory(code int, args ...string) (summary, string) {
	s.Helper()
	return s.sync(code, "", append(args, "-base", base, s.dir)...)
}

// proved fails the test unless the hub holds exactly what is in the directory: by a look
// of this test's own, and an audit.
func (s *site) proved() {
	s.Helper()
	own, done, err := diskpages.Collect(s.Context(), "own", func(yield func(*feed.Entry, error) bool) {
		err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "~") {
				return err // what editors leave is left out
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(s.dir, path)
			if err != nil {
				return err
			}
			loc := base + (&url.URL{Path: rel}).EscapedPath()
			yield(&feed.Entry{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Hash: hash(b)}}, nil)
			return nil
		})
		if err != nil {
			yield(nil, err)
		}
	})
	if err != nil {
		s.Fatal(err)
	}
	defer done()
	c, err := client.New(s.hub.URL, client.Options{})
	if err != nil {
		s.Fatal(err)
	}
	complete := false
	o := client.AuditOptions{By: digest.ByContent, Settle: 1, Look: func(l audit.Look) { complete = l.Complete }}
	for d, err := range c.Audit(s.Context(), "files", client.Always(own), o) {
		if err != nil {
			s.Fatal(err)
		}
		s.Errorf("the hub and the directory differ: %s", d.AppendJSON(nil))
	}
	if !complete {
		s.Error("the hub does not know that it knows all")
	}
}

// TestSync syncs a directory as somebody does by hand.
func TestSync(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 1_500 {
		s.write(fmt.Sprintf("%d/file %d.xml", i%10, i), fmt.Sprint(i))
	}
	_, out := s.directory(0, "-dry-run")
	if n := strings.Count(out, `"change":"created"`); n != 1_500 {
		t.Errorf("a dry run prints %d changes", n)
	}
	if got := s.asked(); slices.ContainsFunc(got, func(r string) bool { return !strings.HasPrefix(r, "GET ") }) {
		t.Errorf("a dry run asks %q", got)
	}
	if sum, _ := s.directory(0); sum.Created != 1_500 || !sum.Complete {
		t.Errorf("%+v", sum)
	}
	s.proved()
	s.asked()
	if sum, _ := s.directory(0); sum != (summary{Listed: 1_500, Complete: true}) {
		t.Errorf("with nothing to do: %+v", sum)
	}
	if got := s.asked(); !slices.Equal(got, []string{"GET /sets/files/audit"}) {
		t.Errorf("with nothing to do it asks %q", got)
	}

	s.write("3/file 3.xml", "changed")
	s.write("new/ü%", "new")
	s.remove("0/file 0.xml")
	if sum, _ := s.directory(0); sum.Created != 1 || sum.Updated != 1 || sum.Deleted != 1 {
		t.Errorf("%+v", sum)
	}
	s.proved()

	// More deletions than may be.
	before := s.dir
	s.dir = t.TempDir()
	s.asked()
	for _, args := range [][]string{nil, {"-max-delete", "1499"}, {"-max-delete", "99%"}} {
		if _, out := s.directory(5, args...); !strings.Contains(out, "-max-delete 1500") {
			t.Errorf("it says %s", out)
		}
	}
	if got := s.asked(); slices.ContainsFunc(got, func(r string) bool { return strings.HasSuffix(r, "/changes") && r[0] == 'P' }) {
		t.Errorf("it asks %q", got)
	}
	empty := s.dir
	s.dir = before
	s.proved()
	s.remove("1")
	s.remove("2")
	s.write("4/more", "1")
	s.directory(5)
	if sum, _ := s.directory(0, "-max-delete", "25%"); sum.Deleted != 300 || sum.Created != 1 {
		t.Errorf("%+v", sum)
	}
	s.proved()

	// What is broken deletes nothing, whatever may be deleted.
	s.sync(3, `{"loc":"`+base+`a"}`+"\n{", "-max-delete", "all", "-")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, "{\"loc\":%q}\n", base+"a")
	if err := z.Flush(); err != nil {
		t.Fatal(err)
	}
	s.sync(3, packed.String(), "-max-delete", "all", "-")
	if _, out := s.sync(3, "", "-max-delete", "all", "-base", base, s.dir+"/nosuch"); !strings.Contains(out, "nosuch") {
		t.Errorf("it says %s", out)
	}
	s.sync(2, "", s.dir)
	s.proved()

	s.dir = empty
	if sum, _ := s.directory(0, "-max-delete", "all"); sum.Deleted != 1_201 {
		t.Errorf("%+v", sum)
	}
	s.proved()
}

// TestSyncList syncs lists: an export, and a sitemap.
func TestSyncList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, `{"loc":"%s%d","lastmod":"2026-01-02T03:04:05Z","length":%d}`+"\n", base, i, i)
	}
	if sum, _ := s.sync(0, b.String(), "-"); sum.Created != 50 || !sum.Complete {
		t.Errorf("%+v", sum)
	}
	export := filepath.Join(t.TempDir(), "export.ndjson")
	if err := os.WriteFile(export, []byte(strings.Replace(b.String(), `"length":7}`, `"length":8}`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if sum, _ := s.sync(0, "", export); sum.Updated != 1 || sum.Created+sum.Deleted != 0 {
		t.Errorf("%+v", sum)
	}
	if _, out := s.sync(5, "", "-"); !strings.Contains(out, "no resource at all") {
		t.Errorf("it says %s", out)
	}
	sitemap := `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`
	for i := range 49 {
		sitemap += fmt.Sprintf("<url><loc>%s%d</loc><lastmod>2026-01-02T03:04:05Z</lastmod></url>", base, i)
	}
	var text atomic.Pointer[string]
	serve := func(s string) { text.Store(&s) }
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sitemap.xml" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, *text.Load())
	}))
	defer web.Close()
	serve(sitemap + "<url><loc>" + base + "0</loc></url><url><loc>" + base + "other</loc></url></urlset>")
	if sum, _ := s.sync(0, "", web.URL+"/sitemap.xml"); sum.Created != 1 || sum.Deleted != 1 || sum.Updated != 0 || sum.Listed != 50 || sum.Unknown != 1 {
		t.Errorf("%+v", sum)
	}
	serve(sitemap) // it is cut off
	s.sync(3, "", "-max-delete", "all", web.URL+"/sitemap.xml")
	serve(strings.SplitAfter(sitemap, ">")[0] + "</urlset>")
	s.sync(5, "", web.URL+"/sitemap.xml")
	serve("<html>under construction</html>")
	s.sync(3, "", "-max-delete", "all", web.URL+"/sitemap.xml")
}

// A web is a site with documents.
type web struct {
	*httptest.Server
	mu   sync.Mutex
	docs map[string]string // by path
}

func newWeb(t *testing.T) *web {
	w := &web{docs: map[string]string{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if doc, ok := w.docs[r.URL.Path]; ok {
			fmt.Fprint(rw, doc)
		} else {
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// has makes a document a sitemap of these resources.
func (w *web) has(path string, names ...string) {
	var b strings.Builder
	b.WriteString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, n := range names {
		fmt.Fprintf(&b, "<url><loc>%s%s</loc></url>", base, n)
	}
	w.puts(path, b.String()+"</urlset>")
}

func (w *web) puts(path, doc string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.docs[path] = doc
}

// TestSyncSite syncs what a site names, of which only the address is known.
func TestSyncSite(t *testing.T) {
	t.Parallel()
	s, w := newSite(t), newWeb(t)
	w.puts("/", "<html>hello")
	if _, out := s.sync(3, "", w.URL); !strings.Contains(out, "nor a sitemap") {
		t.Errorf("it says %s", out)
	}
	w.has("/a.xml", "1", "2")
	w.has("/b.xml", "2", "3")
	w.puts("/robots.txt", "User-agent: *\nDisallow: /private\nSitemap: "+w.URL+"/a.xml\nSitemap: /b.xml\n")
	if sum, out := s.sync(0, "", w.URL+"/"); sum.Created != 3 || sum.Listed != 3 || !sum.Complete {
		t.Errorf("%+v: %s", sum, out)
	}

	// The sitemaps move.
	w.mu.Lock()
	delete(w.docs, "/robots.txt")
	w.mu.Unlock()
	w.has("/sitemap.xml", "1", "2", "3", "4")
	if sum, out := s.sync(0, "", w.URL+"/"); sum.Created != 1 || sum.Listed != 4 {
		t.Errorf("%+v: %s", sum, out)
	}
}

// TestUnreadable syncs what cannot be read whole.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 20 {
		s.write(fmt.Sprint(i), "1")
		s.write(fmt.Sprint("dir/", i), "1")
	}
	s.directory(0)
	s.write("bad\xff", "1")
	if sum, out := s.directory(6); sum.Gaps != 1 || sum.Created != 0 || !strings.Contains(out, "UTF-8") {
		t.Errorf("%+v: %s", sum, out)
	}
	s.remove("bad\xff")

	// Root may read everything, unless it gives that up.
	program, first := hubtest.Rspublish, []string(nil)
	if os.Getuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("root cannot give up that it may read everything: there is no setpriv")
		}
		program, first = setpriv, []string{"--bounding-set=-dac_override,-dac_read_search", hubtest.Rspublish}
	}
	run := func(want summary) {
		t.Helper()
		args := append(first, "sync", "-hub", s.hub.URL, "-set", "files", "-settle", "0", "-json", "-base", base, s.dir)
		code, out, stderr := hubtest.Run(t, s.env(), nil, program, args...)
		var sum summary
		if err := json.Unmarshal([]byte(out), &sum); err != nil || code != 6 || sum != want || !strings.Contains(stderr, "permission denied") {
			t.Errorf("%d: %s%s", code, out, stderr)
		}
	}
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(filepath.Join(s.dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod("7", 0)
	s.remove("8")
	run(summary{Listed: 38, Deleted: 1, Gaps: 1, Kept: 1, Complete: true})
	chmod("dir", 0)
	s.remove("9")
	run(summary{Listed: 17, Gaps: 2, Kept: 22, Complete: true})
	chmod("dir", 0o755)
	chmod("7", 0o644)
	if sum, _ := s.directory(0); sum != (summary{Listed: 38, Deleted: 1, Complete: true}) {
		t.Errorf("%+v", sum)
	}
	s.proved()
}
