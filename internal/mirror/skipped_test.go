package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
)

// While a list has an entry with an invalid loc, all others are applied and nothing is deleted.
func TestListWithInvalidEntry(t *testing.T) {
	b := newFixture(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	a, old, fresh := entry("/a"), entry("/old"), entry("/new")
	b.set("/list.xml", document("resourcelist", "", a, old))
	b.mirror(source)
	b.set("/list.xml", document("resourcelist", "", a, "<url><loc>"+b.URL+"/o&#55356;ld</loc></url>", fresh))
	for range 2 {
		_, err := b.run(source)
		_, skipped := errors.AsType[*harvest.Skipped](err)
		if _, ok := errors.AsType[*SourceError](err); !ok || !skipped || !strings.Contains(err.Error(), "read list: 1 entries are invalid, so nothing is deleted; first: "+b.URL+"/list.xml") {
			t.Errorf("Run() = %v, want a SourceError that names the entry", err)
		}
		b.wantFile("a", "/a")
		b.wantFile("old", "/old")
		b.wantFile("new", "/new")
	}
	b.set("/list.xml", document("resourcelist", "", a, fresh))
	b.mirror(source)
	b.wantFile("old", "")
}

// After a change with an invalid loc, the later changes are applied, and the next poll reads the
// list again.
func TestChangesWithInvalidEntry(t *testing.T) {
	b := newFixture(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name))
	}
	change := func(loc, change, second string) string {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-01T00:00:%sZ"/></url>`, b.URL, loc, change, second)
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	a, old := entry("/a"), entry("/old")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, a, old))
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	b.mirror(source)
	entry("/new")
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, change("/o&ld", "deleted", "10"), change("/new", "created", "11")))
	if _, err := b.run(source); err != nil {
		t.Fatal(err)
	}
	b.wantFile("new", "/new")
	b.wantFile("old", "/old")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:01:00Z"`, a, entry("/new")))
	if _, err := b.run(source); err != nil {
		t.Fatal(err)
	}
	b.wantFile("old", "")
	b.wantFile("new", "/new")
}

// An entry of the list with an invalid loc does not block the Change List.
func TestListWithInvalidEntryReadsChanges(t *testing.T) {
	b := newFixture(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/a"), entry("/old"), "<url><loc>"+b.URL+"/x&y</loc></url>"))
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	for _, changes := range []string{"", fmt.Sprintf(`<url><loc>%s/old</loc><rs:md change="deleted" datetime="2026-01-01T00:00:10Z"/></url>`, b.URL)} {
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes))
		if _, err := b.run(source); err == nil || !strings.Contains(err.Error(), "1 entries are invalid") {
			t.Errorf("Run() = %v, want an error about 1 entry", err)
		}
	}
	b.wantFile("a", "/a")
	b.wantFile("old", "")
}
