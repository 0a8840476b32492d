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

func hashOf(text string) string { return fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text))) }

// A zipMember is a file in a ZIP file.
type zipMember struct{ path, text string }

func zipFiles(files ...zipMember) string {
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

// dumpEntry returns an entry of a manifest: a resource with a path in the package.
func (o *origin) dumpEntry(name, path, text string) string {
	return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md path="%s" hash="%s" length="%d"/></url>`, o.URL, name, path, hashOf(text), len(text))
}

func manifest(entries ...string) zipMember {
	return zipMember{"manifest.xml", document("resourcedump-manifest", `at="2026-01-01T00:00:00Z"`, entries...)}
}

// dump serves a Resource Dump of packages.
func (o *origin) dump(at string, packages ...string) {
	var entries []string
	for i, p := range packages {
		name := fmt.Sprintf("/p%d.zip", i)
		o.set(name, p)
		entries = append(entries, fmt.Sprintf(`<url><loc>%s</loc><rs:md hash="%s" length="%d"/></url>`, o.URL+name, hashOf(p), len(p)))
	}
	o.set("/dump.xml", document("resourcedump", `at="`+at+`"`, entries...))
}

// run mirrors a source once.
func (b *fixture) run(s *discovery.Source) (Backlog, error) {
	b.t.Helper()
	m := New(b.home, s, b.Directory, Options{HTTP: b.Client(), SourceTimeout: time.Second})
	m.lister.Getter.Tries, m.packages = 1, fetch.New(fetch.Options{Client: b.Client(), Attempts: 2, RetryPause: time.Millisecond})
	return m.Run(b.t.Context(), true)
}

func (b *fixture) mirror(s *discovery.Source) {
	b.t.Helper()
	left, err := b.run(s)
	if err != nil || left.Resources != 0 {
		b.t.Fatalf("Run() = %+v, %v, want an empty backlog", left, err)
	}
	b.wantInSync(s)
}

// wantInSync fails the test if an audit yields a problem.
func (b *fixture) wantInSync(s *discovery.Source) {
	b.t.Helper()
	for p, err := range New(b.home, s, b.Directory, Options{HTTP: b.Client()}).Audit(b.t.Context(), b.Directory, AuditOptions{}) {
		b.t.Errorf("Audit() yields %+v, %v, want nothing", p, err)
	}
}

// A Resource Dump is the baseline of a source that has no Resource List. Change Lists continue
// from it.
func TestResourceDump(t *testing.T) {
	b := newFixture(t)
	b.set("/wrong", "right at its place")
	b.dump("2026-01-01T00:00:00Z",
		zipFiles(manifest(b.dumpEntry("/a", "/x/a", "a"), b.dumpEntry("/dir/b", "/../../../b", "b"), b.dumpEntry("/empty", "/empty", "")),
			zipMember{"x/a", "a"}, zipMember{"../../../b", "b"}, zipMember{"empty", ""}, zipMember{"unnamed", "nobody's"}),
		zipFiles(manifest(b.dumpEntry("/wrong", "/wrong", "right at its place"), b.dumpEntry("/old", "/old", "old"), b.dumpEntry("/gone", "/gone", "gone")),
			zipMember{"wrong", "damaged in the package"}, zipMember{"old", "old"}, zipMember{"gone", "gone"}))
	change := func(name, what, text string) string {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-02T00:00:00Z" hash="%s"/></url>`, b.URL, name, what, hashOf(text))
	}
	b.set("/changes.xml", document("changelist", `from="2025-12-01T00:00:00Z"`,
		fmt.Sprintf(`<url><loc>%s/a</loc><rs:md change="deleted" datetime="2025-12-31T00:00:00Z"/></url>`, b.URL), // created again
		change("/old", "updated", "new"), change("/gone", "deleted", "")))
	b.set("/old", "new")
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml", ChangeList: b.URL + "/changes.xml"}
	b.mirror(source)
	for name, text := range map[string]string{"a": "a", "dir/b": "b", "wrong": "right at its place", "old": "new", "gone": "", "unnamed": ""} {
		b.wantFile(name, text)
	}
	if n := b.requestCount("/a") + b.requestCount("/dir/b") + b.requestCount("/empty"); n != 0 {
		t.Errorf("got %d requests for contents of the dump, want 0", n)
	}
	if n := b.home.Ledger.Counts().Files; n != 5 {
		t.Errorf("Counts().Files = %d, want 5", n)
	}
	if got := b.requestCount("/p0.zip"); got != 2 { // the second one by the audit
		t.Errorf("got %d requests for the package, want 2", got)
	}
	b.mirror(source)
	if got := b.requestCount("/p0.zip"); got != 1 {
		t.Errorf("got %d requests for the unchanged package, want 1, by the audit", got)
	}

	// Without Change Lists, the next dump shows what changed.
	source.ChangeList = ""
	b.dump("2026-01-03T00:00:00Z", zipFiles(manifest(b.dumpEntry("/a", "/a", "newer"), b.dumpEntry("/wrong", "/wrong", "right at its place")), zipMember{"a", "newer"}))
	b.mirror(source)
	b.wantFile("a", "newer")
	b.wantFile("dir/b", "")
	if n := b.home.Ledger.Counts().Files; n != 2 {
		t.Errorf("Counts().Files = %d, want 2", n)
	}
	if _, err := b.home.Root.Stat(b.home.PackageFile()); err == nil {
		t.Error("the file of a package still exists")
	}

	// A Resource List is preferred.
	b.requestCount("/dump.xml")
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, fmt.Sprintf(`<url><loc>%s/wrong</loc><rs:md hash="%s"/></url>`, b.URL, hashOf("right at its place"))))
	source.ResourceList = b.URL + "/list.xml"
	b.mirror(source)
	if b.requestCount("/dump.xml") != 0 || b.home.Ledger.Counts().Files != 1 {
		t.Error("the dump was read, want the list")
	}
}

