package smoke

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A website is a directory that is served over HTTP, and published as the set files with rspublish sync.
type website struct {
	t    *testing.T
	hub  *hubtest.Hub
	dir  string
	base string // URL with a trailing slash
}

func newWebsite(t *testing.T) *website {
	w := &website{t: t, hub: hubtest.StartHub(t), dir: t.TempDir()}
	server := httptest.NewServer(http.FileServer(http.Dir(w.dir)))
	t.Cleanup(server.Close)
	w.base = server.URL + "/"
	if err := os.Mkdir(filepath.Join(w.dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		w.write(fmt.Sprintf("sub/file%d.txt", i), strings.Repeat("line\n", i*1000)) // the first one is empty
	}
	w.write("top.html", "<p>top")
	return w
}

func (w *website) write(name, content string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.dir, name), content)
}

// sync publishes the changes of the directory.
func (w *website) sync() {
	w.t.Helper()
	mustRun(w.t, 0, hubtest.Rspublish, "sync", "-hub", w.hub.URL, "-set", "files", "-settle", "0", "-base", w.base, w.dir)
}

// resources returns the expected state of the hub: the hash of each file by URL.
func (w *website) resources() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for name, hash := range contents(w.t, w.dir) {
		all[w.base+name] = hash
	}
	return all
}

// list writes the resources as a list for rshub audit, and returns its file.
func (w *website) list() string {
	w.t.Helper()
	var b strings.Builder
	for loc, hash := range w.resources() {
		fmt.Fprintf(&b, `{"loc":%q,"hash":%q}`+"\n", loc, hash)
	}
	file := filepath.Join(w.t.TempDir(), "list.ndjson")
	write(w.t, file, b.String())
	return file
}

// contents returns the hash of each file of a directory, without the state directory of rsmirror.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := hubtest.EachFile(dir, func(name string, b []byte) error {
		sum := sha256.Sum256(b)
		all[name] = "sha-256:" + hex.EncodeToString(sum[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A part is a page of a baseline, or of the changes after it.
type part struct {
	Baseline, Complete bool
	Count              int
	Next               string
	Resources, Changes []struct{ Loc, Hash, Change string }
}

// TestBaseline reads a baseline of a directory published with rspublish sync, page by page. It is
// complete, and equals the directory. Its last page links to the changes since.
func TestBaseline(t *testing.T) {
	t.Parallel()
	w := newWebsite(t)
	w.sync()
	held := map[string]string{}
	p := part{Baseline: true, Next: w.hub.Topic("files") + "?since=baseline&limit=4"}
	for p.Baseline {
		p = hubtest.Get[part](t, p.Next)
		for _, r := range p.Resources {
			if _, twice := held[r.Loc]; twice {
				t.Errorf("baseline has %s twice", r.Loc)
			}
			held[r.Loc] = r.Hash
		}
	}
	if want := w.resources(); !p.Complete || p.Count != len(want) || !maps.Equal(held, want) {
		t.Errorf("got baseline of %d resources, complete %v: %v, want %v", p.Count, p.Complete, held, want)
	}

	w.write("top.html", "<p>changed")
	w.sync()
	p = hubtest.Get[part](t, p.Next)
	if len(p.Changes) != 1 || p.Changes[0].Change != "updated" || p.Changes[0].Hash != w.resources()[w.base+"top.html"] {
		t.Errorf("got page %+v after the baseline, want the update of top.html", p)
	}
}

// TestAudit audits a list of a directory against the hub. Equal lists have no differences, and an
// unpublished change of a file is reported.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWebsite(t)
	w.sync()
	if out, _ := mustRun(t, 0, hubtest.Rshub, "audit", "-hub", w.hub.URL, "-set", "files", "-settle", "1ms", w.list()); out != "" {
		t.Errorf("audit of equal lists: got %s, want no differences", out)
	}
	w.write("sub/file3.txt", "unpublished")
	out, _ := mustRun(t, 1, hubtest.Rshub, "audit", "-hub", w.hub.URL, "-set", "files", "-settle", "1ms", w.list())
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, `"difference":"stale"`) || !strings.Contains(out, w.base+"sub/file3.txt") {
		t.Errorf("audit with one changed file: got %s, want one stale difference", out)
	}
}

// TestMirror mirrors a directory published with rspublish sync, twice with changes in between. Each
// time the mirror is equal, as rsmirror audit confirms. A file damaged afterwards is reported.
func TestMirror(t *testing.T) {
	t.Parallel()
	w, dir := newWebsite(t), t.TempDir()
	mirror := func() {
		t.Helper()
		mustRun(t, 0, hubtest.Rsmirror, "-once", "-strip", w.base, w.hub.Topic("files"), dir)
		_, out := mustRun(t, 0, hubtest.Rsmirror, "audit", dir)
		if !strings.Contains(out, "0 missing, 0 stale, 0 damaged") {
			t.Errorf("audit of an intact mirror: got %s, want no problems", out)
		}
		if got, want := contents(t, dir), contents(t, w.dir); !maps.Equal(got, want) {
			t.Errorf("files of the mirror = %v, want %v", got, want)
		}
	}
	w.sync()
	mirror()
	w.write("new.txt", "new")
	w.write("sub/file2.txt", "updated")
	if err := os.Remove(filepath.Join(w.dir, "sub", "file1.txt")); err != nil {
		t.Fatal(err)
	}
	w.sync()
	mirror()
	write(t, filepath.Join(dir, "new.txt"), "damaged")
	if out, _ := mustRun(t, 1, hubtest.Rsmirror, "audit", dir); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"damaged"`) || !strings.Contains(out, w.base+"new.txt") {
		t.Errorf("audit with one damaged file: got %s, want one problem", out)
	}
}
