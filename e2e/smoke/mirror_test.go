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

// A website is a directory, served over HTTP, that rspublish sync publishes as the set files.
type website struct {
	t    *testing.T
	hub  *hubtest.Hub
	dir  string
	base string // its URL, with a slash at the end
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
		w.write(fmt.Sprintf("sub/file%d.txt", i), strings.Repeat("line\n", i*1000)) // the first is empty
	}
	w.write("top.html", "<p>top")
	return w
}

func (w *website) write(name, content string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.dir, name), content)
}

// sync publishes what has changed in the directory.
func (w *website) sync() {
	w.t.Helper()
	ran(w.t, 0, hubtest.Rspublish, "sync", "-hub", w.hub.URL, "-set", "files", "-settle", "0", "-base", w.base, w.dir)
}

// resources are what the hub has to know: each file's hash, by its URL.
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

// contents returns the hash of each file of a directory, without what is rsmirror's own.
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

// A part is a page of a baseline, or of the changes that follow it.
type part struct {
	Baseline, Complete bool
	Count              int
	Next               string
	Resources, Changes []struct{ Loc, Hash, Change string }
}

// TestBaseline reads a baseline of what rspublish sync has published from a directory, page
// by page. It is complete, and is the directory. Its last page leads to the changes since.
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
				t.Errorf("%s comes twice", r.Loc)
			}
			held[r.Loc] = r.Hash
		}
	}
	if want := w.resources(); !p.Complete || p.Count != len(want) || !maps.Equal(held, want) {
		t.Errorf("the baseline is complete: %v, of %d resources: %v, not %v", p.Complete, p.Count, held, want)
	}

	w.write("top.html", "<p>changed")
	w.sync()
	p = hubtest.Get[part](t, p.Next)
	if len(p.Changes) != 1 || p.Changes[0].Change != "updated" || p.Changes[0].Hash != w.resources()[w.base+"top.html"] {
		t.Errorf("after the baseline comes %+v", p)
	}
}

// TestAudit compares a list of a directory with what the hub knows. They are equal by one
// digest; and when a file has changed that the hub does not know of, it is named.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWebsite(t)
	w.sync()
	if said, _ := ran(t, 0, hubtest.Rshub, "audit", "-hub", w.hub.URL, "-set", "files", "-settle", "1ms", w.list()); said != "" {
		t.Errorf("equal lists differ: %s", said)
	}
	w.write("sub/file3.txt", "unpublished")
	said, _ := ran(t, 1, hubtest.Rshub, "audit", "-hub", w.hub.URL, "-set", "files", "-settle", "1ms", w.list())
	if strings.Count(said, "\n") != 1 || !strings.Contains(said, `"difference":"stale"`) || !strings.Contains(said, w.base+"sub/file3.txt") {
		t.Errorf("of one file that differs it says %s", said)
	}
}

// TestMirror mirrors a directory that rspublish sync publishes, twice with changes between.
// Each time the mirror is equal, file by file, and rsmirror audit proves it. A file that is
// damaged afterwards is named.
func TestMirror(t *testing.T) {
	t.Parallel()
	w, dir := newWebsite(t), t.TempDir()
	mirrored := func() {
		t.Helper()
		ran(t, 0, hubtest.Rsmirror, "-once", "-strip", w.base, w.hub.Topic("files"), dir)
		_, said := ran(t, 0, hubtest.Rsmirror, "audit", dir)
		if !strings.Contains(said, "0 missing, 0 stale, 0 damaged") {
			t.Errorf("the audit of a mirror that is right says %s", said)
		}
		if got, want := contents(t, dir), contents(t, w.dir); !maps.Equal(got, want) {
			t.Errorf("the mirror has %v, not %v", got, want)
		}
	}
	w.sync()
	mirrored()
	w.write("new.txt", "new")
	w.write("sub/file2.txt", "updated")
	if err := os.Remove(filepath.Join(w.dir, "sub", "file1.txt")); err != nil {
		t.Fatal(err)
	}
	w.sync()
	mirrored()
	write(t, filepath.Join(dir, "new.txt"), "damaged")
	if said, _ := ran(t, 1, hubtest.Rsmirror, "audit", dir); strings.Count(said, "\n") != 1 || !strings.Contains(said, `"damaged"`) || !strings.Contains(said, w.base+"new.txt") {
		t.Errorf("of one file that is damaged the audit says %s", said)
	}
}
