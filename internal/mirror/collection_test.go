package mirror

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/resourcesync"
)

const theses = "https://example.org/oai?set=theses"

// publishIn publishes a file that belongs to collections.
func (f *hubFixture) publishIn(name, text string, collections ...string) {
	f.t.Helper()
	f.set(name, text)
	c := resourcesync.Change{Loc: f.URL + name, Change: resourcesync.Updated, Hash: hashOf(text)}
	for _, href := range collections {
		c.Links = append(c.Links, resourcesync.Link{Rel: "collection", Href: href})
	}
	f.publishChanges(c)
}

// A mirror of a collection has exactly the current members and passes its audit: members that
// enter are added, members that leave are deleted, even if the mirror is behind, starts from
// scratch, or has read the source's own list.
func TestCollectionFromHub(t *testing.T) {
	t.Parallel()
	f := newHubFixture(t)
	o := Options{HTTP: f.fixture.Client(), SourceTimeout: time.Minute, Collection: theses}
	mirror := func(want map[string]string) {
		t.Helper()
		m := New(f.home, f.source, f.Directory, o)
		if left, err := m.Run(t.Context(), true); err != nil || left.Resources > 0 {
			t.Fatalf("%+v is left, %v", left, err)
		}
		f.wantFiles(want)
		for p, err := range m.Audit(t.Context(), f.Directory, AuditOptions{}) {
			t.Fatalf("an audit finds %+v, %v", p, err)
		}
	}
	f.set("/listed", "listed")
	f.set("/moved", "moved")
	f.set("/other", "other")
	link := `<rs:ln rel="collection" href="` + theses + `"/>`
	f.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, `<url><loc>`+f.URL+`/listed</loc>`+link+`</url>`,
		`<url><loc>`+f.URL+`/moved</loc>`+link+`</url>`, `<url><loc>`+f.URL+`/other</loc></url>`))
	f.source.ResourceList = f.URL + "/list.xml"
	f.publishIn("/moved", "moved") // the hub overrides the list
	f.publishIn("/in", "1", theses, "urn:x:other")
	f.publishIn("/left", "1", theses)
	f.publishIn("/out", "1", "urn:x:other")
	mirror(map[string]string{"in": "1", "left": "1", "listed": "listed"})

	f.publishIn("/left", "2")
	f.publishIn("/in", "2", theses)
	f.publishIn("/out", "2", theses)
	f.publishIn("/short", "1", theses) // enters and leaves in one update
	f.publishIn("/short", "2")
	mirror(map[string]string{"in": "2", "out": "2", "listed": "listed"})

	f.publishIn("/listed", "2")
	f.publish("/in", "")
	mirror(map[string]string{"out": "2"})

	// The bookkeeping is lost, and a resource leaves in the meantime.
	if err := f.home.RemovePages(); err != nil {
		t.Fatal(err)
	}
	f.publishIn("/out", "3")
	f.publishIn("/in", "3", theses)
	mirror(map[string]string{"in": "3"})

	// An extra file and a missing one.
	f.publishIn("/more", "1", theses)
	m := New(f.home, f.source, f.Directory, o)
	if _, err := m.Run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	f.apply(f.entry("/other", "other"), f.entry("/more", ""))
	found := ""
	for p, err := range m.Audit(t.Context(), f.Directory, AuditOptions{Repair: true}) {
		if err != nil || !p.Repaired {
			t.Fatalf("Audit() yields %+v, %v, want it repaired", p, err)
		}
		found += fmt.Sprintf("%s %s, ", p.Kind, strings.TrimPrefix(p.Loc, f.URL))
	}
	if found != "missing /more, extra /other, " {
		t.Errorf("Audit() yields %q, want %q", found, "missing /more, extra /other, ")
	}
	mirror(map[string]string{"in": "3", "more": "1"})
}

// A Lines sink receives only changes of the collection.
func TestCollectionAsLines(t *testing.T) {
	t.Parallel()
	f := newHubFixture(t)
	var lines bytes.Buffer
	run := func(want ...string) {
		t.Helper()
		lines.Reset()
		if _, err := New(f.home, f.source, Lines{&lines}, Options{HTTP: f.fixture.Client(), SourceTimeout: time.Minute, Collection: theses}).Run(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
		for i, w := range want {
			name, change, _ := strings.Cut(w, " ")
			if len(got) != len(want) || !strings.Contains(got[i], `"loc":"`+f.URL+name+`","change":"`+change+`"`) {
				t.Fatalf("got lines\n%swant %q", lines.String(), want)
			}
		}
	}
	f.publishIn("/out", "1")
	f.publishIn("/in", "1", theses)
	run("/in updated")
	f.publishIn("/new", "1")
	f.publish("/out", "")
	f.publishIn("/in", "2")
	f.publishIn("/in", "3")
	run("/in deleted")
}

// Without a hub, the lists define the collection.
func TestCollectionFromLists(t *testing.T) {
	b := newFixture(t)
	link := `<rs:ln rel="collection" href="` + theses + `"/>`
	var changes []string
	changed := func(day, name, text, more string) {
		b.set(name, text)
		changes = append(changes, strings.Replace(b.dumpChange(day, name, "p", text), "</url>", more+"</url>", 1))
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	}
	resource := func(name, text, more string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/>%s</url>`, b.URL, name, hashOf(text), more)
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-02T00:00:00Z"`, resource("/in", "1", link), resource("/left", "1", link), resource("/out", "1", "")))
	changed("01", "/before", "1", "")
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	mirror := func(want map[string]string) {
		t.Helper()
		o := Options{HTTP: b.Client(), Collection: theses}
		m := New(b.home, source, b.Directory, o)
		if left, err := m.Run(t.Context(), true); err != nil || left.Resources > 0 {
			t.Fatalf("%+v is left, %v", left, err)
		}
		b.wantFiles(want)
		for p, err := range m.Audit(t.Context(), b.Directory, AuditOptions{}) {
			t.Fatalf("an audit finds %+v, %v", p, err)
		}
	}
	mirror(map[string]string{"in": "1", "left": "1"})
	changed("03", "/left", "2", "")
	changed("04", "/out", "2", link)
	changed("05", "/short", "1", link)
	changed("06", "/short", "2", "")
	changed("07", "/never", "1", "")
	mirror(map[string]string{"in": "1", "out": "2"})
	changed("08", "/left", "3", link)
	mirror(map[string]string{"in": "1", "left": "3", "out": "2"})
}
