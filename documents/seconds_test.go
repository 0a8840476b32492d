package documents_test

import (
	"bytes"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// precise returns a change with fractions of a second wherever a source can write them.
func precise(n uint64) resourcesync.Change {
	c := change(n)
	c.Lastmod = c.Lastmod.Add(999_999_999)
	c.Datetime = c.Lastmod.Add(time.Minute)
	c.Links = []resourcesync.Link{{Rel: "describedby", Href: c.Loc + "&meta", Modified: c.Lastmod}}
	return c
}

// whole switches the set peps to whole seconds, or back.
func (m *memory) whole(whole bool) {
	m.Helper()
	d := m.state("peps").Description
	d.WholeSeconds = whole
	if err := m.Describe(m.Context(), "peps", d); err != nil {
		m.Fatal(err)
	}
}

// precisely makes the set peps in whole seconds, with batches of changes. Two of the
// batches are in one second, and a list ends between them.
func (m *memory) precisely(k int, batches ...int) {
	m.Helper()
	m.advance(50 * time.Millisecond) // so no cursor happens to be a whole second
	m.make("peps", k)
	m.whole(true)
	n := uint64(0)
	for _, size := range batches {
		m.advance(400 * time.Millisecond)
		changes := make([]resourcesync.Change, size)
		for i := range changes {
			n++
			changes[i] = precise(n)
		}
		if _, err := m.Append(m.Context(), "peps", changelog.Publish{Changes: changes}); err != nil {
			m.Fatal(err)
		}
	}
}

func TestGoldenWholeSeconds(t *testing.T) {
	m := newMemory(t)
	m.precisely(4, 3, 5, 2)
	sh := &shelf{}
	s := newServer(m, documents.Options{List: sh.list})
	sh.put(7, 4, func(i int) resourcesync.Change { return precise(uint64(i) + 1) })
	s.golden(t, "seconds-resourcelist", "/sets/peps/resourcelist.xml")
	s.golden(t, "seconds-changelist", "/sets/peps/changelist.xml")
	s.golden(t, "seconds-changelist-from", "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z")
	s.golden(t, "seconds-changelist-index", "/sets/peps/changelist-index.xml")
	s.golden(t, "seconds-changelist-closed", inSeconds(list(m.state("peps"), 1)))
	s.golden(t, "seconds-latest", "/sets/peps/changes")
	sh.put(50_020, 50_001, numbered)
	s.golden(t, "seconds-resourcelist-index", "/sets/peps/resourcelist.xml")
	s.golden(t, "seconds-resourcelist-part", "/sets/peps/resourcelist-50020-1767323045050020-2-seconds.xml")
}

// inSeconds returns the name of the other form of a document.
func inSeconds(name string) string { return strings.TrimSuffix(name, ".xml") + "-seconds.xml" }

// In a set with whole seconds, no document that leads from the Source Description has a
// fraction of a second. Each of them fits the schemas, its datetimes do not fall and lie in
// [from, until], lists follow each other, and cursors are exact.
func TestWholeSecondsEverywhere(t *testing.T) {
	m := newMemory(t)
	m.precisely(4, 3, 5, 2, 7, 1)
	sh := &shelf{}
	sh.put(16, 50_001, func(i int) resourcesync.Change {
		if i%9_000 != 0 {
			return numbered(i)
		}
		c := precise(1)
		c.Loc = numbered(i).Loc
		return c
	})
	s := newServer(m, documents.Options{List: sh.list, Inventories: true})
	fraction, exact := regexp.MustCompile(`\d\d:\d\d:\d\d\.\d`), regexp.MustCompile(`h:(cursor|after)="\d+-\d{10}000000"`)
	seen := map[string]bool{}
	until := map[string]time.Time{} // of the list before, by what the document is
	var walk func(url string)
	walk = func(url string) {
		if seen[url] || strings.HasSuffix(url, "/framework") { // which no test has followed
			return
		}
		seen[url] = true
		w := s.get(url)
		body := w.Body.Bytes()
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", url, w.Code, body)
		}
		if found := fraction.Find(body); found != nil {
			t.Errorf("%s has %s", url, found)
		}
		if found := exact.Find(body); found != nil {
			t.Errorf("%s has a cursor in whole seconds: %s", url, found)
		}
		fits(t, url, body)
		d, err := resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{Bytes: 60 << 20})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if strings.Contains(url, "/changelist-1") && !d.From.Equal(until["list"]) && !until["list"].IsZero() {
			t.Errorf("%s is from %v, and the list before ends %v", url, d.From, until["list"])
		} else if strings.Contains(url, "/changelist-1") {
			until["list"] = d.Until
		}
		last := d.From
		for _, it := range d.Items {
			at := it.Datetime
			if at.IsZero() {
				at = it.From
			}
			if !at.IsZero() && (at.Before(last) || !d.Until.IsZero() && at.After(d.Until)) {
				t.Errorf("%s, from %v until %v: %v follows %v", url, d.From, d.Until, at, last)
			}
			if !at.IsZero() {
				last = at
			}
			if strings.HasPrefix(it.Loc, base) {
				walk(it.Loc)
			}
		}
	}
	walk(base + "/.well-known/resourcesync")
	names := 0
	for url := range seen {
		if strings.HasSuffix(url, "-seconds.xml") {
			names++
		}
	}
	walk(base + "/sets/peps/.well-known/resourcesync")
	walk(base + "/sets/peps/changelist.xml")
	walk(base + "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z")
	if names != 5+2 || !seen[base+"/sets/peps/changes"] {
		t.Errorf("found: %v", seen)
	}
}

