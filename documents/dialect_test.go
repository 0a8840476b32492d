package documents_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/activitystreams"
	"github.com/rshub/rshub/atom"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changeset"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
)

// A feedDocument is a parsed Atom feed.
type feedDocument struct {
	XMLName xml.Name   `xml:"http://www.w3.org/2005/Atom feed"`
	ID      string     `xml:"id"`
	Title   string     `xml:"title"`
	Updated string     `xml:"updated"`
	Links   []ln       `xml:"link"`
	Archive *struct{}  `xml:"http://purl.org/syndication/history/1.0 archive"`
	Items   []feedItem `xml:",any"`
}

// A feedItem is an entry, or a deleted entry; or another child of the feed.
type feedItem struct {
	XMLName xml.Name
	ID      string `xml:"id"`
	Updated string `xml:"updated"`
	Ref     string `xml:"ref,attr"`
	When    string `xml:"when,attr"`
	MD      md     `xml:"http://www.openarchives.org/rs/terms/ md"`
}

// atom reads a document of a feed, and returns its entries as they stand there.
func (s *server) atom(url string) (*feedDocument, []feedItem) {
	s.Helper()
	w := s.get(url)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != atom.MediaType {
		s.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
	}
	doc := &feedDocument{}
	if err := xml.Unmarshal(w.Body.Bytes(), doc); err != nil {
		s.Fatalf("GET %s: %v", url, err)
	}
	entries := slices.DeleteFunc(doc.Items, func(e feedItem) bool {
		return e.XMLName.Local != "entry" && e.XMLName.Local != "deleted-entry"
	})
	return doc, entries
}

// A collection is a parsed Ordered Collection, or a page of one.
type collection struct {
	Context                         []string `json:"@context"`
	ID, Type                        string
	TotalItems, StartIndex          uint64
	First, Last, Prev, Next, PartOf *struct{ ID, Type string }
	OrderedItems                    []activity
}

type activity struct {
	ID, Type, EndTime string
	Object            struct{ ID, Type, Format string }
	Change            struct{ Position uint64 } `json:"https://github.com/rshub/rshub/terms/change"`
}

func (s *server) collection(url string) *collection {
	s.Helper()
	w := s.get(url)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != activitystreams.MediaType {
		s.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
	}
	c := &collection{}
	if err := json.Unmarshal(w.Body.Bytes(), c); err != nil {
		s.Fatalf("GET %s: %v: %s", url, err, w.Body)
	}
	return c
}

func dialects() documents.Options {
	return documents.Options{Dialects: []*documents.Dialect{atom.Dialect(), activitystreams.Dialect(), changeset.Dialect()}}
}

func TestGoldenDialects(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 4)
	s := newServer(m, dialects())
	compare := func(file, url string) {
		t.Helper()
		w := s.get(url)
		if w.Code != http.StatusOK {
			t.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
		}
		file = filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(file, w.Body.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("differs from %s: %v\n%s", file, err, w.Body)
		}
	}
	compare("empty-atom.golden.xml", "/sets/peps/atom.xml")
	compare("empty-collection.golden.json", "/sets/peps/activity/collection.json")
	compare("empty-changeset.golden.xml", "/sets/peps/changeset.xml")
	m.add("peps", 3)
	compare("atom.golden.xml", "/sets/peps/atom.xml")
	compare("atom-page.golden.xml", pageURL(m.state("peps"), "atom-", 1, ".xml"))
	compare("collection.golden.json", "/sets/peps/activity/collection.json")
	compare("collection-page.golden.json", pageURL(m.state("peps"), "activity/page-", 1, ".json"))
	compare("changeset.golden.xml", "/sets/peps/changeset.xml")
	compare("changeset-page.golden.xml", pageURL(m.state("peps"), "changeset-", 1, ".xml"))
}

func pageURL(s feed.State, prefix string, n int, suffix string) string {
	return fmt.Sprintf("/sets/%s/%s%d-%d%s", s.Set, prefix, s.Begin, n, suffix)
}

