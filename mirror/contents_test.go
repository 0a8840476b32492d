package mirror

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/discovery"
)

// changed returns an entry of a Change List or of the manifest of a package, where the content
// is at a path; empty: it is not in the package.
func (o *origin) changed(name, what, day, path, text string) string {
	attrs := ""
	if what != "deleted" {
		attrs = fmt.Sprintf(` hash="%s" length="%d"`, sumOf(text), len(text))
	}
	if path != "" {
		attrs += fmt.Sprintf(` path="%s"`, path)
	}
	return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-%sT00:00:00Z"%s/></url>`, o.URL, name, what, day, attrs)
}

// A span is a package of a Change Dump.
type span struct{ from, until, zip string }

// changeDump serves a Change Dump of packages.
func (o *origin) changeDump(spans ...span) {
	var entries []string
	for i, s := range spans {
		name := fmt.Sprintf("/c%d.zip", i)
		o.set(name, s.zip)
		entries = append(entries, fmt.Sprintf(`<url><loc>%s</loc><rs:md from="2026-01-%sT00:00:00Z" until="2026-01-%sT00:00:00Z" hash="%s" length="%d"/></url>`, o.URL+name, s.from, s.until, sumOf(s.zip), len(s.zip)))
	}
	o.set("/changedump.xml", document("changedump", `from="2026-01-01T00:00:00Z"`, entries...))
}

func changeManifest(entries ...string) zipped {
	return zipped{"manifest.xml", document("changedump-manifest", `from="2026-01-01T00:00:00Z"`, entries...)}
}

// listed serves a Resource List of files as they are, of day 1.
func (o *origin) listed(names ...string) {
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, o.URL, name, sumOf(o.files[name])))
	}
	o.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entries...))
}

// A mirror takes contents from the Resource Dump and then from Change Dumps. The lists say
// what there is.
func TestContents(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"/a", "/b", "/wrong", "/unpacked", "/gone"} {
		b.set(name, "the first "+name)
	}
	b.listed("/a", "/b", "/wrong", "/unpacked", "/gone")
	b.dump("2026-01-01T00:00:00Z", zipOf(
		manifest(b.in("/a", "/a", "the first /a"), b.in("/b", "/b", "the first /b"), b.in("/gone", "/gone", "the first /gone"), b.in("/wrong", "/wrong", "the first /wrong")),
		zipped{"a", "the first /a"}, zipped{"b", "the first /b"}, zipped{"gone", "the first /gone"}, zipped{"wrong", "something else"}))
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ResourceDump: b.URL + "/dump.xml", ChangeList: b.URL + "/changes.xml", ChangeDump: b.URL + "/changedump.xml"}
	b.changeDump()
	b.right(source)
	for _, name := range []string{"a", "b", "wrong", "unpacked", "gone"} {
		b.has(name, "the first /"+name)
		want := 0
		if name == "wrong" || name == "unpacked" {
			want = 1
		}
		if n := b.requests("/" + name); n != want {
			t.Errorf("%s was asked for %d times", name, n)
		}
	}

	// What changed since, twice, comes from the packages, and what they do not have from where
	// it is.
	b.set("/a", "the third /a")
	b.set("/b", "the second /b")
	b.set("/open", "new")
	b.set("/new", "new")
	changes := []string{
		b.changed("/a", "updated", "03", "", "the second /a"), b.changed("/gone", "updated", "03", "", "the second /gone"), b.changed("/new", "created", "04", "", "new"),
		b.changed("/a", "updated", "05", "", "the third /a"), b.changed("/gone", "deleted", "06", "", ""), b.changed("/b", "updated", "07", "", "the second /b"), b.changed("/open", "created", "09", "", "new"),
	}
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	b.changeDump(
		span{"01", "04", zipOf(changeManifest(b.changed("/a", "updated", "03", "/1", "the second /a"), b.changed("/gone", "updated", "03", "/2", "the second /gone"), b.changed("/new", "created", "04", "/3", "new")),
			zipped{"1", "the second /a"}, zipped{"2", "the second /gone"}, zipped{"3", "new"})},
		span{"04", "08", zipOf(changeManifest(b.changed("/a", "updated", "05", "/1", "the third /a"), b.changed("/gone", "deleted", "06", "", ""), b.changed("/b", "updated", "07", "/9", "the second /b")),
			zipped{"1", "the third /a"})})
	b.right(source)
	for name, text := range map[string]string{"a": "the third /a", "b": "the second /b", "wrong": "the first /wrong", "gone": "", "new": "new", "open": "new"} {
		b.has(name, text)
	}
	for name, want := range map[string]int{"/a": 0, "/gone": 0, "/new": 0, "/b": 1, "/open": 1, "/wrong": 0, "/c0.zip": 1, "/c1.zip": 1, "/dump.xml": 1} {
		if n := b.requests(name); n != want {
			t.Errorf("%s was asked for %d times, want %d", name, n, want)
		}
	}

	// A package whose changes the mirror has is not read.
	b.right(source)
	if n := b.requests("/c0.zip") + b.requests("/c1.zip"); n != 0 {
		t.Errorf("packages were asked for %d times", n)
	}
}

