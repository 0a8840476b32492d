package documents_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// A Capability List links to the documents of the source for those that the hub lacks, but never to its
// Change List, whose URL may be secret.
func TestDocumentsOfSource(t *testing.T) {
	m := newMemory(t)
	m.create("demo", 4)
	s := newServer(m, documents.Options{})
	before := s.get("/sets/demo/capabilitylist.xml")
	m.describe("demo", feed.Description{
		ResourceList: "https://example.org/resourcelist.xml?a=1&b=2", ResourceDump: "https://example.org/dump.xml",
		ChangeDump: "https://example.org/changedump.xml", ChangeList: "https://example.org/secret",
	})
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
		t.Errorf("got the documents\n\t%q, want\n\t%q", got, want)
	}
	if tag := w.Header().Get("ETag"); tag == "" || tag == before.Header().Get("ETag") {
		t.Errorf("ETag = %q, want another than %q", tag, before.Header().Get("ETag"))
	}
}

func TestDescriptionHasOnlyVisibleSets(t *testing.T) {
	m := newMemory(t)
	for _, set := range []string{"b", "a", "c"} {
		m.create(set, 10)
	}
	some, err := access.ParseRights("follow:a,follow:c")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(m, documents.Options{})
	w := s.doAs(some, "GET", "/.well-known/resourcesync")
	if strings.Contains(w.Body.String(), "/sets/b/") || !strings.Contains(w.Body.String(), "/sets/c/") {
		t.Errorf("without the right: got %s, want c and not b", w.Body)
	}
	w2 := s.get("/.well-known/resourcesync")
	if !strings.Contains(w2.Body.String(), "/sets/b/") || w.Header().Get("Etag") == w2.Header().Get("Etag") {
		t.Errorf("with the right: got %s, want b and another ETag", w2.Body)
	}
	if got := w.Header().Get("Vary"); got != "Accept-Encoding, Authorization" {
		t.Errorf("Vary = %q, want Accept-Encoding, Authorization", got)
	}
}

// If a set is created, described or deleted between the two reads of the sets, the document is written
// again with the new sets, whether it is cached or streamed.
func TestSetsChangeDuringDescription(t *testing.T) {
	for _, test := range []struct {
		name    string
		changes func(m *memory)
	}{
		{"created", func(m *memory) { m.create("new", 4) }},
		{"described", func(m *memory) {
			m.describe("demo", feed.Description{DescribedBy: "https://example.org/other"})
		}},
		{"deleted", func(m *memory) {
			if err := m.Delete(m.Context(), "old"); err != nil {
				m.Fatal(err)
			}
		}},
	} {
		for mode, o := range map[string]documents.Options{"cached": {}, "streamed": {CacheBytes: 64}} {
			t.Run(test.name+", "+mode, func(t *testing.T) {
				m := newMemory(t)
				m.create("demo", 4)
				m.create("old", 4)
				s := newServer(m, o)
				reads := 0
				change := func() {
					if reads++; reads == 1 {
						test.changes(m)
					}
				}
				m.afterSets.Store(&change)
				w := s.get("/.well-known/resourcesync")
				m.afterSets.Store(nil)
				fresh := newServer(m, documents.Options{}).get("/.well-known/resourcesync")
				if w.Code != 200 || w.Body.String() != fresh.Body.String() || w.Header().Get("ETag") != fresh.Header().Get("ETag") {
					t.Errorf("got %d %v\n%s\nwant 200 %v\n%s", w.Code, w.Header(), w.Body, fresh.Header(), fresh.Body)
				}
			})
		}
	}
}

// If the sets change all the time, the request fails after a few attempts.
func TestSetsChangeAllTheTime(t *testing.T) {
	m := newMemory(t)
	s := newServer(m, documents.Options{})
	reads := 0
	change := func() {
		reads++
		m.create(fmt.Sprintf("set-%d", reads), 4)
	}
	m.afterSets.Store(&change)
	w := s.get("/.well-known/resourcesync")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("ETag") != "" {
		t.Errorf("got %d %v %s, want 503 with Retry-After", w.Code, w.Header(), w.Body)
	}
	if reads > 20 {
		t.Errorf("got %d reads of the sets, want at most 20", reads)
	}
}

