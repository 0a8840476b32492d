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

// changed returns an entry of the manifest of a package, at a day of January 2026; an empty
// text: the resource was deleted.
func (o *origin) changed(day, name, path, text string) string {
	if text == "" {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="deleted" datetime="2026-01-%sT00:00:00Z"/></url>`, o.URL, name, day)
	}
	return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="updated" datetime="2026-01-%sT00:00:00Z" path="%s" hash="%s" length="%d"/></url>`, o.URL, name, day, path, sumOf(text), len(text))
}

func changeManifest(entries ...string) zipped {
	return zipped{"manifest.xml", document("changedump-manifest", `from="2026-01-01T00:00:00Z"`, entries...)}
}

// changes returns the entry of a Change Dump for a package with the changes of some days, and
// serves the package.
func (o *origin) changes(from, until string, files ...zipped) string {
	name, text := fmt.Sprintf("/c%s.zip", from), zipOf(files...)
	o.set(name, text)
	return fmt.Sprintf(`<url><loc>%s</loc><rs:md from="2026-01-%sT00:00:00Z" until="2026-01-%sT00:00:00Z" hash="%s"/></url>`, o.URL+name, from, until, sumOf(text))
}

func (o *origin) changeDump(from string, packages ...string) {
	o.set("/changedump.xml", document("changedump", `from="2026-01-`+from+`T00:00:00Z"`, packages...))
}

// all fails the test unless the mirror has these files, and no others.
func (b *bench) all(files map[string]string) {
	b.t.Helper()
	for name, text := range files {
		b.has(name, text)
	}
	if n := b.home.Ledger.Counts().Files; n != int64(len(files)) {
		b.t.Errorf("there are %d files, want %d", n, len(files))
	}
}

// onlyAsked fails the test unless the packages that were asked for since the last call are these.
func (b *bench) onlyAsked(packages ...string) {
	b.t.Helper()
	b.origin.mu.Lock()
	defer b.origin.mu.Unlock()
	for name, n := range b.asked {
		if want := strings.Contains(strings.Join(packages, " "), name); strings.HasSuffix(name, ".zip") && n > 0 != want {
			b.t.Errorf("%s was asked for %d times", name, n)
		}
		delete(b.asked, name)
	}
}

