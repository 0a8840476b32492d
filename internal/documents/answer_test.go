package documents_test

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
)

// FuzzNotModified tests lists of ETags and dates.
func TestConditionalRequests(t *testing.T) {
	m, s := newFilled(t, 3, 8, documents.Options{})
	m.advance(300 * time.Millisecond)
	const path = "/sets/peps/changelist.xml"
	tag := s.get(path).Header().Get("Etag")
	zipped := s.get(path, "Accept-Encoding", "gzip").Header().Get("Etag")
	if tag == "" || tag == zipped || strings.HasPrefix(tag, "W/") {
		t.Fatalf("got the ETags %s and %s, want two strong ones", tag, zipped)
	}
	const second = "Fri, 02 Jan 2026 03:04:07 GMT" // after the batch of 03:04:06
	for _, test := range []struct {
		name   string
		header []string
		later  time.Duration
		code   int
	}{
		{"no condition", nil, time.Hour, 200},
		{"same ETag", []string{"If-None-Match", tag}, 0, 304},
		{"other ETag", []string{"If-None-Match", `"other"`}, 0, 200},
		{"ETag of the other coding", []string{"If-None-Match", zipped}, 0, 200},
		{"ETag of gzip", []string{"If-None-Match", zipped, "Accept-Encoding", "gzip"}, 0, 304},
		{"ETag of identity for gzip", []string{"If-None-Match", tag, "Accept-Encoding", "gzip"}, 0, 200},
		{"same time", []string{"If-Modified-Since", second}, time.Hour, 304},
		{"later time", []string{"If-Modified-Since", "Fri, 02 Jan 2026 03:05:00 GMT"}, time.Hour, 304},
		{"earlier time", []string{"If-Modified-Since", "Fri, 02 Jan 2026 03:04:06 GMT"}, time.Hour, 200},
		{"same time within the second", []string{"If-Modified-Since", second}, 0, 200},
		{"same time within the clock skew", []string{"If-Modified-Since", second}, 30 * time.Second, 200},
		{"matching ETag overrides time", []string{"If-None-Match", tag, "If-Modified-Since", "Fri, 02 Jan 2015 03:04:06 GMT"}, time.Hour, 304},
		{"other ETag overrides time", []string{"If-None-Match", `"other"`, "If-Modified-Since", second}, time.Hour, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := m.now.Load()
			defer m.now.Store(now)
			m.advance(test.later)
			for _, method := range []string{"GET", "HEAD"} {
				reads := m.reads.Load()
				w := s.do(method, path, test.header...)
				h := w.Header()
				if w.Code != test.code {
					t.Fatalf("%s: got %d, want %d", method, w.Code, test.code)
				}
				if h.Get("Etag") == "" || h.Get("Cache-Control") != "no-cache" || h.Get("Vary") != "Accept-Encoding" {
					t.Errorf("%s: got the header %v, want an ETag, no-cache and Vary", method, h)
				}
				if test.code == 304 && (w.Body.Len() > 0 || h.Get("Content-Type")+h.Get("Content-Length")+h.Get("Content-Encoding")+h.Get("Last-Modified") != "" || m.reads.Load() != reads) {
					t.Errorf("%s: got a 304 with %v, %d bytes, %d reads, want no content and no reads", method, h, w.Body.Len(), m.reads.Load()-reads)
				}
				if want := map[bool]string{true: second}[test.later > time.Minute]; test.code == 200 && h.Get("Last-Modified") != want {
					t.Errorf("Last-Modified = %q, want %q", h.Get("Last-Modified"), want)
				}
			}
		})
	}
}

