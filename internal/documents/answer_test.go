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

// What a list of ETags and a date mean is what FuzzNotModified shows.
func TestConditional(t *testing.T) {
	m, s := filled(t, 3, 8, documents.Options{})
	m.advance(300 * time.Millisecond)
	const path = "/sets/peps/changelist.xml"
	tag := s.get(path).Header().Get("Etag")
	zipped := s.get(path, "Accept-Encoding", "gzip").Header().Get("Etag")
	if tag == "" || tag == zipped || strings.HasPrefix(tag, "W/") {
		t.Fatalf("ETags %s and %s", tag, zipped)
	}
	const second = "Fri, 02 Jan 2026 03:04:07 GMT" // after the batch of 03:04:06
	for _, test := range []struct {
		name   string
		header []string
		later  time.Duration
		code   int
	}{
		{"no condition", nil, time.Hour, 200},
		{"same", []string{"If-None-Match", tag}, 0, 304},
		{"other", []string{"If-None-Match", `"other"`}, 0, 200},
		{"of the other form", []string{"If-None-Match", zipped}, 0, 200},
		{"gzip", []string{"If-None-Match", zipped, "Accept-Encoding", "gzip"}, 0, 304},
		{"plain for gzip", []string{"If-None-Match", tag, "Accept-Encoding", "gzip"}, 0, 200},
		{"since", []string{"If-Modified-Since", second}, time.Hour, 304},
		{"since later", []string{"If-Modified-Since", "Fri, 02 Jan 2026 03:05:00 GMT"}, time.Hour, 304},
		{"since before", []string{"If-Modified-Since", "Fri, 02 Jan 2026 03:04:06 GMT"}, time.Hour, 200},
		{"since, in that second", []string{"If-Modified-Since", second}, 0, 200},
		{"since, by another clock", []string{"If-Modified-Since", second}, 30 * time.Second, 200},
		{"a match decides", []string{"If-None-Match", tag, "If-Modified-Since", "Fri, 02 Jan 2015 03:04:06 GMT"}, time.Hour, 304},
		{"no match decides", []string{"If-None-Match", `"other"`, "If-Modified-Since", second}, time.Hour, 200},
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
					t.Fatalf("%s: %d, want %d", method, w.Code, test.code)
				}
				if h.Get("Etag") == "" || h.Get("Cache-Control") != "no-cache" || h.Get("Vary") != "Accept-Encoding" {
					t.Errorf("%s: %v", method, h)
				}
				if test.code == 304 && (w.Body.Len() > 0 || h.Get("Content-Type")+h.Get("Content-Length")+h.Get("Content-Encoding")+h.Get("Last-Modified") != "" || m.reads.Load() != reads) {
					t.Errorf("%s: 304 with %v, %d bytes, %d reads", method, h, w.Body.Len(), m.reads.Load()-reads)
				}
				if want := map[bool]string{true: second}[test.later > time.Minute]; test.code == 200 && h.Get("Last-Modified") != want {
					t.Errorf("Last-Modified = %q, want %q", h.Get("Last-Modified"), want)
				}
			}
		})
	}
}

