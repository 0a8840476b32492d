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

// resources are generated documents.Resources.
type resources struct {
	cursor feed.Cursor
	count  int
	make   func(i int) resourcesync.Change // returns a resource, in the order of loc
	walks  int                             // calls of Walk
}

func (r *resources) Cursor() feed.Cursor { return r.cursor }

func (r *resources) Tally(_ context.Context, in inventory.Range) (t digest.Tally, err error) {
	if in != (inventory.Range{}) {
		return t, fmt.Errorf("got a tally of %v, want all", in)
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

// inventories has the Resource Lists of the set peps.
type inventories struct {
	lists []*documents.List // oldest first
	err   error
}

func (s *inventories) ResourceList(_ context.Context, _ string, at feed.Cursor) (*documents.List, error) {
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

// put adds a list of count resources at a position of the log.
func (s *inventories) put(position uint64, count int, make func(i int) resourcesync.Change) *resources {
	r := &resources{cursor: feed.Cursor{Position: position, Micros: startTime.UnixMicro() + int64(position)}, count: count, make: make}
	s.lists = append(s.lists, &documents.List{Resources: r, Completed: startTime.Add(time.Minute)})
	return r
}

// small returns a resource of usual size.
func small(i int) resourcesync.Change {
	return resourcesync.Change{Loc: fmt.Sprintf("https://peps.example.org/%08d", i), Change: resourcesync.Updated, Type: "text/plain"}
}

// large returns a resource of more than 2 KB.
func large(i int) resourcesync.Change {
	c := small(i)
	c.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/" + strings.Repeat("x", 1_900)}}
	return c
}

func TestGoldenResourceLists(t *testing.T) {
	sh := &inventories{}
	m, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
	compare := func(name, url string) {
		t.Helper()
		w := s.get(url)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/xml" {
			t.Fatalf("GET %s: got %d %s, want 200 and XML", url, w.Code, w.Body)
		}
		golden(t, name+".golden.xml", w.Body.Bytes())
	}
	sh.put(5, 0, small)
	compare("empty-resourcelist", "/sets/peps/resourcelist.xml")
	compare("capabilitylist-empty-resourcelist", "/sets/peps/capabilitylist.xml")
	sh.put(7, 4, func(i int) resourcesync.Change { return change(uint64(i) + 1) })
	compare("resourcelist", "/sets/peps/resourcelist.xml")
	s = newServer(m, documents.Options{Inventories: sh})
	compare("capabilitylist-resourcelist", "/sets/peps/capabilitylist.xml")
	sh.put(50_020, 50_001, small)
	compare("resourcelist-index", "/sets/peps/resourcelist.xml")
	compare("resourcelist-part", "/sets/peps/resourcelist-50020-1767323045050020-2-1767323105000000.xml")
}

// All parts together have every resource once, and none is too large.
func TestResourceListSizes(t *testing.T) {
	for _, test := range []struct {
		count int
		make  func(int) resourcesync.Change
		parts int // 0 if there is no index
	}{
		{0, small, 0}, {1, small, 0}, {49_999, small, 0}, {50_000, small, 0}, {50_001, small, 2}, {120_000, small, 3},
		{30_000, large, 2},
	} {
		t.Run(fmt.Sprintf("%d/%d", test.count, test.parts), func(t *testing.T) {
			if testing.Short() && test.count > 1 && test.count != 50_001 {
				t.Skip("writes large documents")
			}
			sh := &inventories{}
			r := sh.put(9, test.count, test.make)
			_, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
			urls := []string{"/sets/peps/resourcelist.xml"}
			if test.parts > 0 {
				index := s.read(urls[0])
				if index.XMLName.Local != "sitemapindex" || index.MD.Cursor != r.cursor.String() || len(index.Sitemaps) != test.parts {
					t.Fatalf("index = %+v, want %d parts at %v", index, test.parts, r.cursor)
				}
				urls = s.indexPaths(urls[0])
			}
			next := 0
			for _, url := range urls {
				w := s.get(url)
				if n := w.Body.Len(); w.Code != http.StatusOK || n > 50<<20 {
					t.Fatalf("GET %s: got %d, %d bytes, want 200 and at most 50 MiB", url, w.Code, n)
				}
				d, err := resourcesync.ReadXML(w.Body, resourcesync.Limits{Bytes: 60 << 20})
				if err != nil || d.Index || d.Capability != resourcesync.ResourceList || len(d.Items) > 50_000 || !d.At.Equal(r.cursor.Time()) || !d.Completed.Equal(startTime.Add(time.Minute)) {
					t.Fatalf("GET %s: got %d entries, %v, want a Resource List of at most 50,000", url, len(d.Items), err)
				}
				if hasIndex := len(d.Links) == 2 && d.Links[1].Rel == "index" && d.Links[1].Href == base+"/sets/peps/resourcelist.xml"; hasIndex != (test.parts > 0) {
					t.Errorf("GET %s: got the links %v, want the index: %t", url, d.Links, test.parts > 0)
				}
				for _, it := range d.Items {
					if it.Loc != test.make(next).Loc || it.Change.Change != "" || !it.Datetime.IsZero() {
						t.Fatalf("GET %s: got the entry %+v, want %d", url, it, next)
					}
					next++
				}
			}
			if next != test.count {
				t.Errorf("got %d resources, want %d", next, test.count)
			}
		})
	}
}

// A part is immutable, has the same bytes and ETag on every hub, and exists as long as its list. A 304
// reads no resources.
func TestResourceListParts(t *testing.T) {
	sh := &inventories{}
	first := sh.put(9, 50_001, small)
	m, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
	other := newServer(m, documents.Options{Inventories: sh})
	const part = "/sets/peps/resourcelist-9-1767323045000009-2-1767323105000000.xml"
	for _, path := range []string{"/sets/peps/resourcelist.xml", part} {
		for _, encoding := range []string{"identity", "gzip"} {
			a, b := s.get(path, "Accept-Encoding", encoding), other.get(path, "Accept-Encoding", encoding)
			if a.Code != 200 || a.Header().Get("Etag") == "" || a.Header().Get("Etag") != b.Header().Get("Etag") || !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) {
				t.Errorf("GET %s: got %v and %v from two hubs, want the same", path, a.Header(), b.Header())
			}
			want := map[bool]string{true: "public, max-age=31536000, immutable", false: "no-cache"}[path == part]
			if got := a.Header().Get("Cache-Control"); got != want {
				t.Errorf("GET %s: got Cache-Control %s, want %s", path, got, want)
			}
			if encoding == "gzip" {
				if !bytes.Equal(gunzip(t, a.Body.Bytes()), s.get(path).Body.Bytes()) {
					t.Errorf("GET %s: got other bytes with gzip, want the same", path)
				}
			}
			walks := first.walks
			if again := s.get(path, "Accept-Encoding", encoding, "If-None-Match", a.Header().Get("Etag")); again.Code != 304 || first.walks != walks {
				t.Errorf("GET %s with If-None-Match: got %d after %d walks, want 304 after none", path, again.Code, first.walks-walks)
			}
		}
	}
	old := s.get(part).Body.Bytes()

	// Another meaning of lastmod changes the bytes, so the name changes, too.
	const dated = "/sets/peps/resourcelist-9-1767323045000009-2-1767323105000000-datetime.xml"
	describe := func(d feed.Description, there, not string) {
		t.Helper()
		m.describe("peps", d)
		w := s.get(there)
		if index := s.get("/sets/peps/resourcelist.xml").Body.String(); w.Code != 200 || !strings.Contains(index, base+there) || strings.Contains(index, base+not) || s.get(not).Code != 404 {
			t.Errorf("GET %s: got %d, GET %s: got %d, index %s, want only the first", there, w.Code, not, s.get(not).Code, index)
		}
		if got := w.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("GET %s: got Cache-Control %s, want immutable", there, got)
		}
	}
	describe(feed.Description{Lastmod: feed.LastmodDatetime}, dated, part)
	describe(feed.Description{}, part, dated)

	sh.put(12, 3, small)
	if now := s.get(part); !bytes.Equal(now.Body.Bytes(), old) {
		t.Errorf("part of the old list: got %d, %d bytes, want the same bytes", now.Code, now.Body.Len())
	}
	if now := s.get("/sets/peps/resourcelist.xml"); !strings.Contains(now.Body.String(), `h:cursor="12-`) {
		t.Errorf("got the list %s, want the new one", now.Body)
	}
	sh.lists = sh.lists[1:]
	if now := s.get(part); now.Code != 410 || !strings.Contains(now.Body.String(), "/sets/peps/resourcelist.xml") {
		t.Errorf("part of a removed list: got %d %s, want 410 and the URL of the new one", now.Code, now.Body)
	}
	for _, path := range []string{
		"resourcelist-12-1767323045000012-1-1767323105000000.xml", // resourcelist.xml has everything
		"resourcelist-12-1767323045000012-0-1767323105000000.xml", "resourcelist-12-1767323045000012-9-1767323105000000.xml", "resourcelist-12-1767323045000012-1.1-1767323105000000.xml", "resourcelist-12-1767323045000012-1.2-1767323105000000.xml",
		"resourcelist-12-1767323045000012-01-1767323105000000.xml", "resourcelist-12-1.xml", "resourcelist-12-1767323045000012-1.xml", "resourcelist-.xml", "resourcelist-12-1767323045000012.xml", "resourcelist--1-2-3.xml",
	} {
		if w := s.get("/sets/peps/" + path); w.Code != 404 {
			t.Errorf("GET %s: got %d %s, want 404", path, w.Code, w.Body)
		}
	}
}

