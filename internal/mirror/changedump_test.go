package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// dumpChange returns an entry of the manifest of a package, on a day of January 2026. The empty
// text means that the resource was deleted.
func (o *origin) dumpChange(day, name, path, text string) string {
	if text == "" {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="deleted" datetime="2026-01-%sT00:00:00Z"/></url>`, o.URL, name, day)
	}
	return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="updated" datetime="2026-01-%sT00:00:00Z" path="%s" hash="%s" length="%d"/></url>`, o.URL, name, day, path, hashOf(text), len(text))
}

func changeManifest(entries ...string) zipMember {
	return zipMember{"manifest.xml", document("changedump-manifest", `from="2026-01-01T00:00:00Z"`, entries...)}
}

// dumpPackage serves a package with the changes of some days, and returns its entry in a Change
// Dump.
func (o *origin) dumpPackage(from, until string, files ...zipMember) string {
	name, text := fmt.Sprintf("/c%s.zip", from), zipFiles(files...)
	o.set(name, text)
	return fmt.Sprintf(`<url><loc>%s</loc><rs:md from="2026-01-%sT00:00:00Z" until="2026-01-%sT00:00:00Z" hash="%s"/></url>`, o.URL+name, from, until, hashOf(text))
}

func (o *origin) changeDump(from string, packages ...string) {
	o.set("/changedump.xml", document("changedump", `from="2026-01-`+from+`T00:00:00Z"`, packages...))
}

// wantFiles fails the test unless the mirror has exactly these files.
func (b *fixture) wantFiles(files map[string]string) {
	b.t.Helper()
	for name, text := range files {
		b.wantFile(name, text)
	}
	if n := b.home.Ledger.Counts().Files; n != int64(len(files)) {
		b.t.Errorf("Counts().Files = %d, want %d", n, len(files))
	}
}

// wantPackageRequests fails the test unless exactly these packages were requested since the last call.
func (b *fixture) wantPackageRequests(packages ...string) {
	b.t.Helper()
	b.origin.mu.Lock()
	defer b.origin.mu.Unlock()
	for name, n := range b.counts {
		if want := strings.Contains(strings.Join(packages, " "), name); strings.HasSuffix(name, ".zip") && n > 0 != want {
			b.t.Errorf("got %d requests for %s, want requests: %v", n, name, want)
		}
		delete(b.counts, name)
	}
}

