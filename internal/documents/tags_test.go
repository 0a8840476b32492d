package documents_test

import (
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
)

// During the life of a set, two responses with the same ETag have the same bytes, and the bytes of a URL
// change if and only if its ETag does.
func TestETagChangesWithBytes(t *testing.T) {
	m := newMemory(t)
	m.create("peps", 3)
	bytes := make(map[string]string) // by ETag
	tags := make(map[string][2]string)
	check := func(event string) {
		t.Helper()
		s := newServer(m, documents.Options{}) // with an empty cache
		urls := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", "/sets/peps/capabilitylist.xml", "/sets/peps/changes", "/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync",
			"/sets/peps/changelist.xml?from=" + startTime.Add(4*time.Second).Format(time.RFC3339)}
		for _, url := range append(urls, s.indexPaths("/sets/peps/changelist-index.xml")...) {
			w := s.get(url)
			if w.Code != 200 {
				continue // the floor is later than from
			}
			tag, body := w.Header().Get("Etag"), w.Body.String()
			if before, ok := bytes[tag]; ok && before != body {
				t.Errorf("%s after %s: got other bytes with the ETag %s, want the same", url, event, tag)
			}
			if last, ok := tags[url]; ok && last[0] != tag && last[1] == body {
				t.Errorf("%s after %s: got the same bytes with the ETag %s, want %s", url, event, tag, last[0])
			}
			bytes[tag], tags[url] = body, [2]string{tag, body}
		}
	}
	check("creation")
	for n := range 14 {
		m.add("peps", 1)
		check("a publish")
		if n%5 == 4 {
			m.trim("peps", 3)
			check("retention")
		}
	}
	m.describe("peps", feed.Description{Title: "proposals", DescribedBy: "https://peps.example.org/about"})
	check("a new description")
	m.describe("peps", feed.Description{Title: "proposals", DescribedBy: "https://peps.example.org/about", ChangeList: "https://example.org/changes.xml"})
	check("a new Change List of the source, which no document shows")
	if err := m.Delete(t.Context(), "peps"); err != nil {
		t.Fatal(err)
	}
	m.create("peps", 3)
	check("creating it again")
	m.add("peps", 4)
	check("a publish to the new set")
}
