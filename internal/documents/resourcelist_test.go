package documents_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// Resources are made as they are asked for.
type resources struct {
	cursor feed.Cursor
	count  int
	make   func(i int) resourcesync.Change // in the order of loc
	walks  int
}

func (r *resources) Cursor() feed.Cursor { return r.cursor }

func (r *resources) Tally(_ context.Context, in inventory.Range) (t digest.Tally, err error) {
	if in != (inventory.Range{}) {
		return t, fmt.Errorf("a tally of %v", in)
	}
	return digest.Tally{Count: uint64(r.count)}, nil
}

func (r *resources) Nth(_ context.Context, n uint64) (string, bool, error) {
	if n >= uint64(r.count) {
		return "", false, nil
	}
	return r.make(int(n)).Loc, true, nil
}

func (r *resources) Walk(_ context.Context, in inventory.Range) iter.Seq2[*feed.Entry, error] {
	r.walks++
	return func(yield func(*feed.Entry, error) bool) {
		for i := sort.Search(r.count, func(i int) bool { return r.make(i).Loc >= in.From }); i < r.count; i++ {
			e := feed.Entry{Cursor: feed.Cursor{Position: uint64(i) + 1, Micros: r.cursor.Micros - 1}, Change: r.make(i)}
			if !in.Has(e.Change.Loc) || !yield(&e, nil) {
				return
			}
		}
	}
}

// A shelf has the Resource Lists of the set peps.
type shelf struct {
	lists []*documents.List // oldest first
	err   error
}

func (s *shelf) ResourceList(_ context.Context, _ string, at feed.Cursor) (*documents.List, error) {
	if s.err != nil {
		return nil, s.err
	}
	for i := len(s.lists) - 1; i >= 0; i-- {
		if at.IsZero() || s.lists[i].Cursor() == at {
			return s.lists[i], nil
		}
	}
	return nil, fmt.Errorf("in a test: %w", feed.ErrGone)
}

// put adds the newest list: of count resources, at a position of the log.
func (s *shelf) put(position uint64, count int, make func(i int) resourcesync.Change) *resources {
	r := &resources{cursor: feed.Cursor{Position: position, Micros: began.UnixMicro() + int64(position)}, count: count, make: make}
	s.lists = append(s.lists, &documents.List{Resources: r, Completed: began.Add(time.Minute)})
	return r
}

// numbered returns a resource of the usual size.
func numbered(i int) resourcesync.Change {
	return resourcesync.Change{Loc: fmt.Sprintf("https://peps.example.org/%08d", i), Change: resourcesync.Updated, Type: "text/plain"}
}

// long returns a resource that takes more than 2 KB.
func long(i int) resourcesync.Change {
	c := numbered(i)
	c.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/" + strings.Repeat("x", 1_900)}}
	return c
}

func TestGoldenResourceLists(t *testing.T) {
	sh := &shelf{}
	m, s := filled(t, 4, 0, documents.Options{Inventories: sh})
	compare := func(name, url string) {
		t.Helper()
		w := s.get(url)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/xml" {
			t.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
		}
		golden(t, name+".golden.xml", w.Body.Bytes())
	}
	sh.put(5, 0, numbered)
	compare("empty-resourcelist", "/sets/peps/resourcelist.xml")
	compare("capabilitylist-empty-resourcelist", "/sets/peps/capabilitylist.xml")
	sh.put(7, 4, func(i int) resourcesync.Change { return change(uint64(i) + 1) })
	compare("resourcelist", "/sets/peps/resourcelist.xml")
	s = newServer(m, documents.Options{Inventories: sh})
	compare("capabilitylist-resourcelist", "/sets/peps/capabilitylist.xml")
	sh.put(50_020, 50_001, numbered)
	compare("resourcelist-index", "/sets/peps/resourcelist.xml")
	compare("resourcelist-part", "/sets/peps/resourcelist-50020-1767323045050020-2-1767323105000000.xml")
}