// A setsLog is a log whose Sets returns the given states.
type setsLog struct {
	*memory
	states []feed.State
}

func (h *setsLog) Sets(context.Context, ...string) ([]feed.State, error) { return h.states, nil }

// More sets than a document may have, by number or by bytes, are listed in the parts of an index, each
// once.
func TestDescriptionParts(t *testing.T) {
	m := newMemory(t)
	rights, err := access.ParseRights("follow:s*")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		sets   int
		about  string
		hidden int // sets that the caller may not follow
		parts  int // 0 if there is no index
	}{
		{"largest document", 50_000, "", 0, 0},
		{"one more", 50_001, "", 0, 2},
		{"one more that is invisible", 50_001, "", 1, 0},
		{"large items", 30_000, "https://example.org/" + strings.Repeat("x", 1_900), 0, 2},
	} {
		if testing.Short() && test.name != "one more" {
			continue
		}
		h := &setsLog{memory: m}
		for i := range test.sets {
			name := "s"
			if i < test.hidden {
				name = "hidden"
			}
			h.states = append(h.states, feed.State{Set: fmt.Sprintf("%s%06d", name, i), Description: feed.Description{DescribedBy: test.about}})
		}
		s := &server{documents.New(h, base, documents.Options{Now: m.clock}), m}
		read := func(url string) *resourcesync.Document {
			t.Helper()
			w := s.doAs(rights, "GET", url)
			if n := w.Body.Len(); n > 50<<20 {
				t.Errorf("%s: GET %s: got %d bytes, want at most 50 MiB", test.name, url, n)
			}
			body := w.Body.Bytes()
			var urls []resourcesync.Item
			if testing.Short() && len(body) > 1<<20 { // parse only the first set, because parsing is slow, and search for the others
				first := bytes.Index(body, []byte("</url>")) + len("</url>")
				for part := range bytes.SplitSeq(body[first:], []byte("<loc>")) {
					if loc, _, ok := bytes.Cut(part, []byte("</loc>")); ok {
						urls = append(urls, resourcesync.Item{Change: resourcesync.Change{Loc: string(loc)}})
					}
				}
				body = append(body[:first:first], "</urlset>"...)
			}
			doc, err := resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{})
			if err != nil || doc.Capability != resourcesync.Description {
				t.Fatalf("%s: GET %s: got %+v, %v, want a Source Description", test.name, url, doc.Header, err)
			}
			doc.Items = append(doc.Items, urls...)
			return doc
		}
		all, parts := read("/.well-known/resourcesync"), 0
		docs := []*resourcesync.Document{all}
		if all.Index {
			docs = nil
			for _, it := range all.Items {
				docs = append(docs, read(it.Loc))
				parts++
			}
		}
		seen := map[string]bool{}
		for _, doc := range docs {
			for _, it := range doc.Items {
				seen[it.Loc] = true
			}
			if len(doc.Items) > 50_000 || doc.Index || parts > 0 && (len(doc.Links) != 1 || doc.Links[0].Rel != "index" || doc.Links[0].Href != base+"/.well-known/resourcesync") {
				t.Errorf("%s: got a part with %d sets and the links %v, want at most 50,000 and the index", test.name, len(doc.Items), doc.Links)
			}
		}
		want := test.sets - test.hidden
		if parts != test.parts || len(seen) != want {
			t.Errorf("%s: got %d parts with %d sets, want %d with %d", test.name, parts, len(seen), test.parts, want)
		}
	}
	s := newServer(m, documents.Options{})
	for part, status := range map[string]int{"1": 404, "2": 404, "0": 400, "x": 400} {
		if w := s.get("/.well-known/resourcesync?part=" + part); w.Code != status {
			t.Errorf("part %s of a description without parts: got %d %s, want %d", part, w.Code, w.Body, status)
		}
	}
}