// A client has the state of the middle of a second, and then another change comes
// in the same second. The client must not be told that nothing changed.
func TestModifiedWithinTheSecond(t *testing.T) {
	m, s := filled(t, 3, 1, documents.Options{})
	date := m.clock().UTC().Truncate(time.Second).Format(http.TimeFormat) // the Date of the answer
	if got := s.get("/sets/peps/changelist.xml").Header().Get("Last-Modified"); got != "" {
		t.Errorf("Last-Modified = %s, which may come again", got)
	}
	m.now.Add(-int64(time.Second))
	m.advance(500 * time.Millisecond)
	m.add("peps", 1) // half a second later
	m.advance(time.Hour)
	if w := s.get("/sets/peps/changelist.xml", "If-Modified-Since", date); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

// What lastmod is changes the bytes of a list, and no entry has come. A client that asks by
// time must not be told that nothing changed.
func TestModifiedByTheDescription(t *testing.T) {
	sh := &shelf{}
	sh.put(7, 4, numbered)
	m, s := filled(t, 3, 8, documents.Options{Inventories: sh})
	m.advance(time.Hour)
	for _, path := range []string{"changelist.xml", "changelist.xml?from=2026-01-02T03:04:06Z", "resourcelist.xml"} {
		for _, lastmod := range []feed.Lastmod{feed.LastmodSource, feed.LastmodDatetime, feed.LastmodSeconds} {
			date := s.get("/sets/peps/" + path).Header().Get("Last-Modified")
			m.describe("peps", feed.Description{Lastmod: lastmod})
			if w := s.get("/sets/peps/"+path, "If-Modified-Since", date); w.Code != 200 && lastmod != feed.LastmodSource {
				t.Errorf("%s since %s, and now lastmod is %s: %d", path, date, lastmod, w.Code)
			}
		}
		m.describe("peps", feed.Description{})
	}
}

// Every document answers 304, without reading entries, as long as its content is the same. When
// that is so, TestTagsFollowTheBytes shows.
func TestNotModified(t *testing.T) {
	m, s := filled(t, 3, 7, documents.Options{CacheBytes: 1}) // nothing is kept
	for _, path := range []string{"/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync", "/sets/peps/capabilitylist.xml", "/sets/peps/changelist.xml",
		"/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z", "/sets/peps/changelist-index.xml", "/sets/peps/changes", m.list("peps", 1), m.list("peps", 3)} {
		tag, reads := s.get(path).Header().Get("Etag"), m.reads.Load()
		if w := s.do("HEAD", path, "If-None-Match", tag); w.Code != 304 || m.reads.Load() != reads {
			t.Errorf("%s: %d, after %d reads", path, w.Code, m.reads.Load()-reads)
		}
	}
}

// Only a name that never means anything else is immutable. A list that is closed may still be
// asked for by the name that it had while it was open.
func TestCacheControl(t *testing.T) {
	m, s := filled(t, 3, 5, documents.Options{})
	once := m.list("peps", 2)
	m.add("peps", 3)
	check := func(path, want string, header ...string) {
		t.Helper()
		if w := s.get(path, header...); w.Code != 200 || w.Header().Get("Cache-Control") != want {
			t.Errorf("%s: %d, %q, want %q", path, w.Code, w.Header().Get("Cache-Control"), want)
		}
	}
	check(m.list("peps", 1), "public, max-age=31536000, immutable")
	check(m.list("peps", 2), "public, max-age=31536000, immutable")
	check(m.list("peps", 2), "private, max-age=31536000, immutable", "Authorization", "Bearer x")
	m.advance(2 * time.Hour)
	for _, path := range []string{once, m.list("peps", 3), "/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", "/sets/peps/capabilitylist.xml", "/sets/peps/changes", "/.well-known/resourcesync"} {
		check(path, "no-cache")
	}
	if a, b := s.get(once), s.get(m.list("peps", 2)); !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) {
		t.Errorf("by the name of before the list is\n%s\nwant\n%s", a.Body, b.Body)
	}
}

func TestGzip(t *testing.T) {
	_, s := filled(t, 3, 8, documents.Options{})
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
			t.Errorf("%q: %v", test.accept, w.Header())
			continue
		}
		if zipped {
			body = gunzip(t, body)
		}
		if !bytes.Equal(body, plain) || w.Header().Get("Vary") != "Accept-Encoding" || strings.HasSuffix(w.Header().Get("Etag"), `-gzip"`) != zipped {
			t.Errorf("%q: %v", test.accept, w.Header())
		}
	}
}