// All documents together name every resource once, and none of them is too large.
func TestResourceListIsCut(t *testing.T) {
	for _, test := range []struct {
		count int
		make  func(int) resourcesync.Change
		parts int // 0: there is no index
	}{
		{0, numbered, 0}, {1, numbered, 0}, {49_999, numbered, 0}, {50_000, numbered, 0}, {50_001, numbered, 2}, {120_000, numbered, 3},
		{30_000, long, 2},
	} {
		t.Run(fmt.Sprintf("%d/%d", test.count, test.parts), func(t *testing.T) {
			if testing.Short() && test.count > 1 && test.count != 50_001 {
				t.Skip("writes large documents")
			}
			sh := &shelf{}
			r := sh.put(9, test.count, test.make)
			_, s := filled(t, 4, 0, documents.Options{Inventories: sh})
			urls := []string{"/sets/peps/resourcelist.xml"}
			if test.parts > 0 {
				index := s.read(urls[0])
				if index.XMLName.Local != "sitemapindex" || index.MD.Cursor != r.cursor.String() || len(index.Sitemaps) != test.parts {
					t.Fatalf("the index is %+v", index)
				}
				urls = s.named(urls[0])
			}
			next := 0
			for _, url := range urls {
				w := s.get(url)
				if n := w.Body.Len(); w.Code != http.StatusOK || n > 50<<20 {
					t.Fatalf("%s: %d, %d bytes", url, w.Code, n)
				}
				d, err := resourcesync.ReadXML(w.Body, resourcesync.Limits{Bytes: 60 << 20})
				if err != nil || d.Index || d.Capability != resourcesync.ResourceList || len(d.Items) > 50_000 || !d.At.Equal(r.cursor.Time()) || !d.Completed.Equal(began.Add(time.Minute)) {
					t.Fatalf("%s: %d entries, %v", url, len(d.Items), err)
				}
				if hasIndex := len(d.Links) == 2 && d.Links[1].Rel == "index" && d.Links[1].Href == base+"/sets/peps/resourcelist.xml"; hasIndex != (test.parts > 0) {
					t.Errorf("%s: its links are %v", url, d.Links)
				}
				for _, it := range d.Items {
					if it.Loc != test.make(next).Loc || it.Change.Change != "" || !it.Datetime.IsZero() {
						t.Fatalf("%s: the entry is %+v, want %d", url, it, next)
					}
					next++
				}
			}
			if next != test.count {
				t.Errorf("%d resources are named, want %d", next, test.count)
			}
		})
	}
}