// walkBack reads a collection as harvesters do: the last page first, and each page from its
// end. It returns the positions in that order, and the pages' paths.
func (s *server) walkBack(set string) (positions []uint64, pages []string) {
	s.Helper()
	top := s.collection("/sets/" + set + "/activity/collection.json")
	for at := top.Last; at != nil; {
		page := s.collection(at.ID)
		if page.ID != at.ID || page.PartOf.ID != top.ID || len(page.OrderedItems) == 0 || page.OrderedItems[0].Change.Position != page.StartIndex+1 {
			s.Errorf("%s is %+v", at.ID, page)
		}
		pages = append(pages, strings.TrimPrefix(at.ID, base))
		for i := range slices.Backward(page.OrderedItems) {
			positions = append(positions, page.OrderedItems[i].Change.Position)
		}
		if at.ID == top.First.ID {
			break
		}
		at = page.Prev
	}
	return positions, pages
}

// readArchive reads a feed and all of its archive, the newest first.
func (s *server) readArchive(set string) (positions []uint64, archive []string) {
	s.Helper()
	doc, entries := s.atom("/sets/" + set + "/atom.xml")
	id := doc.ID
	for {
		for _, e := range entries {
			positions = append(positions, e.MD.Position)
		}
		prev := link(doc.Links, "prev-archive")
		if prev == "" {
			return positions, archive
		}
		archive = append(archive, strings.TrimPrefix(prev, base))
		doc, entries = s.atom(prev)
		if doc.ID != id || doc.Archive == nil || link(doc.Links, "current") != id {
			s.Errorf("%s is %+v", prev, doc)
		}
	}
}

func back(from, to uint64) []uint64 {
	all := numbers(from, to)
	slices.Reverse(all)
	return all
}

// Whoever walks back from the newest page gets every change once and in order, however the
// pages lie in the lists. A page that is closed never changes.
// walkChangeSets follows next links from the first change set to the one that leads to itself,
// as who polls does. It returns all event ids, the newest first.
func (s *server) walkChangeSets(set string) (ids []uint64) {
	s.Helper()
	type changeSet struct {
		Links  []ln `xml:"http://www.w3.org/2005/Atom link"`
		Events []struct {
			ID   uint64 `xml:"http://resourcesync.org/ns/ eventid"`
			Type string `xml:"http://resourcesync.org/ns/ eventtype"`
			Loc  string `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 loc"`
		} `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 url"`
	}
	read := func(url string) (c changeSet) {
		s.Helper()
		w := s.get(url)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != changeset.MediaType {
			s.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
		}
		if err := xml.Unmarshal(w.Body.Bytes(), &c); err != nil {
			s.Fatalf("GET %s: %v", url, err)
		}
		for _, e := range c.Events {
			if e.Loc == "" || !slices.Contains([]string{"created", "updated", "deleted"}, e.Type) {
				s.Fatalf("%s has the event %+v", url, e)
			}
		}
		return c
	}
	to := func(c changeSet, rel string) string {
		return strings.TrimPrefix(link(c.Links, rel+" rs:changeset"), base)
	}
	newest := read("/sets/" + set + "/changeset.xml")
	at := to(newest, "first")
	for {
		c := read(at)
		for _, e := range c.Events {
			ids = append(ids, e.ID)
		}
		next := to(c, "next")
		if next == at {
			break
		}
		at = next
	}
	if to(newest, "next") != at {
		s.Errorf("changeset.xml leads to %s, and the newest change set is %s", to(newest, "next"), at)
	}
	if n := len(newest.Events); n == 0 || newest.Events[n-1].ID != ids[len(ids)-1] {
		s.Errorf("changeset.xml has %d events, which do not end where the newest change set does", n)
	}
	slices.Reverse(ids)
	return ids
}

