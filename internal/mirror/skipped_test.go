package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
)

// While a list has an entry whose loc cannot be read, all others are applied and nothing is
// deleted.
func TestListSkips(t *testing.T) {
	b := newBench(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	a, old, fresh := entry("/a"), entry("/old"), entry("/new")
	b.set("/list.xml", document("resourcelist", "", a, old))
	b.right(source)
	b.set("/list.xml", document("resourcelist", "", a, "<url><loc>"+b.URL+"/o&#55356;ld</loc></url>", fresh))
	for range 2 {
		_, err := b.once(source)
		_, skipped := errors.AsType[*harvest.Skipped](err)
		if _, of := errors.AsType[*SourceError](err); !of || !skipped || !strings.Contains(err.Error(), "1 of the entries of the list cannot be read, so nothing is deleted; the first is "+b.URL+"/list.xml") {
			t.Errorf("Run() = %v, want a SourceError that names the entry", err)
		}
		b.has("a", "/a")
		b.has("old", "/old")
		b.has("new", "/new")
	}
	b.set("/list.xml", document("resourcelist", "", a, fresh))
	b.right(source)
	b.has("old", "")
}

// After a change whose loc cannot be read, the later ones are applied, and the next look reads
// the list again.
func TestChangesSkip(t *testing.T) {
	b := newBench(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name))
	}
	change := func(loc, change, second string) string {
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-01T00:00:%sZ"/></url>`, b.URL, loc, change, second)
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	a, old := entry("/a"), entry("/old")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, a, old))
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	b.right(source)
	entry("/new")
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, change("/o&ld", "deleted", "10"), change("/new", "created", "11")))
	if _, err := b.once(source); err != nil {
		t.Fatal(err)
	}
	b.has("new", "/new")
	b.has("old", "/old")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:01:00Z"`, a, entry("/new")))
	if _, err := b.once(source); err != nil {
		t.Fatal(err)
	}
	b.has("old", "")
	b.has("new", "/new")
}

// An entry of the list whose loc cannot be read does not hold up the Change List.
func TestListSkipsChanges(t *testing.T) {
	b := newBench(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/a"), entry("/old"), "<url><loc>"+b.URL+"/x&y</loc></url>"))
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	for _, changes := range []string{"", fmt.Sprintf(`<url><loc>%s/old</loc><rs:md change="deleted" datetime="2026-01-01T00:00:10Z"/></url>`, b.URL)} {
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes))
		if _, err := b.once(source); err == nil || !strings.Contains(err.Error(), "1 of the entries of the list cannot be read") {
			t.Errorf("Run() = %v, want the entry", err)
		}
	}
	b.has("a", "/a")
	b.has("old", "")
}