// A change in the same second as the state that a client has must not get a 304.
func TestModifiedWithinSecond(t *testing.T) {
	m, s := newFilled(t, 3, 1, documents.Options{})
	date := m.clock().UTC().Truncate(time.Second).Format(http.TimeFormat) // Date of the response
	if got := s.get("/sets/peps/changelist.xml").Header().Get("Last-Modified"); got != "" {
		t.Errorf("Last-Modified = %s, want none, because another entry may have it", got)
	}
	m.now.Add(-int64(time.Second))
	m.advance(500 * time.Millisecond)
	m.add("peps", 1) // half a second later
	m.advance(time.Hour)
	if w := s.get("/sets/peps/changelist.xml", "If-Modified-Since", date); w.Code != 200 {
		t.Errorf("GET with If-Modified-Since: got %d, want 200", w.Code)
	}
}

// A new meaning of lastmod changes the bytes of a list without a new entry. Requests with
// If-Modified-Since must not get a 304.
func TestModifiedByDescription(t *testing.T) {
	sh := &inventories{}
	sh.put(7, 4, small)
	m, s := newFilled(t, 3, 8, documents.Options{Inventories: sh})
	m.advance(time.Hour)
	for _, path := range []string{"changelist.xml", "changelist.xml?from=2026-01-02T03:04:06Z", "resourcelist.xml"} {
		for _, lastmod := range []feed.Lastmod{feed.LastmodSource, feed.LastmodDatetime, feed.LastmodSeconds} {
			date := s.get("/sets/peps/" + path).Header().Get("Last-Modified")
			m.describe("peps", feed.Description{Lastmod: lastmod})
			if w := s.get("/sets/peps/"+path, "If-Modified-Since", date); w.Code != 200 && lastmod != feed.LastmodSource {
				t.Errorf("GET %s since %s with lastmod %s: got %d, want 200", path, date, lastmod, w.Code)
			}
		}
		m.describe("peps", feed.Description{})
	}
}

// An unchanged document gets a 304 without reading entries. TestETagChangesWithBytes tests when it is
// unchanged.
func TestNotModified(t *testing.T) {
	m, s := newFilled(t, 3, 7, documents.Options{CacheBytes: 1}) // nothing is cached
	for _, path := range []string{"/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync", "/sets/peps/capabilitylist.xml", "/sets/peps/changelist.xml",
		"/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z", "/sets/peps/changelist-index.xml", "/sets/peps/changes", m.list("peps", 1), m.list("peps", 3)} {
		tag, reads := s.get(path).Header().Get("Etag"), m.reads.Load()
		if w := s.do("HEAD", path, "If-None-Match", tag); w.Code != 304 || m.reads.Load() != reads {
			t.Errorf("HEAD %s: got %d after %d reads, want 304 after none", path, w.Code, m.reads.Load()-reads)
		}
	}
}

// Only names that never refer to anything else are immutable. A closed list is also served by the name
// that it had while it was open.
func TestCacheControl(t *testing.T) {
	m, s := newFilled(t, 3, 5, documents.Options{})
	openName := m.list("peps", 2)
	m.add("peps", 3)
	check := func(path, want string, header ...string) {
		t.Helper()
		if w := s.get(path, header...); w.Code != 200 || w.Header().Get("Cache-Control") != want {
			t.Errorf("GET %s: got %d, Cache-Control %q, want 200, %q", path, w.Code, w.Header().Get("Cache-Control"), want)
		}
	}
	check(m.list("peps", 1), "public, max-age=31536000, immutable")
	check(m.list("peps", 2), "public, max-age=31536000, immutable")
	check(m.list("peps", 2), "private, max-age=31536000, immutable", "Authorization", "Bearer x")
	m.advance(2 * time.Hour)
	for _, path := range []string{openName, m.list("peps", 3), "/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", "/sets/peps/capabilitylist.xml", "/sets/peps/changes", "/.well-known/resourcesync"} {
		check(path, "no-cache")
	}
	if a, b := s.get(openName), s.get(m.list("peps", 2)); !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) {
		t.Errorf("list by its open name =\n%s\nwant\n%s", a.Body, b.Body)
	}
}