// A new list at the same cursor, as after an inventory was turned off and on, has parts with other names,
// because caches store the old documents forever.
func TestNewResourceListAtSameCursor(t *testing.T) {
	sh := &inventories{}
	sh.put(9, 50_001, small)
	_, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
	old := map[string]string{}
	for _, url := range s.indexPaths("/sets/peps/resourcelist.xml") {
		old[url] = s.get(url).Body.String()
	}
	renewed := *sh.lists[0]
	renewed.Completed = renewed.Completed.Add(time.Hour)
	sh.lists[0] = &renewed
	for _, url := range s.indexPaths("/sets/peps/resourcelist.xml") {
		if w := s.get(url); w.Code != 200 || old[url] != "" && old[url] != w.Body.String() {
			t.Errorf("GET %s: got %d with other bytes than before and Cache-Control %s, want a new name", url, w.Code, w.Header().Get("Cache-Control"))
		}
	}
	for url := range old {
		if w := s.get(url); w.Code != 404 {
			t.Errorf("part of the old list: got %d, want 404", w.Code)
		}
	}
}

// Without a complete inventory, the hub has no Resource List.
func TestNoResourceList(t *testing.T) {
	sh := &inventories{err: &feed.Error{Code: "incomplete", Status: 404, Text: "not complete", Detail: "the hub may not know all resources"}}
	m, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
	for _, own := range []string{"", "https://peps.example.org/list.xml"} {
		m.describe("peps", feed.Description{ResourceList: own})
		w := s.get("/sets/peps/resourcelist.xml")
		if w.Code != 404 || !strings.Contains(w.Body.String(), "may not know all") || strings.Contains(w.Body.String(), "example.org/list.xml") != (own != "") {
			t.Errorf("Resource List with that of the source %q: got %d %s, want 404 with the reason", own, w.Code, w.Body)
		}
		w = s.get("/sets/peps/capabilitylist.xml")
		if strings.Contains(w.Body.String(), `capability="resourcelist"`) != (own != "") || !strings.Contains(w.Body.String(), own) || strings.Contains(w.Body.String(), base+"/sets/peps/resourcelist.xml") {
			t.Errorf("Capability List with the Resource List of the source %q = %s, want only that", own, w.Body)
		}
	}
	sh.err = nil
	sh.put(3, 3, small)
	if w := s.get("/sets/peps/capabilitylist.xml"); strings.Count(w.Body.String(), `capability="resourcelist"`) != 1 || !strings.Contains(w.Body.String(), "<loc>"+base+"/sets/peps/resourcelist.xml</loc>") {
		t.Errorf("Capability List = %s, want the Resource List of the hub", w.Body)
	}
	sh.err = fmt.Errorf("in a test: %w", feed.ErrUnavailable)
	if w := s.get("/sets/peps/capabilitylist.xml"); w.Code != 200 {
		t.Errorf("Capability List while the store is unavailable: got %d %s, want the last one", w.Code, w.Body)
	}
}
