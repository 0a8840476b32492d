package documents_test

import (
	"fmt"
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

// A set is made, described or deleted between the two looks at the sets. The document is
// begun again, and has the sets of the second look: as a whole, also when it is sent while
// it is written.
func TestSetsChangeWhileListed(t *testing.T) {
	for _, test := range []struct {
		name    string
		changes func(m *memory)
	}{
		{"made", func(m *memory) { m.make("new", 4) }},
		{"described", func(m *memory) {
			if err := m.Describe(m.Context(), "demo", feed.Description{DescribedBy: "https://example.org/other"}); err != nil {
				m.Fatal(err)
			}
		}},
		{"deleted", func(m *memory) {
			if err := m.Delete(m.Context(), "old"); err != nil {
				m.Fatal(err)
			}
		}},
	} {
		for how, o := range map[string]documents.Options{"kept": {}, "streamed": {CacheBytes: 64}} {
			t.Run(test.name+", "+how, func(t *testing.T) {
				m := newMemory(t)
				m.make("demo", 4)
				m.make("old", 4)
				s := newServer(m, o)
				looks := 0
				change := func() {
					if looks++; looks == 1 {
						test.changes(m)
					}
				}
				m.listed.Store(&change)
				w := s.get("/.well-known/resourcesync")
				m.listed.Store(nil)
				fresh := newServer(m, documents.Options{}).get("/.well-known/resourcesync")
				if w.Code != 200 || w.Body.String() != fresh.Body.String() || w.Header().Get("ETag") != fresh.Header().Get("ETag") {
					t.Errorf("%d %v\n%s\nwant %v\n%s", w.Code, w.Header(), w.Body, fresh.Header(), fresh.Body)
				}
			})
		}
	}
}

// Sets that never stand still cost a bounded number of tries.
func TestSetsKeepChanging(t *testing.T) {
	m := newMemory(t)
	s := newServer(m, documents.Options{})
	looks := 0
	change := func() {
		looks++
		m.make(fmt.Sprintf("set-%d", looks), 4)
	}
	m.listed.Store(&change)
	w := s.get("/.well-known/resourcesync")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("ETag") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if looks > 20 {
		t.Errorf("%d looks at the sets", looks)
	}
}