// A dump that is wrong is noted, and the contents are asked for.
func TestContentsWithoutDump(t *testing.T) {
	for name, serve := range map[string]func(b *bench){
		"there is none":    func(*bench) {},
		"another document": func(b *bench) { b.set("/dump.xml", document("resourcelist", "")) },
		"no package":       func(b *bench) { b.dump("2026-01-01T00:00:00Z", "PK"); b.set("/p0.zip", "") },
		"no manifest":      func(b *bench) { b.dump("2026-01-01T00:00:00Z", zipOf(zipped{"a", "a"})) },
		"without hash": func(b *bench) {
			b.dump("2026-01-01T00:00:00Z", zipOf(manifest(`<url><loc>`+b.URL+`/a</loc><rs:md path="/a"/></url>`), zipped{"a", "a"}))
		},
		"of another time": func(b *bench) {
			b.dump("2026-01-01T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "old")), zipped{"a", "old"}))
		},
		"an endless content": func(b *bench) {
			b.dump("2026-01-01T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "a")), zipped{"a", strings.Repeat("a", 10<<20)}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set("/a", "a")
			b.listed("/a")
			serve(b)
			b.right(&discovery.Source{ResourceList: b.URL + "/list.xml", ResourceDump: b.URL + "/dump.xml"})
			b.has("a", "a")
			if n := b.requests("/a"); n != 1 {
				t.Errorf("the content was asked for %d times", n)
			}
		})
	}
}

// A mirror that broke off in the middle of a dump takes no package twice.
func TestContentsBreakOff(t *testing.T) {
	b := newBench(t)
	b.set("/a", "a")
	b.set("/b", "b")
	b.listed("/a", "/b")
	b.dump("2026-01-01T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "a")), zipped{"a", "a"}), zipOf(manifest(b.in("/b", "/b", "b")), zipped{"b", "b"}))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ResourceDump: b.URL + "/dump.xml"}
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/p1.zip" || r.URL.Path == "/list.xml" {
			panic(http.ErrAbortHandler)
		}
		b.serve(w, r)
	})
	if _, err := b.once(source); err == nil {
		t.Fatal("there was no list")
	}
	b.has("a", "a")
	b.answers(nil)
	b.reopen(DirectoryOptions{})
	b.right(source)
	b.has("b", "b")
	if first, second, asked := b.requests("/p0.zip"), b.requests("/p1.zip"), b.requests("/a")+b.requests("/b"); first != 1 || second != 1 || asked != 0 {
		t.Errorf("the packages were asked for %d and %d times, and the contents %d times", first, second, asked)
	}
}

// A dump brings no file back to an older content, and no resource that was deleted.
func TestContentsAreOld(t *testing.T) {
	b := newBench(t)
	b.set("/a", "new")
	b.listed("/a")
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`,
		b.changed("/a", "updated", "05", "", "new"), b.changed("/gone", "created", "05", "", "gone"), b.changed("/gone", "deleted", "06", "", "")))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.right(source)
	source.ChangeDump = b.URL + "/changedump.xml"
	b.changeDump(span{"01", "30", zipOf(changeManifest(b.changed("/a", "updated", "04", "/1", "old"), b.changed("/gone", "created", "05", "/2", "gone")), zipped{"1", "old"}, zipped{"2", "gone"})})
	b.right(source)
	b.has("a", "new")
	b.has("gone", "")
	if b.requests("/c0.zip") != 1 {
		t.Error("the package was not read")
	}

	// A mirror that begins with a new baseline has files, which nobody would bring back.
	b.dump("2026-01-02T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "old")), zipped{"a", "old"}))
	m := New(b.home, source, b.Directory, Options{HTTP: b.Client()})
	if err := m.restock(t.Context(), b.URL+"/dump.xml", "", time.Time{}); err != nil {
		t.Error(err)
	}
	b.has("a", "new")
	if b.requests("/p0.zip") != 1 {
		t.Error("the package of the Resource Dump was not read")
	}
}

// What a dump has, and the source has no more, is removed and counts as no deletion: the mirror is
// only being made.
func TestContentsTooMany(t *testing.T) {
	b := newBench(t)
	var packed []string
	files := []zipped{{}}
	for i := range 40 {
		name := fmt.Sprintf("/f%d", i)
		packed = append(packed, b.in(name, name, "x"))
		files = append(files, zipped{name[1:], "x"})
		if i < 10 {
			b.set(name, "x")
		}
	}
	files[0] = manifest(packed...)
	b.dump("2026-01-01T00:00:00Z", zipOf(files...))
	b.listed("/f0", "/f1", "/f2", "/f3", "/f4", "/f5", "/f6", "/f7", "/f8", "/f9")
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ResourceDump: b.URL + "/dump.xml"}
	b.right(source)
	b.has("f9", "x")
	b.has("f10", "")
	if n := b.home.Ledger.Counts().Files; n != 10 {
		t.Errorf("there are %d files", n)
	}

	// What was named once is deleted, and counts.
	more := []string{"/f0"}
	for i := range 20 {
		name := fmt.Sprintf("/more%d", i)
		b.set(name, "x")
		more = append(more, name)
	}
	b.listed(more...)
	if _, err := b.once(source); err != nil {
		t.Error(err)
	}
	b.listed("/f0")
	if _, err := b.once(source); err == nil || !strings.Contains(err.Error(), "would be deleted") {
		t.Errorf("the error is %v", err)
	}
}