// The Resource Dump is the baseline of a source that has only dumps, and Change Dumps continue
// from it. Each package is read once.
func TestChangeDump(t *testing.T) {
	b := newFixture(t)
	once := func(s *discovery.Source) {
		t.Helper()
		if left, err := b.run(s); err != nil || left.Resources != 0 {
			t.Fatalf("Run() = %+v, %v, want an empty backlog", left, err)
		}
	}
	b.dump("2026-01-02T00:00:00Z", zipFiles(
		manifest(b.dumpEntry("/a", "/a", "a2"), b.dumpEntry("/b", "/b", "b1"), b.dumpEntry("/gone", "/gone", "g"), b.dumpEntry("/same", "/same", "s")),
		zipMember{"a", "a2"}, zipMember{"b", "b1"}, zipMember{"gone", "g"}, zipMember{"same", "s"}))
	first := b.dumpPackage("01", "04",
		changeManifest(b.dumpChange("01", "/a", "/1", "a1"), b.dumpChange("01", "/same", "", ""), b.dumpChange("02", "/a", "/2", "a2"), b.dumpChange("03", "/b", "/3", "b2"), b.dumpChange("03", "/new", "/4", "n1")),
		zipMember{"1", "a1"}, zipMember{"2", "a2"}, zipMember{"3", "b2"}, zipMember{"4", "n1"})
	second := b.dumpPackage("04", "06",
		changeManifest(b.dumpChange("04", "/b", "/1", "b3"), b.dumpChange("04", "/gone", "", ""), b.dumpChange("05", "/b", "/2", "b4"), b.dumpChange("05", "/brief", "/3", "x"), b.dumpChange("05", "/wrong", "/4", "right"), b.dumpChange("06", "/brief", "", "")),
		zipMember{"1", "b3"}, zipMember{"2", "b4"}, zipMember{"3", "x"}, zipMember{"4", "wrong"})
	b.set("/wrong", "right")
	b.changeDump("01", second, first) // out of order, but each states its period
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml", ChangeDump: b.URL + "/changedump.xml"}
	once(source)
	have := map[string]string{"a": "a2", "b": "b4", "new": "n1", "wrong": "right", "same": "s"}
	b.wantFiles(have)
	if n := b.requestCount("/a") + b.requestCount("/b") + b.requestCount("/new") + b.requestCount("/brief"); n != 0 {
		t.Errorf("got %d requests for contents of a package, want 0", n)
	}
	if n := b.requestCount("/wrong"); n != 1 {
		t.Errorf("got %d requests for the content that is wrong in the package, want 1", n)
	}
	b.wantInSync(source)
	b.wantPackageRequests("/p0.zip", "/c01.zip", "/c04.zip")

	// The next poll reads only what is new.
	once(source)
	b.wantPackageRequests()
	third := b.dumpPackage("06", "08", changeManifest(b.dumpChange("07", "/a", "/1", "a3")), zipMember{"1", "a3"})
	b.changeDump("01", first, second, third)
	once(source)
	have["a"] = "a3"
	b.wantFiles(have)
	b.wantPackageRequests("/c06.zip")

	// A package that is read again because its metadata differs does not bring back an old
	// content: nothing of it is unpacked.
	fetched := 0
	b.reopen(DirectoryOptions{OnAction: func(d Action) {
		if d.Kind == Fetched {
			fetched++
		}
	}})
	b.changeDump("01", strings.ReplaceAll(first+second+third, `<rs:md `, `<lastmod>2026-01-09T00:00:00Z</lastmod><rs:md `))
	once(source)
	b.wantFiles(have)
	if fetched > 0 {
		t.Errorf("got %d unpacked contents, want 0", fetched)
	}

	// A dump continues where the earlier packages ended, although no change has that time.
	b.changeDump("08", b.dumpPackage("08", "09", changeManifest(b.dumpChange("08", "/b", "/1", "b5")), zipMember{"1", "b5"}))
	b.requestCount("/dump.xml")
	once(source)
	have["b"] = "b5"
	b.wantFiles(have)
	if b.requestCount("/dump.xml") != 0 {
		t.Error("the Resource Dump was read again, want only the Change Dump")
	}

	// A dump that starts later does not name the changes in between.
	b.changeDump("12", b.dumpPackage("12", "13", changeManifest(b.dumpChange("12", "/late", "/1", "l")), zipMember{"1", "l"}))
	b.dump("2026-01-12T00:00:00Z", zipFiles(manifest(b.dumpEntry("/a", "/a", "a4"), b.dumpEntry("/same", "/same", "s")), zipMember{"a", "a4"}, zipMember{"same", "s"}))
	once(source)
	b.wantFiles(map[string]string{"a": "a4", "same": "s", "late": "l"})

	// Change Lists take precedence.
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	source.ChangeList = b.URL + "/changes.xml"
	b.requestCount("/changedump.xml")
	once(source)
	if b.requestCount("/changedump.xml") != 0 {
		t.Error("the Change Dump was read, want the Change List")
	}
}

