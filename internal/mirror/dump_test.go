package mirror

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// document returns a document of ResourceSync.
func document(capability, times string, entries ...string) string {
	return `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">` +
		`<rs:md capability="` + capability + `" ` + times + `/>` + strings.Join(entries, "") + `</urlset>`
}

func sumOf(text string) string { return fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text))) }

// A zipped is a file in a ZIP file.
type zipped struct{ path, text string }

func zipOf(files ...zipped) string {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate}
		if f.text == "" {
			h.Method = zip.Store
		}
		out, err := w.CreateHeader(h)
		if err == nil {
			_, err = out.Write([]byte(f.text))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

// in returns an entry of a manifest: a resource that is at a path in the package.
func (o *origin) in(name, path, text string) string {
	return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md path="%s" hash="%s" length="%d"/></url>`, o.URL, name, path, sumOf(text), len(text))
}

func manifest(entries ...string) zipped {
	return zipped{"manifest.xml", document("resourcedump-manifest", `at="2026-01-01T00:00:00Z"`, entries...)}
}

// dump serves a Resource Dump of packages.
func (o *origin) dump(at string, packages ...string) {
	var entries []string
	for i, p := range packages {
		name := fmt.Sprintf("/p%d.zip", i)
		o.set(name, p)
		entries = append(entries, fmt.Sprintf(`<url><loc>%s</loc><rs:md hash="%s" length="%d"/></url>`, o.URL+name, sumOf(p), len(p)))
	}
	o.set("/dump.xml", document("resourcedump", `at="`+at+`"`, entries...))
}

// once mirrors a source once.
func (b *bench) once(s *discovery.Source) (Backlog, error) {
	b.t.Helper()
	m := New(b.home, s, b.Directory, Options{HTTP: b.Client(), SourceTimeout: time.Second})
	m.lister.Getter.Tries, m.packages = 1, fetch.New(fetch.Options{Client: b.Client(), Attempts: 2, RetryPause: time.Millisecond})
	return m.Run(b.t.Context(), true)
}

func (b *bench) right(s *discovery.Source) {
	b.t.Helper()
	left, err := b.once(s)
	if err != nil || left.Resources != 0 {
		b.t.Fatalf("%+v is left, %v", left, err)
	}
	b.proved(s)
}

// proved fails the test if an audit finds something.
func (b *bench) proved(s *discovery.Source) {
	b.t.Helper()
	for p, err := range New(b.home, s, b.Directory, Options{HTTP: b.Client()}).Audit(b.t.Context(), b.Directory, AuditOptions{}) {
		b.t.Errorf("an audit finds %+v, %v", p, err)
	}
}

// A Resource Dump is the baseline of a source that has no Resource List. Change Lists go
// on from it.
func TestDump(t *testing.T) {
	b := newBench(t)
	b.set("/wrong", "right at its place")
	b.dump("2026-01-01T00:00:00Z",
		zipOf(manifest(b.in("/a", "/x/a", "a"), b.in("/dir/b", "/../../../b", "b"), b.in("/empty", "/empty", "")),
			zipped{"x/a", "a"}, zipped{"../../../b", "b"}, zipped{"empty", ""}, zipped{"unnamed", "nobody's"}),
		zipOf(manifest(b.in("/wrong", "/wrong", "right at its place"), b.in("/old", "/old", "old"), b.in("/gone", "/gone", "gone")),
			zipped{"wrong", "damaged in the package"}, zipped{"old", "old"}, zipped{"gone", "gone"}))
	change := func(name, what, text string) string {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-02T00:00:00Z" hash="%s"/></url>`, b.URL, name, what, sumOf(text))
	}
	b.set("/changes.xml", document("changelist", `from="2025-12-01T00:00:00Z"`,
		fmt.Sprintf(`<url><loc>%s/a</loc><rs:md change="deleted" datetime="2025-12-31T00:00:00Z"/></url>`, b.URL), // it is there again
		change("/old", "updated", "new"), change("/gone", "deleted", "")))
	b.set("/old", "new")
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml", ChangeList: b.URL + "/changes.xml"}
	b.right(source)
	for name, text := range map[string]string{"a": "a", "dir/b": "b", "wrong": "right at its place", "old": "new", "gone": "", "unnamed": ""} {
		b.has(name, text)
	}
	if n := b.requests("/a") + b.requests("/dir/b") + b.requests("/empty"); n != 0 {
		t.Errorf("what is in the dump was asked for %d times", n)
	}
	if n := b.home.Ledger.Counts().Files; n != 5 {
		t.Errorf("there are %d files", n)
	}
	if got := b.requests("/p0.zip"); got != 2 { // the second time by the audit
		t.Errorf("the package was asked for %d times", got)
	}
	b.right(source)
	if got := b.requests("/p0.zip"); got != 1 {
		t.Errorf("a dump that did not change was read again: %d requests", got-1)
	}

	// Without Change Lists, the next dump says what changed.
	source.ChangeList = ""
	b.dump("2026-01-03T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "newer"), b.in("/wrong", "/wrong", "right at its place")), zipped{"a", "newer"}))
	b.right(source)
	b.has("a", "newer")
	b.has("dir/b", "")
	if n := b.home.Ledger.Counts().Files; n != 2 {
		t.Errorf("there are %d files", n)
	}
	if _, err := b.home.Root.Stat(b.home.PackageFile()); err == nil {
		t.Error("a package is left")
	}

	// A Resource List is preferred.
	b.requests("/dump.xml")
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, fmt.Sprintf(`<url><loc>%s/wrong</loc><rs:md hash="%s"/></url>`, b.URL, sumOf("right at its place"))))
	source.ResourceList = b.URL + "/list.xml"
	b.right(source)
	if b.requests("/dump.xml") != 0 || b.home.Ledger.Counts().Files != 1 {
		t.Error("the dump was read although there is a list")
	}
}

