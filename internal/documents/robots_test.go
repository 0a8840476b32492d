package documents_test

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// robots.txt lists the Resource Lists of public sets with "sitemap", unless they are empty.
func TestRobots(t *testing.T) {
	m := newMemory(t)
	for _, set := range []string{"listed", "unlisted", "private"} {
		m.create(set, 4)
	}
	sh := &inventories{}
	s := newServer(m, documents.Options{Inventories: sh})
	m.describe("private", feed.Description{Sitemap: true, Private: true})
	if w := s.get("/robots.txt"); w.Code != 404 {
		t.Errorf("without lists: got %d %s, want 404", w.Code, w.Body)
	}
	m.describe("listed", feed.Description{Sitemap: true})
	sh.put(0, 0, nil)
	if w := s.get("/robots.txt"); w.Code != 404 {
		t.Errorf("with an empty list: got %d %s, want 404", w.Code, w.Body)
	}
	sh.put(7, 4, func(i int) resourcesync.Change { return change(uint64(i) + 1) })
	if w := s.get("/robots.txt"); w.Code != 200 || w.Body.String() != "Sitemap: "+base+"/sets/listed/resourcelist.xml\n" {
		t.Errorf("got %d %s, want the public list", w.Code, w.Body)
	}
}