// A dump without metadata of its packages is read every time: nothing else shows whether they
// have changed.
func TestResourceDumpWithoutMetadata(t *testing.T) {
	b := newFixture(t)
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	for _, times := range []string{"", `at="9999-01-01T00:00:00Z"`} { // a future time is ignored
		b.set("/dump.xml", document("resourcedump", times, `<url><loc>`+b.URL+`/p.zip</loc></url>`))
		for _, text := range []string{"one", "two"} {
			b.set("/p.zip", zipFiles(manifest(b.dumpEntry("/a", "/a", text)), zipMember{"a", text}))
			b.mirror(source)
			b.wantFile("a", text)
		}
	}
}

// If contents are not needed, the copy of a manifest replaces the package.
func TestLinkedManifest(t *testing.T) {
	b := newFixture(t)
	m := manifest(b.dumpEntry("/a", "/a", "a"))
	p := zipFiles(m, zipMember{"a", "a"})
	b.set("/p.zip", p)
	b.set("/manifest.xml", m.text)
	b.set("/dump.xml", document("resourcedump", `at="2026-01-01T00:00:00Z"`, `<url><loc>p.zip</loc><rs:ln rel="contents" href="/manifest.xml"/></url>`))
	b.set("/index.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("resourcedump", `at="2026-01-01T00:00:00Z"`, `<sitemap><loc>`+b.URL+`/dump.xml</loc></sitemap>`)))
	source := &discovery.Source{ResourceDump: b.URL + "/index.xml"}
	b.mirror(source)
	b.wantFile("a", "a")
	if zips, manifests := b.requestCount("/p.zip"), b.requestCount("/manifest.xml"); zips != 1 || manifests != 1 {
		t.Errorf("got requests for %d packages and %d manifests, want 1 and 1", zips, manifests)
	}
	var lines bytes.Buffer
	h, err := home.Open(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := New(h, source, Lines{&lines}, Options{HTTP: b.Client()}).Run(t.Context(), true); err != nil || !strings.HasPrefix(lines.String(), `{"loc":"`+b.URL+`/a",`) {
		t.Errorf("got lines\n%s%v, want a line for /a", &lines, err)
	}
	if b.requestCount("/p.zip") != 0 {
		t.Error("the package was read, want only the manifest")
	}
}

// An invalid package changes nothing.
func TestPackageInvalid(t *testing.T) {
	b := newFixture(t)
	long := strings.Repeat("0", 1<<20)
	type invalid struct{ name, zip, says string }
	var large []invalid
	if !testing.Short() {
		many := make([]zipMember, 0, 35_000)
		for i := range cap(many) {
			many = append(many, zipMember{fmt.Sprintf("%01000d", i), ""})
		}
		large = append(large, invalid{"oversized directory", zipFiles(many...), "directory: got more than"})
	}
	for _, test := range append(large, []invalid{
		{"HTML", "<html>", "ZIP file"},
		{"truncated", zipFiles(manifest())[:60], "ZIP file"},
		{"manifest missing", zipFiles(zipMember{"x/manifest.xml", manifest().text}), "manifest.xml is missing"},
		{"manifest of a list", zipFiles(zipMember{"manifest.xml", document("resourcelist", "")}), "want resourcedump-manifest"},
		{"manifest of plain text", zipFiles(zipMember{"manifest.xml", "http://example.org/\n"}), "want a ResourceSync document"},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			b.dump("2026-01-01T00:00:00Z", test.zip)
			_, err := b.run(&discovery.Source{ResourceDump: b.URL + "/dump.xml"})
			if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Run() with %s = %v, want a SourceError with %q", test.name, err, test.says)
			}
			if n := b.home.Ledger.Counts().Files; n != 0 {
				t.Errorf("Counts().Files with %s = %d, want 0", test.name, n)
			}
		})
	}

	// Unpacking stops at the length in the manifest.
	b.dump("2026-01-01T00:00:00Z", zipFiles(manifest(b.dumpEntry("/bomb", "/bomb", "short")), zipMember{"bomb", strings.Repeat(long, 20)}))
	if left, err := b.run(&discovery.Source{ResourceDump: b.URL + "/dump.xml"}); err != nil || left.Resources != 1 {
		t.Errorf("Run() = %+v, %v, want a backlog of 1", left, err)
	}
	// A package with another hash than in the dump is not read.
	b.set("/p0.zip", zipFiles(manifest(b.dumpEntry("/x", "/x", "x")), zipMember{"x", "x"}))
	b.set("/dump.xml", document("resourcedump", "", `<url><loc>`+b.URL+`/p0.zip</loc><rs:md hash="md5:00"/></url>`))
	if _, err := b.run(&discovery.Source{ResourceDump: b.URL + "/dump.xml"}); err == nil || !strings.Contains(err.Error(), "want md5:00") {
		t.Errorf("Run() = %v, want an error about the hash", err)
	}
	b.wantFile("x", "")
	// The unpacked members have at most the compressed bytes of the ZIP file, even if the manifest
	// names a member repeatedly: the other contents are fetched from their URLs.
	noise := make([]byte, 3000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // it never fails
	text := string(noise)
	b.set("/n/b", text)
	b.set("/n/c", text)
	b.dump("2026-01-01T00:00:00Z", zipFiles(manifest(b.dumpEntry("/n/a", "/a", text), b.dumpEntry("/n/b", "/a", text), b.dumpEntry("/n/c", "/a", text), b.dumpEntry("/n/d", "/d", "small")), zipMember{"a", text}, zipMember{"d", "small"}))
	b.mirror(&discovery.Source{ResourceDump: b.URL + "/dump.xml"})
	for _, name := range []string{"a", "b", "c", "d"} {
		if n, fetched := b.requestCount("/n/"+name), name == "b" || name == "c"; (n == 1) != fetched {
			t.Errorf("got %d requests for %s, want requests: %v", n, name, fetched)
		}
	}
}

// The next run resumes an interrupted package, and does not read applied packages again.
func TestPackageInterrupted(t *testing.T) {
	b := newFixture(t)
	packages := []string{
		zipFiles(manifest(b.dumpEntry("/a", "/a", "a")), zipMember{"a", "a"}),
		zipFiles(manifest(b.dumpEntry("/b", "/b", "b")), zipMember{"b", "b"}),
	}
	b.dump("2026-01-01T00:00:00Z", packages...)
	var ranges atomic.Int32
	b.handle(func(w http.ResponseWriter, r *http.Request) {
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
	if _, err := b.run(source); err == nil {
		t.Error("Run() with an interrupted package = nil, want an error")
	}
	b.wantFile("a", "a")
	b.wantFile("b", "")
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			ranges.Add(1)
		}
		b.serve(w, r)
	})
	b.reopen(DirectoryOptions{MaxDelete: reconcile.Bound{}})
	if left, err := b.run(source); err != nil || left.Resources != 0 {
		t.Fatalf("Run() = %+v, %v, want an empty backlog", left, err)
	}
	b.wantFile("b", "b")
	if n, again := ranges.Load(), b.requestCount("/p0.zip")-1; n != 1 || again != 0 {
		t.Errorf("got %d range requests and %d more requests for package 0, want 1 and 0", n, again)
	}
}

// A repair removes resources that the source no longer lists, even after a single poll.
func TestRepairExtra(t *testing.T) {
	b := newFixture(t)
	list := func(names ...string) {
		var entries []string
		for _, name := range names {
			b.set(name, name)
			entries = append(entries, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name)))
		}
		b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries...))
	}
	list("/a", "/b")
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.mirror(source)
	list("/a")
	n := 0
	for p, err := range New(b.home, source, b.Directory, Options{HTTP: b.Client()}).Audit(t.Context(), b.Directory, AuditOptions{Repair: true}) {
		if n++; err != nil || p.Kind != Extra || !p.Repaired {
			t.Errorf("Audit() yields %+v, %v, want a repaired Extra", p, err)
		}
	}
	if n != 1 {
		t.Errorf("got %d problems, want 1", n)
	}
	b.wantFile("b", "")
	b.wantInSync(source)
}