// A dump that says nothing of its packages but where they are is read again each time: only so
// it is seen that they have changed.
func TestBareDump(t *testing.T) {
	b := newBench(t)
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	for _, times := range []string{"", `at="9999-01-01T00:00:00Z"`} { // what lies in the future says nothing
		b.set("/dump.xml", document("resourcedump", times, `<url><loc>`+b.URL+`/p.zip</loc></url>`))
		for _, text := range []string{"one", "two"} {
			b.set("/p.zip", zipOf(manifest(b.in("/a", "/a", text)), zipped{"a", text}))
			b.right(source)
			b.has("a", text)
		}
	}
}

// The copy of a manifest is enough where contents are not needed.
func TestLinkedManifest(t *testing.T) {
	b := newBench(t)
	m := manifest(b.in("/a", "/a", "a"))
	p := zipOf(m, zipped{"a", "a"})
	b.set("/p.zip", p)
	b.set("/manifest.xml", m.text)
	b.set("/dump.xml", document("resourcedump", `at="2026-01-01T00:00:00Z"`, `<url><loc>p.zip</loc><rs:ln rel="contents" href="/manifest.xml"/></url>`))
	b.set("/index.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("resourcedump", `at="2026-01-01T00:00:00Z"`, `<sitemap><loc>`+b.URL+`/dump.xml</loc></sitemap>`)))
	source := &discovery.Source{ResourceDump: b.URL + "/index.xml"}
	b.right(source)
	b.has("a", "a")
	if zips, manifests := b.requests("/p.zip"), b.requests("/manifest.xml"); zips != 1 || manifests != 1 {
		t.Errorf("%d packages and %d manifests were read", zips, manifests)
	}
	var lines bytes.Buffer
	h, err := home.Open(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := New(h, source, Lines{&lines}, Options{HTTP: b.Client()}).Run(t.Context(), true); err != nil || !strings.HasPrefix(lines.String(), `{"loc":"`+b.URL+`/a",`) {
		t.Errorf("the changes are %s, %v", &lines, err)
	}
	if b.requests("/p.zip") != 0 {
		t.Error("a package was read, and no content is needed")
	}
}

// A package that is wrong changes nothing.
func TestHostilePackages(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("0", 1<<20)
	type hostile struct{ name, zip, says string }
	var large []hostile
	if !testing.Short() {
		many := make([]zipped, 0, 35_000)
		for i := range cap(many) {
			many = append(many, zipped{fmt.Sprintf("%01000d", i), ""})
		}
		large = append(large, hostile{"a large directory", zipOf(many...), "directory has more than"})
	}
	for _, test := range append(large, []hostile{
		{"no ZIP file", "<html>", "ZIP file"},
		{"cut", zipOf(manifest())[:60], "ZIP file"},
		{"no manifest", zipOf(zipped{"x/manifest.xml", manifest().text}), "no manifest.xml"},
		{"another document", zipOf(zipped{"manifest.xml", document("resourcelist", "")}), "want resourcedump-manifest"},
		{"text", zipOf(zipped{"manifest.xml", "http://example.org/\n"}), "want a ResourceSync document"},
	}...) {
		b.dump("2026-01-01T00:00:00Z", test.zip)
		_, err := b.once(&discovery.Source{ResourceDump: b.URL + "/dump.xml"})
		if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: the error is %v", test.name, err)
		}
		if n := b.home.Ledger.Counts().Files; n != 0 {
			t.Errorf("%s: there are %d files", test.name, n)
		}
	}

	// A content that has more than the manifest says is not unpacked further.
	b.dump("2026-01-01T00:00:00Z", zipOf(manifest(b.in("/bomb", "/bomb", "short")), zipped{"bomb", strings.Repeat(long, 20)}))
	if left, err := b.once(&discovery.Source{ResourceDump: b.URL + "/dump.xml"}); err != nil || left.Resources != 1 {
		t.Errorf("%+v is left, %v", left, err)
	}
	// A package that is not the one of which the dump speaks is not read.
	b.set("/p0.zip", zipOf(manifest(b.in("/x", "/x", "x")), zipped{"x", "x"}))
	b.set("/dump.xml", document("resourcedump", "", `<url><loc>`+b.URL+`/p0.zip</loc><rs:md hash="md5:00"/></url>`))
	if _, err := b.once(&discovery.Source{ResourceDump: b.URL + "/dump.xml"}); err == nil || !strings.Contains(err.Error(), "the source says md5:00") {
		t.Errorf("the error is %v", err)
	}
	b.has("x", "")
	// No more is unpacked than once the bytes of the ZIP file, however often the manifest names a
	// member: the other contents come from their URLs.
	noise := make([]byte, 3000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // it never fails
	text := string(noise)
	b.set("/n/b", text)
	b.set("/n/c", text)
	b.dump("2026-01-01T00:00:00Z", zipOf(manifest(b.in("/n/a", "/a", text), b.in("/n/b", "/a", text), b.in("/n/c", "/a", text), b.in("/n/d", "/d", "small")), zipped{"a", text}, zipped{"d", "small"}))
	b.right(&discovery.Source{ResourceDump: b.URL + "/dump.xml"})
	for _, name := range []string{"a", "b", "c", "d"} {
		if n, fetched := b.requests("/n/"+name), name == "b" || name == "c"; (n == 1) != fetched {
			t.Errorf("there were %d requests for %s", n, name)
		}
	}
}

// A package that broke off is gone on with, by the next run. Packages that were taken over
// are not read again.
func TestPackageBreaksOff(t *testing.T) {
	b := newBench(t)
	packages := []string{
		zipOf(manifest(b.in("/a", "/a", "a")), zipped{"a", "a"}),
		zipOf(manifest(b.in("/b", "/b", "b")), zipped{"b", "b"}),
	}
	b.dump("2026-01-01T00:00:00Z", packages...)
	var ranges atomic.Int32
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/p1.zip":
			b.serve(w, r)
		case r.Header.Get("Range") == "":
			w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(packages[1]))))
			w.Header().Set("Content-Length", strconv.Itoa(len(packages[1])))
			_, _ = w.Write([]byte(packages[1][:len(packages[1])/2]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			panic(http.ErrAbortHandler)
		}
	})
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	if _, err := b.once(source); err == nil {
		t.Error("a package that broke off was read")
	}
	b.has("a", "a")
	b.has("b", "")
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			ranges.Add(1)
		}
		b.serve(w, r)
	})
	b.reopen(DirectoryOptions{MaxDelete: reconcile.Bound{}})
	if left, err := b.once(source); err != nil || left.Resources != 0 {
		t.Fatalf("%+v is left, %v", left, err)
	}
	b.has("b", "b")
	if n, again := ranges.Load(), b.requests("/p0.zip")-1; n != 1 || again != 0 {
		t.Errorf("%d ranges were asked for, and package 0 was read %d times more", n, again)
	}
}

// A repair removes what the source lists no more, also if only one look was made before.
func TestRepairsExtra(t *testing.T) {
	b := newBench(t)
	list := func(names ...string) {
		var entries []string
		for _, name := range names {
			b.set(name, name)
			entries = append(entries, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name)))
		}
		b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries...))
	}
	list("/a", "/b")
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.right(source)
	list("/a")
	n := 0
	for p, err := range New(b.home, source, b.Directory, Options{HTTP: b.Client()}).Audit(t.Context(), b.Directory, AuditOptions{Repair: true}) {
		if n++; err != nil || p.Kind != Extra || !p.Repaired {
			t.Errorf("an audit finds %+v, %v", p, err)
		}
	}
	if n != 1 {
		t.Errorf("%d problems", n)
	}
	b.has("b", "")
	b.proved(source)
}