func TestGzip(t *testing.T) {
	_, s := newFilled(t, 3, 8, documents.Options{})
	const path = "/sets/peps/changelist.xml"
	plain := s.get(path).Body.Bytes()
	for _, test := range []struct {
		accept string
		gzip   bool
	}{
		{"", false},
		{"gzip", true},
		{"x-gzip", true},
		{"GZIP", true},
		{"deflate, gzip;q=1.0, *;q=0.5", true},
		{"gzip, deflate, br, zstd", true},
		{"br", false},
		{"*", true},
		{"*;q=0", false},
		{"*;q=0.1", true},
		{"gzip;q=0", false},
		{"gzip;q=0.000", false},
		{"gzip;q=0, *", false},
		{"gzip;q=0.001", true},
		{"gzip ; q=0.5", true},
		{"identity;q=1, gzip;q=0.5", false},
		{"identity;q=0.5, gzip;q=1", true},
		{"identity, gzip", true},
		{"identity", false},
		{"identity;q=0, gzip", true},
		{"gzip;q=0.5, *;q=1", false},
		{"gzip;q=2", false},
		{"gzip;q=NaN", false},
		{"gzip;level=9", false},
		{"gzipped", false},
	} {
		var header []string
		if test.accept != "" {
			header = []string{"Accept-Encoding", test.accept}
		}
		w := s.get(path, header...)
		body := w.Body.Bytes()
		zipped := w.Header().Get("Content-Encoding") == "gzip"
		if zipped != test.gzip {
			t.Errorf("Accept-Encoding %q: got %v, want gzip: %t", test.accept, w.Header(), test.gzip)
			continue
		}
		if zipped {
			body = gunzip(t, body)
		}
		if !bytes.Equal(body, plain) || w.Header().Get("Vary") != "Accept-Encoding" || strings.HasSuffix(w.Header().Get("Etag"), `-gzip"`) != zipped {
			t.Errorf("Accept-Encoding %q: got %v, want the same document, Vary and a matching ETag", test.accept, w.Header())
		}
	}
}

func TestMethods(t *testing.T) {
	m, s := newFilled(t, 3, 8, documents.Options{})
	for _, path := range []string{"/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync", "/sets/peps/capabilitylist.xml",
		"/sets/peps/changelist.xml", "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z", "/sets/peps/changelist-index.xml",
		m.list("peps", 1), "/sets/peps/changes", "/sets/peps/nothing.xml", m.list("peps", 9)} {
		for _, coding := range []string{"ETag of gzip", "identity"} {
			get, head := s.do("GET", path, "Accept-Encoding", coding), s.do("HEAD", path, "Accept-Encoding", coding)
			if head.Code != get.Code || head.Body.Len() != 0 || !maps.EqualFunc(head.Header(), get.Header(), func(a, b []string) bool {
				return strings.Join(a, "|") == strings.Join(b, "|")
			}) {
				t.Errorf("%s: got HEAD %d %v\nwant as GET %d %v", path, head.Code, head.Header(), get.Code, get.Header())
			}
			if get.Header().Get("Content-Length") == "" {
				t.Errorf("GET %s: got no Content-Length, want one", path)
			}
		}
		if strings.Contains(path, "nothing") {
			continue
		}
		allow := "GET, HEAD"
		if strings.HasSuffix(path, "/changes") {
			allow += ", POST"
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			if w := s.do(method, path); w.Code != 405 || w.Header().Get("Allow") != allow {
				t.Errorf("%s %s: got %d %v, want 405 and Allow: %s", method, path, w.Code, w.Header(), allow)
			}
		}
	}
}

// Concurrent pollers of the same document cause one read of the log.
func TestConcurrentPollersShareOneRead(t *testing.T) {
	m, s := newFilled(t, 3, 8, documents.Options{})
	var all sync.WaitGroup
	for range 1_000 {
		all.Go(func() {
			if w := s.get("/sets/peps/changelist.xml"); w.Code != 200 {
				t.Errorf("got %d, want 200", w.Code)
			}
		})
	}
	all.Wait()
	if n := m.reads.Load(); n != 1 {
		t.Errorf("got %d reads, want 1", n)
	}
}