// A part never changes. Its bytes and its ETag are the same on every hub, and it is kept
// for as long as the list is. Whoever asks again for what has not changed reads nothing.
func TestResourceListParts(t *testing.T) {
	sh := &shelf{}
	first := sh.put(9, 50_001, numbered)
	m, s := filled(t, 4, 0, documents.Options{Inventories: sh})
	other := newServer(m, documents.Options{Inventories: sh})
	const part = "/sets/peps/resourcelist-9-1767323045000009-2-1767323105000000.xml"
	for _, path := range []string{"/sets/peps/resourcelist.xml", part} {
		for _, encoding := range []string{"identity", "gzip"} {
			a, b := s.get(path, "Accept-Encoding", encoding), other.get(path, "Accept-Encoding", encoding)
			if a.Code != 200 || a.Header().Get("Etag") == "" || a.Header().Get("Etag") != b.Header().Get("Etag") || !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) {
				t.Errorf("%s: two hubs give %v and %v", path, a.Header(), b.Header())
			}
			want := map[bool]string{true: "public, max-age=31536000, immutable", false: "no-cache"}[path == part]
			if got := a.Header().Get("Cache-Control"); got != want {
				t.Errorf("%s: Cache-Control is %s", path, got)
			}
			if encoding == "gzip" {
				if !bytes.Equal(gunzip(t, a.Body.Bytes()), s.get(path).Body.Bytes()) {
					t.Errorf("%s: compressed it is other bytes", path)
				}
			}
			walks := first.walks
			if again := s.get(path, "Accept-Encoding", encoding, "If-None-Match", a.Header().Get("Etag")); again.Code != 304 || first.walks != walks {
				t.Errorf("%s: asked again it is %d, after %d walks", path, again.Code, first.walks-walks)
			}
		}
	}
	old := s.get(part).Body.Bytes()

	// With another lastmod its bytes are others. So it has another name.
	const dated = "/sets/peps/resourcelist-9-1767323045000009-2-1767323105000000-datetime.xml"
	describe := func(d feed.Description, there, not string) {
		t.Helper()
		m.describe("peps", d)
		w := s.get(there)
		if index := s.get("/sets/peps/resourcelist.xml").Body.String(); w.Code != 200 || !strings.Contains(index, base+there) || strings.Contains(index, base+not) || s.get(not).Code != 404 {
			t.Errorf("%s is %d, %s is %d, and the index is %s", there, w.Code, not, s.get(not).Code, index)
		}
		if got := w.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control is %s", there, got)
		}
	}
	describe(feed.Description{Lastmod: feed.LastmodDatetime}, dated, part)
	describe(feed.Description{}, part, dated)

	sh.put(12, 3, numbered)
	if now := s.get(part); !bytes.Equal(now.Body.Bytes(), old) {
		t.Errorf("after a renewal a part is %d, %d bytes", now.Code, now.Body.Len())
	}
	if now := s.get("/sets/peps/resourcelist.xml"); !strings.Contains(now.Body.String(), `h:cursor="12-`) {
		t.Errorf("the new list is %s", now.Body)
	}
	sh.lists = sh.lists[1:]
	if now := s.get(part); now.Code != 410 || !strings.Contains(now.Body.String(), "/sets/peps/resourcelist.xml") {
		t.Errorf("a part that is not kept is %d %s", now.Code, now.Body)
	}
	for _, path := range []string{
		"resourcelist-12-1767323045000012-1-1767323105000000.xml", // resourcelist.xml has all
		"resourcelist-12-1767323045000012-0-1767323105000000.xml", "resourcelist-12-1767323045000012-9-1767323105000000.xml", "resourcelist-12-1767323045000012-1.1-1767323105000000.xml", "resourcelist-12-1767323045000012-1.2-1767323105000000.xml",
		"resourcelist-12-1767323045000012-01-1767323105000000.xml", "resourcelist-12-1.xml", "resourcelist-12-1767323045000012-1.xml", "resourcelist-.xml", "resourcelist-12-1767323045000012.xml", "resourcelist--1-2-3.xml",
	} {
		if w := s.get("/sets/peps/" + path); w.Code != 404 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// A list that is made again at the same cursor, as when an inventory is turned off and on, is
// another one. So its parts have other names: caches keep those of the old one for good.
func TestResourceListMadeAgain(t *testing.T) {
	sh := &shelf{}
	sh.put(9, 50_001, numbered)
	_, s := filled(t, 4, 0, documents.Options{Inventories: sh})
	old := map[string]string{}
	for _, url := range s.named("/sets/peps/resourcelist.xml") {
		old[url] = s.get(url).Body.String()
	}
	again := *sh.lists[0]
	again.Completed = again.Completed.Add(time.Hour)
	sh.lists[0] = &again
	for _, url := range s.named("/sets/peps/resourcelist.xml") {
		if w := s.get(url); w.Code != 200 || old[url] != "" && old[url] != w.Body.String() {
			t.Errorf("%s is %d, and had other bytes before, with the Cache-Control %s", url, w.Code, w.Header().Get("Cache-Control"))
		}
	}
	for url := range old {
		if w := s.get(url); w.Code != 404 {
			t.Errorf("a part of the old list is %d", w.Code)
		}
	}
}

// Without a complete inventory there is no Resource List of the hub's own.
func TestNoResourceList(t *testing.T) {
	sh := &shelf{err: &feed.Error{Code: "incomplete", Status: 404, Text: "not complete", Detail: "the hub may not know all resources"}}
	m, s := filled(t, 4, 0, documents.Options{Inventories: sh})
	for _, own := range []string{"", "https://peps.example.org/list.xml"} {
		m.describe("peps", feed.Description{ResourceList: own})
		w := s.get("/sets/peps/resourcelist.xml")
		if w.Code != 404 || !strings.Contains(w.Body.String(), "may not know all") || strings.Contains(w.Body.String(), "example.org/list.xml") != (own != "") {
			t.Errorf("the source's own is %q: %d %s", own, w.Code, w.Body)
		}
		w = s.get("/sets/peps/capabilitylist.xml")
		if strings.Contains(w.Body.String(), `capability="resourcelist"`) != (own != "") || !strings.Contains(w.Body.String(), own) || strings.Contains(w.Body.String(), base+"/sets/peps/resourcelist.xml") {
			t.Errorf("the source's own is %q: the Capability List is %s", own, w.Body)
		}
	}
	sh.err = nil
	sh.put(3, 3, numbered)
	if w := s.get("/sets/peps/capabilitylist.xml"); strings.Count(w.Body.String(), `capability="resourcelist"`) != 1 || !strings.Contains(w.Body.String(), "<loc>"+base+"/sets/peps/resourcelist.xml</loc>") {
		t.Errorf("the Capability List is %s", w.Body)
	}
	sh.err = fmt.Errorf("in a test: %w", feed.ErrUnavailable)
	if w := s.get("/sets/peps/capabilitylist.xml"); w.Code != 200 {
		t.Errorf("while the store is away it is %d %s", w.Code, w.Body)
	}
}
