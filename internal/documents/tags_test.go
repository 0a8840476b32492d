package documents_test

import (
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
)

// TestTagsFollowTheBytes follows every document through the life of a set. Two answers
// with the same ETag have the same bytes, and the bytes at one URL change only
// together with the ETag.
func TestTagsFollowTheBytes(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 3)
	bytes := make(map[string]string) // by ETag
	tags := make(map[string][2]string)
	look := func(what string) {
		t.Helper()
		s := newServer(m, documents.Options{}) // it has no bodies of before in its cache
		urls := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", "/sets/peps/capabilitylist.xml", "/sets/peps/changes", "/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync",
			"/sets/peps/changelist.xml?from=" + began.Add(4*time.Second).Format(time.RFC3339)}
		for _, url := range append(urls, s.named("/sets/peps/changelist-index.xml")...) {
			w := s.get(url)
			if w.Code != 200 {
				continue // the floor is later than from
			}
			tag, body := w.Header().Get("Etag"), w.Body.String()
			if before, ok := bytes[tag]; ok && before != body {
				t.Errorf("%s: after %s the ETag %s has other bytes", url, what, tag)
			}
			if last, ok := tags[url]; ok && last[0] != tag && last[1] == body {
				t.Errorf("%s: after %s the same bytes have the ETag %s, and had %s", url, what, tag, last[0])
			}
			bytes[tag], tags[url] = body, [2]string{tag, body}
		}
	}
	look("making it")
	for n := range 14 {
		m.add("peps", 1)
		look("a publish")
		if n%5 == 4 {
			m.trim("peps", 3)
			look("retention")
		}
	}
	m.describe("peps", feed.Description{Title: "proposals", DescribedBy: "https://peps.example.org/about"})
	look("a new description")
	m.describe("peps", feed.Description{Title: "proposals", DescribedBy: "https://peps.example.org/about", ChangeList: "https://example.org/changes.xml"})
	look("where the source's own list is, which no document shows")
	if err := m.Delete(t.Context(), "peps"); err != nil {
		t.Fatal(err)
	}
	m.make("peps", 3)
	look("making it anew")
	m.add("peps", 4)
	look("a publish to the new one")
}