func TestMethods(t *testing.T) {
	m, s := filled(t, 3, 8, documents.Options{})
	for _, path := range []string{"/.well-known/resourcesync", "/sets/peps/.well-known/resourcesync", "/sets/peps/capabilitylist.xml",
		"/sets/peps/changelist.xml", "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z", "/sets/peps/changelist-index.xml",
		m.list("peps", 1), "/sets/peps/changes", "/sets/peps/nothing.xml", m.list("peps", 9)} {
		for _, coding := range []string{"gzip", "identity"} {
			get, head := s.do("GET", path, "Accept-Encoding", coding), s.do("HEAD", path, "Accept-Encoding", coding)
			if head.Code != get.Code || head.Body.Len() != 0 || !maps.EqualFunc(head.Header(), get.Header(), func(a, b []string) bool {
				return strings.Join(a, "|") == strings.Join(b, "|")
			}) {
				t.Errorf("%s: HEAD %d %v\nGET %d %v", path, head.Code, head.Header(), get.Code, get.Header())
			}
			if get.Header().Get("Content-Length") == "" {
				t.Errorf("%s: no Content-Length", path)
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
				t.Errorf("%s %s: %d %v", method, path, w.Code, w.Header())
			}
		}
	}
}

// A thousand pollers at the same head cost one read of the log.
func TestPollersShare(t *testing.T) {
	m, s := filled(t, 3, 8, documents.Options{})
	var all sync.WaitGroup
	for range 1_000 {
		all.Go(func() {
			if w := s.get("/sets/peps/changelist.xml"); w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
		})
	}
	all.Wait()
	if n := m.reads.Load(); n != 1 {
		t.Errorf("%d reads", n)
	}
}

// While the log cannot be reached, documents in the cache are still served.
func TestOutage(t *testing.T) {
	m, s := filled(t, 3, 8, documents.Options{})
	kept := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", m.list("peps", 1), "/sets/peps/changes", "/sets/peps/capabilitylist.xml"}
	for _, path := range kept {
		s.get(path)
	}
	s.get(m.list("peps", 2), "If-None-Match", "*") // the document is known, but its body is not in the cache
	m.make("gone", 3)
	m.add("gone", 8)
	gone := []string{"/sets/gone/changelist.xml", "/sets/gone/changelist-index.xml"}
	for _, path := range gone {
		s.get(path)
	}
	if err := m.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if w := s.get(gone[0]); w.Code != 404 {
		t.Errorf("of a set that is deleted: %d", w.Code)
	}
	unknown := []string{m.list("peps", 2), m.list("peps", 3)}
	m.down.Store(true)
	for _, path := range kept {
		if w := s.get(path); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, path := range append(unknown, gone[0], "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z") {
		if w := s.get(path); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// The document at the topic is the batch that was pushed.
func TestLatestIsTheNotification(t *testing.T) {
	m, s := filled(t, 4, 3, documents.Options{})
	m.add("peps", 7)
	state := m.state("peps")
	b, err := m.Log.Since(t.Context(), "peps", state.BeforeLatest, 100)
	if err != nil || len(b.Entries) != 7 {
		t.Fatalf("Since = %v, %v", b, err)
	}
	w := s.get("/sets/peps/changes")
	if !bytes.Equal(w.Body.Bytes(), b.XML()) {
		t.Errorf("at the topic:\n%s\npushed:\n%s", w.Body, b.XML())
	}
	if got, want := w.Header().Values("Link"), `<https://hub.example.org/sets/peps/changes>; rel="self", <https://hub.example.org/hub>; rel="hub", <https://hub.example.org/sets/peps/capabilitylist.xml>; rel="resourcesync"`; len(got) != 1 || got[0] != want {
		t.Errorf("Link = %q", got)
	}
	if got := w.Header().Get("Vary"); got != "Accept, Accept-Encoding" {
		t.Errorf("Vary = %q", got)
	}
}

func TestLatestEmpty(t *testing.T) {
	m := newMemory(t)
	m.make("new", 2)
	m.make("trimmed", 2)
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
				t.Errorf("%s %s: %d %v %q", method, set, w.Code, h, w.Body)
			}
		}
	}

	// Retention may also remove entries between the look and the reading.
	m.make("late", 2)
	m.add("late", 8)
	before := func() { m.trim("late", 1) }
	m.before.Store(&before)
	m.advance(time.Hour)
	w := s.get("/sets/late/changes", "Accept-Encoding", "gzip")
	if w.Code != 200 || w.Header().Get("Content-Length") != "0" || w.Header().Get("Content-Encoding")+w.Header().Get("Last-Modified") != "" {
		t.Errorf("late: %d %v", w.Code, w.Header())
	}
}