// While the log is unavailable, cached documents are still served.
func TestOutage(t *testing.T) {
	m, s := newFilled(t, 3, 8, documents.Options{})
	cached := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", m.list("peps", 1), "/sets/peps/changes", "/sets/peps/capabilitylist.xml"}
	for _, path := range cached {
		s.get(path)
	}
	s.get(m.list("peps", 2), "If-None-Match", "*") // plans the document without caching its body
	m.create("gone", 3)
	m.add("gone", 8)
	gone := []string{"/sets/gone/changelist.xml", "/sets/gone/changelist-index.xml"}
	for _, path := range gone {
		s.get(path)
	}
	if err := m.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if w := s.get(gone[0]); w.Code != 404 {
		t.Errorf("list of a deleted set: got %d, want 404", w.Code)
	}
	unknown := []string{m.list("peps", 2), m.list("peps", 3)}
	m.down.Store(true)
	for _, path := range cached {
		if w := s.get(path); w.Code != 200 {
			t.Errorf("GET %s: got %d, want 200", path, w.Code)
		}
	}
	for _, path := range append(unknown, gone[0], "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z") {
		if w := s.get(path); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("GET %s: got %d %v, want 503 with Retry-After", path, w.Code, w.Header())
		}
	}
}

// The document at the topic has the same bytes as the pushed notification.
func TestLatestEqualsNotification(t *testing.T) {
	m, s := newFilled(t, 4, 3, documents.Options{})
	m.add("peps", 7)
	state := m.state("peps")
	b, err := m.Log.Since(t.Context(), "peps", state.BeforeLatest, 100)
	if err != nil || len(b.Entries) != 7 {
		t.Fatalf("Since = %v, %v, want 7 entries", b, err)
	}
	w := s.get("/sets/peps/changes")
	if !bytes.Equal(w.Body.Bytes(), b.XML()) {
		t.Errorf("topic =\n%s\nwant the pushed\n%s", w.Body, b.XML())
	}
	if got, want := w.Header().Values("Link"), `<https://hub.example.org/sets/peps/changes>; rel="self", <https://hub.example.org/hub>; rel="hub", <https://hub.example.org/sets/peps/capabilitylist.xml>; rel="resourcesync"`; len(got) != 1 || got[0] != want {
		t.Errorf("Link = %q, want %q", got, want)
	}
	if got := w.Header().Get("Vary"); got != "Accept, Accept-Encoding" {
		t.Errorf("Vary = %q, want Accept, Accept-Encoding", got)
	}
}

func TestLatestEmpty(t *testing.T) {
	m := newMemory(t)
	m.create("new", 2)
	m.create("trimmed", 2)
	m.add("trimmed", 8) // one batch over four lists; retention removes the first two
	s := newServer(m, documents.Options{})
	tag := s.get("/sets/trimmed/changes").Header().Get("Etag")
	m.trim("trimmed", 1)
	for _, set := range []string{"new", "trimmed"} {
		for _, method := range []string{"GET", "HEAD"} {
			w := s.do(method, "/sets/"+set+"/changes", "Accept-Encoding", "gzip", "If-None-Match", tag)
			h := w.Header()
			if w.Code != 200 || w.Body.Len() != 0 || h.Get("Content-Length") != "0" || h.Get("Content-Type") != "application/xml" ||
				h.Get("Content-Encoding") != "" || h.Get("Link") == "" {
				t.Errorf("%s topic of %s: got %d %v %q, want 200 and an empty body", method, set, w.Code, h, w.Body)
			}
		}
	}

	// Retention may also remove entries between planning and reading.
	m.create("late", 2)
	m.add("late", 8)
	before := func() { m.trim("late", 1) }
	m.before.Store(&before)
	m.advance(time.Hour)
	w := s.get("/sets/late/changes", "Accept-Encoding", "gzip")
	if w.Code != 200 || w.Header().Get("Content-Length") != "0" || w.Header().Get("Content-Encoding")+w.Header().Get("Last-Modified") != "" {
		t.Errorf("late: got %d %v, want 200 and an empty body", w.Code, w.Header())
	}
}
