package documents_test

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// robots.txt names the Resource Lists that are asked for, of public sets, and not empty; else
// there is none.
func TestRobots(t *testing.T) {
	m := newMemory(t)
	for _, set := range []string{"asked", "silent", "private"} {
		m.make(set, 4)
	}
	sh := &shelf{}
	s := newServer(m, documents.Options{Inventories: sh})
	m.describe("private", feed.Description{Sitemap: true, Private: true})
	if w := s.get("/robots.txt"); w.Code != 404 {
		t.Errorf("nobody asked, and it is %d: %s", w.Code, w.Body)
	}
	m.describe("asked", feed.Description{Sitemap: true})
	sh.put(0, 0, nil)
	if w := s.get("/robots.txt"); w.Code != 404 {
		t.Errorf("the list is empty, and robots.txt is %d: %s", w.Code, w.Body)
	}
	sh.put(7, 4, func(i int) resourcesync.Change { return change(uint64(i) + 1) })
	if w := s.get("/robots.txt"); w.Code != 200 || w.Body.String() != "Sitemap: "+base+"/sets/asked/resourcelist.xml\n" {
		t.Errorf("it is %d: %s", w.Code, w.Body)
	}
}
