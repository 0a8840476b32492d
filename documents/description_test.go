package documents_test

import (
	"slices"
	"testing"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Capability List names the source's own documents where the hub has none, and never the
// source's own Change List, whose URL may be a secret.
func TestSourcesOwnDocuments(t *testing.T) {
	m := newMemory(t)
	m.make("demo", 4)
	s := newServer(m, documents.Options{})
	before := s.get("/sets/demo/capabilitylist.xml")
	if err := m.Describe(m.Context(), "demo", feed.Description{
		ResourceList: "https://example.org/resourcelist.xml?a=1&b=2", ResourceDump: "https://example.org/dump.xml",
		ChangeDump: "https://example.org/changedump.xml", ChangeList: "https://example.org/secret",
	}); err != nil {
		t.Fatal(err)
	}
	w := s.get("/sets/demo/capabilitylist.xml")
	doc, err := resourcesync.ReadXML(w.Body, resourcesync.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range doc.Items {
		got = append(got, item.Capability+" "+item.Change.Loc)
	}
	want := []string{
		"resourcelist https://example.org/resourcelist.xml?a=1&b=2", "resourcedump https://example.org/dump.xml",
		"changelist " + feed.Base(base).ChangeListIndex("demo"), "changedump https://example.org/changedump.xml",
		"change-notification " + feed.Base(base).Topic("demo"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has\n\t%q, want\n\t%q", got, want)
	}
	if tag := w.Header().Get("ETag"); tag == "" || tag == before.Header().Get("ETag") {
		t.Errorf("the ETag is %q, it was %q", tag, before.Header().Get("ETag"))
	}
}