// A source that has only dumps: the Resource Dump is the baseline, and Change Dumps go on from
// it. Each package is read once.
func TestChangeDump(t *testing.T) {
	b := newBench(t)
	once := func(s *discovery.Source) {
		t.Helper()
		if left, err := b.once(s); err != nil || left.Resources != 0 {
			t.Fatalf("%+v is left, %v", left, err)
		}
	}
	b.dump("2026-01-02T00:00:00Z", zipOf(
		manifest(b.in("/a", "/a", "a2"), b.in("/b", "/b", "b1"), b.in("/gone", "/gone", "g"), b.in("/same", "/same", "s")),
		zipped{"a", "a2"}, zipped{"b", "b1"}, zipped{"gone", "g"}, zipped{"same", "s"}))
	first := b.changes("01", "04",
		changeManifest(b.changed("01", "/a", "/1", "a1"), b.changed("01", "/same", "", ""), b.changed("02", "/a", "/2", "a2"), b.changed("03", "/b", "/3", "b2"), b.changed("03", "/new", "/4", "n1")),
		zipped{"1", "a1"}, zipped{"2", "a2"}, zipped{"3", "b2"}, zipped{"4", "n1"})
	second := b.changes("04", "06",
		changeManifest(b.changed("04", "/b", "/1", "b3"), b.changed("04", "/gone", "", ""), b.changed("05", "/b", "/2", "b4"), b.changed("05", "/brief", "/3", "x"), b.changed("05", "/wrong", "/4", "right"), b.changed("06", "/brief", "", "")),
		zipped{"1", "b3"}, zipped{"2", "b4"}, zipped{"3", "x"}, zipped{"4", "wrong"})
	b.set("/wrong", "right")
	b.changeDump("01", second, first) // in no order, but each says when it begins
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml", ChangeDump: b.URL + "/changedump.xml"}
	once(source)
	have := map[string]string{"a": "a2", "b": "b4", "new": "n1", "wrong": "right", "same": "s"}
	b.all(have)
	if n := b.requests("/a") + b.requests("/b") + b.requests("/new") + b.requests("/brief"); n != 0 {
		t.Errorf("what is in a package was asked for %d times", n)
	}
	if n := b.requests("/wrong"); n != 1 {
		t.Errorf("what is wrong in a package was asked for %d times", n)
	}
	b.proved(source)
	b.onlyAsked("/p0.zip", "/c01.zip", "/c04.zip")

	// The next look reads what is new, and no more.
	once(source)
	b.onlyAsked()
	third := b.changes("06", "08", changeManifest(b.changed("07", "/a", "/1", "a3")), zipped{"1", "a3"})
	b.changeDump("01", first, second, third)
	once(source)
	have["a"] = "a3"
	b.all(have)
	b.onlyAsked("/c06.zip")

	// A package that is read again, because the dump has it under another name, brings nothing
	// old back: nothing of it is got at all.
	fetched := 0
	b.reopen(DirectoryOptions{OnAction: func(d Action) {
		if d.Kind == Fetched {
			fetched++
		}
	}})
	b.changeDump("01", strings.ReplaceAll(first+second+third, `<rs:md `, `<lastmod>2026-01-09T00:00:00Z</lastmod><rs:md `))
	once(source)
	b.all(have)
	if fetched > 0 {
		t.Errorf("%d contents were unpacked again", fetched)
	}

	// A dump goes on where the packages before it ended, although no change was then.
	b.changeDump("08", b.changes("08", "09", changeManifest(b.changed("08", "/b", "/1", "b5")), zipped{"1", "b5"}))
	b.requests("/dump.xml")
	once(source)
	have["b"] = "b5"
	b.all(have)
	if b.requests("/dump.xml") != 0 {
		t.Error("the Resource Dump was read, and nothing is missing")
	}

	// A dump that begins later does not say what changed between.
	b.changeDump("12", b.changes("12", "13", changeManifest(b.changed("12", "/late", "/1", "l")), zipped{"1", "l"}))
	b.dump("2026-01-12T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "a4"), b.in("/same", "/same", "s")), zipped{"a", "a4"}, zipped{"same", "s"}))
	once(source)
	b.all(map[string]string{"a": "a4", "same": "s", "late": "l"})

	// Change Lists come first.
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	source.ChangeList = b.URL + "/changes.xml"
	b.requests("/changedump.xml")
	once(source)
	if b.requests("/changedump.xml") != 0 {
		t.Error("the Change Dump was read although there is a Change List")
	}
}

// An older content in a package never takes the place of a newer one, in whatever order they
// stand there, and whatever the package has for the newer one.
func TestChangeDumpOutOfOrder(t *testing.T) {
	b := newBench(t)
	b.set("/b", "new")
	b.changeDump("01", b.changes("01", "09",
		changeManifest(b.changed("05", "/a", "/1", "new"), b.changed("04", "/a", "/2", "old"), b.changed("03", "/b", "/2", "old"), fmt.Sprintf(`<url><loc>%s/b</loc><rs:md change="updated" datetime="2026-01-05T00:00:00Z" path="/none"/></url>`, b.URL),
			b.changed("06", "/gone", "", ""), b.changed("05", "/gone", "/2", "old")),
		zipped{"1", "new"}, zipped{"2", "old"}))
	b.right(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"})
	b.all(map[string]string{"a": "new", "b": "new"})
}

// A sitemap does not say of when it is. What was modified before the version that it names
// stays away.
func TestChangeDumpAfterSitemap(t *testing.T) {
	b := newBench(t)
	b.set("/a", "new")
	b.set("/sitemap.xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`+b.URL+`/a</loc><lastmod>2026-01-05T00:00:00Z</lastmod></url></urlset>`)
	b.changeDump("01", b.changes("01", "09",
		changeManifest(strings.Replace(b.changed("04", "/a", "/1", "old"), "<rs:md", "<lastmod>2026-01-04T00:00:00Z</lastmod><rs:md", 1)), zipped{"1", "old"}))
	b.right(&discovery.Source{Sitemap: b.URL + "/sitemap.xml", ChangeDump: b.URL + "/changedump.xml"})
	b.has("a", "new")
}

// A source that offers a Change Dump later has changes in it that are in the Resource Dump, too.
func TestChangeDumpComesLater(t *testing.T) {
	b := newBench(t)
	b.dump("2026-01-05T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "new")), zipped{"a", "new"}))
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	b.right(source)
	source.ChangeDump = b.URL + "/changedump.xml"
	b.changeDump("01", b.changes("01", "04", changeManifest(b.changed("03", "/a", "/1", "old")), zipped{"1", "old"}))
	b.right(source)
	b.all(map[string]string{"a": "new"})
}

// An index names dumps. One that ended before the last look is not read. The copy of a manifest
// is enough where contents are not needed.
func TestChangeDumpIndex(t *testing.T) {
	b := newBench(t)
	index := func(dumps ...string) {
		b.set("/index.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("changedump", `from="2026-01-01T00:00:00Z"`, dumps...)))
	}
	serve := func(name, from string, files ...zipped) {
		b.changes(from, "09", files...)
		b.set("/"+name+"-manifest.xml", files[0].text)
		b.set("/"+name, document("changedump", `from="2026-01-`+from+`T00:00:00Z"`,
			`<url><loc>c`+from+`.zip</loc><lastmod>2026-01-09T00:00:00Z</lastmod><rs:ln rel="contents" href="`+name+`-manifest.xml"/></url>`))
	}
	old := `<sitemap><loc>` + b.URL + `/old</loc><rs:md from="2026-01-01T00:00:00Z" until="2026-01-03T00:00:00Z"/></sitemap>`
	serve("old", "01", changeManifest(b.changed("02", "/a", "/a", "a1")), zipped{"a", "a1"})
	serve("open", "03", changeManifest(b.changed("04", "/a", "/a", "a2"), `<url><loc>b</loc><lastmod>2026-01-04T00:00:00Z</lastmod><changefreq>often</changefreq><rs:md change="created" path="/b"/></url>`), zipped{"a", "a2"}, zipped{"b", "b"})
	index(old, `<sitemap><loc>open</loc><rs:md from="2026-01-03T00:00:00Z"/></sitemap>`)
	source := &discovery.Source{ChangeDump: b.URL + "/index.xml"}

	var lines bytes.Buffer
	h, err := home.Open(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := New(h, source, Lines{&lines}, Options{HTTP: b.Client()}).Run(t.Context(), true); err != nil || strings.Count(lines.String(), "\n") != 3 || strings.Contains(lines.String(), "path") {
		t.Errorf("the changes are %s, %v", &lines, err)
	}
	b.onlyAsked()

	b.right(source)
	b.all(map[string]string{"a": "a2", "b": "b"})
	b.requests("/old")
	b.right(source)
	if b.requests("/old") != 0 {
		t.Error("a dump that ended before the last look was read again")
	}
	b.set("/index2.xml", strings.NewReplacer("urlset", "sitemapindex").Replace(document("changedump", `from="2026-01-01T00:00:00Z"`, `<sitemap><loc>index.xml</loc></sitemap>`)))
	if _, err := b.once(&discovery.Source{ChangeDump: b.URL + "/index2.xml"}); err == nil || !strings.Contains(err.Error(), "may name only dumps") {
		t.Errorf("an index in an index: %v", err)
	}
}

// A dump or a package that is wrong changes nothing, and what is wrong is said.
func TestHostileChangeDumps(t *testing.T) {
	b := newBench(t)
	for _, test := range []struct {
		name  string
		files []zipped
		says  string
	}{
		{"no manifest", []zipped{{"x", "x"}}, "no manifest.xml"},
		{"another document", []zipped{manifest()}, "want changedump-manifest"},
		{"no time", []zipped{changeManifest(`<url><loc>` + b.URL + `/a</loc><rs:md change="updated" path="/a"/></url>`)}, "no datetime and no lastmod"},
		{"no change", []zipped{changeManifest(`<url><loc>` + b.URL + `/a</loc><rs:md datetime="2026-01-02T00:00:00Z" path="/a"/></url>`)}, "change is missing"},
		{"no URL", []zipped{changeManifest(b.changed("02", "/%zz", "/a", "a"))}, "loc"},
		{"a long manifest", []zipped{{"manifest.xml", "<urlset>" + strings.Repeat(" ", 51<<20)}}, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() && test.name == "a long manifest" {
				t.Skip("long: reads 50 MiB")
			}
			b.changeDump("01", b.changes("01", "09", test.files...))
			_, err := b.once(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"})
			if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v", err)
			}
			if n := b.home.Ledger.Counts().Files; n != 0 {
				t.Errorf("there are %d files", n)
			}
		})
	}
	// A path in a package is no path of a file, and a content has no more than the manifest says.
	b.changeDump("01", b.changes("01", "09",
		changeManifest(b.changed("02", "/a", "/../../a", "a"), b.changed("02", "/bomb", "/bomb", "short")), zipped{"../../a", "a"}, zipped{"bomb", strings.Repeat("0", 20<<20)}))
	if left, err := b.once(&discovery.Source{ChangeDump: b.URL + "/changedump.xml"}); err != nil || left.Resources != 1 {
		t.Errorf("%+v is left, %v", left, err)
	}
	b.all(map[string]string{"a": "a"})
}

// What was taken over before a package failed is not read again.
func TestChangeDumpBreaksOff(t *testing.T) {
	b := newBench(t)
	b.changeDump("01",
		b.changes("01", "02", changeManifest(b.changed("05", "/a", "/a", "a")), zipped{"a", "a"}), // its times are wrong
		b.changes("02", "03", changeManifest(b.changed("02", "/b", "/b", "b")), zipped{"b", "b"}))
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/c02.zip" {
			panic(http.ErrAbortHandler)
		}
		b.serve(w, r)
	})
	source := &discovery.Source{ChangeDump: b.URL + "/changedump.xml"}
	if _, err := b.once(source); err == nil {
		t.Error("a package that broke off was read")
	}
	b.all(map[string]string{"a": "a"})
	b.onlyAsked("/c01.zip")
	b.answers(nil)
	b.reopen(DirectoryOptions{MaxDelete: reconcile.Bound{}})
	b.right(source)
	b.all(map[string]string{"a": "a", "b": "b"})
	b.onlyAsked("/c02.zip")
}