// fits holds a document against the XML schemas, if xmllint is there.
func fits(t *testing.T, url string, body []byte) {
	t.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		return // TestGoldenFitsTheSchemas says so
	}
	schema := "urlset.xsd"
	if bytes.Contains(body, []byte("<sitemapindex")) {
		schema = "sitemapindex.xsd"
	}
	lint := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../resourcesync/testdata/xsd/"+schema, "-")
	lint.Stdin = bytes.NewReader(body)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", url, err, out)
	}
}

// The switch changes what is at the URLs that stay, with their ETags, and which documents
// the indexes name. A document with a name of its own never changes, and both forms of it
// are there.
func TestSwitchToWholeSeconds(t *testing.T) {
	m := newMemory(t)
	m.precisely(4, 9)
	m.whole(false)
	sh := &shelf{}
	sh.put(9, 50_001, numbered)
	s, other := newServer(m, documents.Options{List: sh.list}), newServer(m, documents.Options{List: sh.list})
	m.advance(2 * time.Hour)
	closed := list(m.state("peps"), 1)
	const part = "/sets/peps/resourcelist-9-1767323045000009-2.xml"
	stay := []string{"/sets/peps/changes", "/sets/peps/changelist.xml", "/sets/peps/changelist.xml?from=2026-01-02T03:04:05.4Z", "/sets/peps/changelist-index.xml", "/sets/peps/resourcelist.xml"}
	named := []string{closed, inSeconds(closed), part, inSeconds(part)}
	type answer struct{ tag, modified, body string }
	look := func() map[string]answer {
		all := map[string]answer{}
		for _, path := range slices.Concat(stay, named) {
			w := s.get(path)
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			if w2 := other.get(path); w2.Header().Get("Etag") != w.Header().Get("Etag") || !bytes.Equal(w2.Body.Bytes(), w.Body.Bytes()) {
				t.Errorf("%s: two hubs differ", path)
			}
			all[path] = answer{w.Header().Get("Etag"), w.Header().Get("Last-Modified"), w.Body.String()}
			if slices.Contains(named, path) && !strings.HasSuffix(w.Header().Get("Cache-Control"), "immutable") {
				t.Errorf("%s: Cache-Control is %s", path, w.Header().Get("Cache-Control"))
			}
		}
		return all
	}
	exact := look()
	m.whole(true)
	whole := look()
	m.whole(false)
	again := look()
	for _, path := range stay {
		if whole[path].tag == exact[path].tag || whole[path].body == exact[path].body || again[path] != exact[path] {
			t.Errorf("%s: %v, %v, %v", path, exact[path], whole[path], again[path])
		}
		// Whoever asks by time is not told that nothing changed.
		m.whole(true)
		if w := s.get(path, "If-Modified-Since", m.clock().UTC().Format(http.TimeFormat), "If-None-Match", ""); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		if w := s.get(path, "If-Modified-Since", m.clock().UTC().Format(http.TimeFormat)); w.Code != 200 {
			t.Errorf("%s by time: %d", path, w.Code)
		}
		if w := s.get(path, "If-None-Match", whole[path].tag); w.Code != 304 {
			t.Errorf("%s by its tag: %d", path, w.Code)
		}
		m.whole(false)
	}
	for _, path := range named {
		if whole[path] != exact[path] || again[path] != exact[path] {
			t.Errorf("%s changes with the switch", path)
		}
	}
	if exact[closed].body == exact[inSeconds(closed)].body || exact[part].tag == exact[inSeconds(part)].tag {
		t.Error("both forms are one")
	}
	for _, path := range []string{inSeconds(inSeconds(closed)), "/sets/peps/changelist-seconds.xml", "/sets/peps/changelist-index-seconds.xml", "/sets/peps/resourcelist-seconds.xml", "/sets/peps/capabilitylist-seconds.xml"} {
		if w := s.get(path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A client that goes on from the last whole second that it saw misses nothing, however
// changes and its visits fall into seconds. It gets the changes of that second again.
func TestGoOnFromWholeSeconds(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 4)
	m.whole(true)
	m.advance(300 * time.Millisecond)
	s := newServer(m, documents.Options{})
	from := ""
	seen := map[uint64]bool{}
	for n := uint64(1); n <= 40; n++ {
		if _, err := m.Append(t.Context(), "peps", changelog.Publish{Changes: []resourcesync.Change{precise(n)}}); err != nil {
			t.Fatal(err)
		}
		m.advance(150 * time.Millisecond)
		if n%3 == 0 {
			continue
		}
		at := "/sets/peps/changelist.xml"
		if from != "" {
			at += "?from=" + url.QueryEscape(from)
		}
		d := s.read(at)
		if from == "" {
			from = d.MD.From // the second in which the log began
		}
		for _, e := range d.URLs {
			seen[e.MD.Position] = true
			from = e.MD.Datetime
		}
		if len(seen) != int(n) {
			t.Fatalf("after change %d it has %d changes", n, len(seen))
		}
	}
}

// The documents show the second in which the log began. A client may begin there, although
// it is before the log; not in an exact set, and not once retention removed something.
func TestFromTheSecondOfTheBeginning(t *testing.T) {
	m := newMemory(t)
	m.precisely(2, 1, 4)
	s := newServer(m, documents.Options{})
	begin := "/sets/peps/changelist.xml?from=" + s.read("/sets/peps/changelist-index.xml").MD.From
	ask := func(path string, want int) {
		t.Helper()
		if w := s.get(path); w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if d := s.read(begin); len(d.URLs) != 5 || d.MD.After != (feed.Cursor{Micros: m.state("peps").Begin}).String() {
		t.Errorf("from the beginning: %+v", d)
	}
	ask("/sets/peps/changelist.xml?from=2026-01-02T03:04:05.01Z", http.StatusGone)
	ask("/sets/peps/changelist.xml?from=2026-01-02T03:04:04Z", http.StatusGone)
	m.whole(false)
	ask(begin, http.StatusGone)
	m.whole(true)
	ask(begin, http.StatusOK)
	m.trim("peps", 1)
	ask(begin, http.StatusGone)
}