func TestDialectWalk(t *testing.T) {
	for _, k := range []int{1, 700, 1000, 10_000} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			m := newMemory(t)
			m.make("peps", k)
			s := newServer(m, dialects())
			bodies := map[string][]byte{}
			for _, total := range []uint64{1, 999, 1000, 1001, 2000, 3500} {
				m.add("peps", int(total-m.state("peps").Head.Position))
				m.advance(2 * time.Hour)
				positions, pages := s.walkBack("peps")
				if !slices.Equal(positions, back(1, total)) {
					t.Errorf("of %d changes, the collection has %d", total, len(positions))
				}
				if c := s.collection("/sets/peps/activity/collection.json"); c.TotalItems != total {
					t.Errorf("totalItems is %d of %d", c.TotalItems, total)
				}
				positions, archive := s.readArchive("peps")
				if !slices.Equal(positions, back(1, total)) {
					t.Errorf("of %d changes, the feed has %d", total, len(positions))
				}
				if events := s.walkChangeSets("peps"); !slices.Equal(events, back(1, total)) {
					t.Errorf("of %d changes, the change sets have %d", total, len(events))
				}
				for i, path := range slices.Concat(pages, archive) {
					w := s.get(path)
					immutable := strings.Contains(w.Header().Get("Cache-Control"), "immutable")
					if immutable != (i > 0) { // but the newest page
						t.Errorf("%s has Cache-Control %s", path, w.Header().Get("Cache-Control"))
					}
					if before, ok := bodies[path]; ok && !bytes.Equal(before, w.Body.Bytes()) {
						t.Errorf("%s has changed", path)
					}
					if immutable {
						bodies[path] = w.Body.Bytes()
					}
				}
			}
		})
	}
}

// Retention takes pages away whole, and what named them says so.
func TestDialectRetention(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 100)
	m.add("peps", 4_200)
	s := newServer(m, dialects())
	_, pages := s.walkBack("peps")
	old := m.state("peps")
	m.trim("peps", 2_500) // the floor lies within page 2
	positions, kept := s.walkBack("peps")
	if !slices.Equal(positions, back(2001, 4200)) || !slices.Equal(kept, pages[:3]) {
		t.Errorf("%d changes are kept on %q", len(positions), kept)
	}
	for _, path := range []string{pages[3], pages[4], pageURL(old, "atom-", 2, ".xml")} {
		if w := s.get(path); w.Code != http.StatusGone {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if c := s.collection("/sets/peps/activity/collection.json"); c.TotalItems != 2200 || c.First.ID != base+kept[2] {
		t.Errorf("the collection is %+v", c)
	}
	if page := s.collection(kept[2]); page.Prev == nil || page.Prev.ID != base+pages[3] {
		t.Errorf("the oldest page is %+v", page)
	}
	m.advance(48 * time.Hour)
	if _, err := m.Trim(t.Context(), "peps", changelog.Retention{Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	rest := m.state("peps")
	if positions, kept := s.walkBack("peps"); !slices.Equal(positions, back(rest.Floor.Position+1, 4200)) || rest.Len() == 0 || !slices.Equal(kept, pages[:1]) {
		t.Errorf("of a part of the newest page, %d changes are kept on %q", len(positions), kept)
	}
	if positions, _ := s.readArchive("peps"); !slices.Equal(positions, back(rest.Floor.Position+1, 4200)) {
		t.Errorf("of a part of the newest page, the feed has %d changes", len(positions))
	}
}

// A page that may be filled anew, or that names such a page, has another name in a new epoch.
func TestDialectEpoch(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 100)
	m.add("peps", 2_950)
	s := newServer(m, dialects())
	_, before := s.walkBack("peps")
	if _, err := m.BeginEpoch(t.Context(), "peps", feed.Cursor{}); err != nil {
		t.Fatal(err)
	}
	_, after := s.walkBack("peps")
	if after[0] == before[0] || after[1] != before[1] || after[2] != before[2] {
		t.Errorf("the pages are %q, and were %q", after, before)
	}
	for _, path := range []string{before[0], strings.Replace(after[1], "-2.json", "-4.json", 1), strings.Replace(after[1], "-2.json", "-02.json", 1), "/sets/peps/activity/page-1-1.json", "/sets/peps/activity/page-1.json"} {
		if w := s.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A log that loses its newest entries while a page is read breaks the page off, or it is an
// error: no page lacks entries and looks complete.
func TestDialectMoves(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 100)
	m.add("peps", 1_500)
	s := newServer(m, dialects())
	change := func() { m.before.Store(nil); m.trim("peps", 10) }
	m.before.Store(&change)
	if w := s.get("/sets/peps/atom.xml"); w.Code < 400 {
		t.Errorf("the feed is answered %d", w.Code)
	}
}