// An older content in a package never replaces a newer one, in any order, even if the package
// lacks the newer content.
func TestChangeDumpOutOfOrder(t *testing.T) {
	b := newFixture(t)
	b.set("/b", "new")
	b.changeDump("01", b.dumpPackage("01", "09",
		changeManifest(b.dumpChange("05", "/a", "/1", "new"), b.dumpChange("04", "/a", "/2", "old"), b.dumpChange("03", "/b", "/2", "old"), fmt.Sprintf(`<url><loc>%s/b</loc><rs:md change="updated" datetime="2026-01-05T00:00:00Z" path="/none"/></url>`, b.URL),
			b.dumpChange("06", "/gone", "", ""), b.dumpChange("05", "/gone", "/2", "old")),
		zipMember{"1", "new"}, zipMember{"2", "old"}))
	b.mirror(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"})
	b.wantFiles(map[string]string{"a": "new", "b": "new"})
}

// A sitemap does not state its time. A change that is older than the lastmod in the sitemap is
// not applied.
func TestChangeDumpAfterSitemap(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "new")
	b.set("/sitemap.xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`+b.URL+`/a</loc><lastmod>2026-01-05T00:00:00Z</lastmod></url></urlset>`)
	b.changeDump("01", b.dumpPackage("01", "09",
		changeManifest(strings.Replace(b.dumpChange("04", "/a", "/1", "old"), "<rs:md", "<lastmod>2026-01-04T00:00:00Z</lastmod><rs:md", 1)), zipMember{"1", "old"}))
	b.mirror(&discovery.Source{Sitemap: b.URL + "/sitemap.xml", ChangeDump: b.URL + "/changedump.xml"})
	b.wantFile("a", "new")
}

// A Change Dump that a source adds later has changes that the Resource Dump already includes.
func TestChangeDumpAddedLater(t *testing.T) {
	b := newFixture(t)
	b.dump("2026-01-05T00:00:00Z", zipFiles(manifest(b.dumpEntry("/a", "/a", "new")), zipMember{"a", "new"}))
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	b.mirror(source)
	source.ChangeDump = b.URL + "/changedump.xml"
	b.changeDump("01", b.dumpPackage("01", "04", changeManifest(b.dumpChange("03", "/a", "/1", "old")), zipMember{"1", "old"}))
	b.mirror(source)
	b.wantFiles(map[string]string{"a": "new"})
}

// An index names dumps. A dump that ended before the last poll is not read. If contents are not
// needed, the copy of a manifest replaces the package.
func TestChangeDumpIndex(t *testing.T) {
	b := newFixture(t)
	index := func(dumps ...string) {
		b.set("/index.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("changedump", `from="2026-01-01T00:00:00Z"`, dumps...)))
	}
	serve := func(name, from string, files ...zipMember) {
		b.dumpPackage(from, "09", files...)
		b.set("/"+name+"-manifest.xml", files[0].text)
		b.set("/"+name, document("changedump", `from="2026-01-`+from+`T00:00:00Z"`,
			`<url><loc>c`+from+`.zip</loc><lastmod>2026-01-09T00:00:00Z</lastmod><rs:ln rel="contents" href="`+name+`-manifest.xml"/></url>`))
	}
	old := `<sitemap><loc>` + b.URL + `/old</loc><rs:md from="2026-01-01T00:00:00Z" until="2026-01-03T00:00:00Z"/></sitemap>`
	serve("old", "01", changeManifest(b.dumpChange("02", "/a", "/a", "a1")), zipMember{"a", "a1"})
	serve("open", "03", changeManifest(b.dumpChange("04", "/a", "/a", "a2"), `<url><loc>b</loc><lastmod>2026-01-04T00:00:00Z</lastmod><changefreq>often</changefreq><rs:md change="created" path="/b"/></url>`), zipMember{"a", "a2"}, zipMember{"b", "b"})
	index(old, `<sitemap><loc>open</loc><rs:md from="2026-01-03T00:00:00Z"/></sitemap>`)
	source := &discovery.Source{ChangeDump: b.URL + "/index.xml"}

	var lines bytes.Buffer
	h, err := home.Open(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := New(h, source, Lines{&lines}, Options{HTTP: b.Client()}).Run(t.Context(), true); err != nil || strings.Count(lines.String(), "\n") != 3 || strings.Contains(lines.String(), "path") {
		t.Errorf("got lines\n%s%v, want 3 lines without path", &lines, err)
	}
	b.wantPackageRequests()

	b.mirror(source)
	b.wantFiles(map[string]string{"a": "a2", "b": "b"})
	b.requestCount("/old")
	b.mirror(source)
	if b.requestCount("/old") != 0 {
		t.Error("a dump that ended before the last poll was read again")
	}
	b.set("/index2.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("changedump", `from="2026-01-01T00:00:00Z"`, `<sitemap><loc>index.xml</loc></sitemap>`)))
	if _, err := b.run(&discovery.Source{ChangeDump: b.URL + "/index2.xml"}); err == nil || !strings.Contains(err.Error(), "may name only dumps") {
		t.Errorf("Run() with a nested index = %v, want an error about the nesting", err)
	}
}

// An invalid dump or package changes nothing, and the error names the defect.
func TestChangeDumpInvalid(t *testing.T) {
	b := newFixture(t)
	for _, test := range []struct {
		name  string
		files []zipMember
		says  string
	}{
		{"manifest missing", []zipMember{{"x", "x"}}, "manifest.xml is missing"},
		{"manifest of a Resource Dump", []zipMember{manifest()}, "want changedump-manifest"},
		{"change without a time", []zipMember{changeManifest(`<url><loc>` + b.URL + `/a</loc><rs:md change="updated" path="/a"/></url>`)}, "no datetime and no lastmod"},
		{"change without a type", []zipMember{changeManifest(`<url><loc>` + b.URL + `/a</loc><rs:md datetime="2026-01-02T00:00:00Z" path="/a"/></url>`)}, "change is missing"},
		{"invalid loc", []zipMember{changeManifest(b.dumpChange("02", "/%zz", "/a", "a"))}, "loc"},
		{"oversized manifest", []zipMember{{"manifest.xml", "<urlset>" + strings.Repeat(" ", 51<<20)}}, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() && test.name == "oversized manifest" {
				t.Skip("long: reads 50 MiB")
			}
			b.changeDump("01", b.dumpPackage("01", "09", test.files...))
			_, err := b.run(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"})
			if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Run() = %v, want a SourceError with %q", err, test.says)
			}
			if n := b.home.Ledger.Counts().Files; n != 0 {
				t.Errorf("Counts().Files = %d, want 0", n)
			}
		})
	}
	// A path in a package is not a path of a file, and a content may not exceed the length in the manifest.
	b.changeDump("01", b.dumpPackage("01", "09",
		changeManifest(b.dumpChange("02", "/a", "/../../a", "a"), b.dumpChange("02", "/bomb", "/bomb", "short")), zipMember{"../../a", "a"}, zipMember{"bomb", strings.Repeat("0", 20<<20)}))
	if left, err := b.run(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"}); err != nil || left.Resources != 1 {
		t.Errorf("Run() = %+v, %v, want a backlog of 1", left, err)
	}
	b.wantFiles(map[string]string{"a": "a"})
}

// Packages that were applied before a package failed are not read again.
func TestChangeDumpInterrupted(t *testing.T) {
	b := newFixture(t)
	b.changeDump("01",
		b.dumpPackage("01", "02", changeManifest(b.dumpChange("05", "/a", "/a", "a")), zipMember{"a", "a"}), // its datetimes are outside its period
		b.dumpPackage("02", "03", changeManifest(b.dumpChange("02", "/b", "/b", "b")), zipMember{"b", "b"}))
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/c02.zip" {
			panic(http.ErrAbortHandler)
		}
		b.serve(w, r)
	})
	source := &discovery.Source{ChangeDump: b.URL + "/changedump.xml"}
	if _, err := b.run(source); err == nil {
		t.Error("Run() with an interrupted package = nil, want an error")
	}
	b.wantFiles(map[string]string{"a": "a"})
	b.wantPackageRequests("/c01.zip")
	b.handle(nil)
	b.reopen(DirectoryOptions{MaxDelete: reconcile.Bound{}})
	b.mirror(source)
	b.wantFiles(map[string]string{"a": "a", "b": "b"})
	b.wantPackageRequests("/c02.zip")
}
