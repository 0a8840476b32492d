package documents_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// list returns the path of Change List n by its current name.
func (m *memory) list(set string, n int) string {
	m.Helper()
	return "/sets/" + set + "/changelist-" + m.listText(set, n) + ".xml"
}

// listText returns listID.text of Change List n.
func (m *memory) listText(set string, n int) string {
	m.Helper()
	s, end, position := m.state(set), "until", uint64(n)
	if _, open := s.Lists(); position >= open {
		end, position = "from", position-1
	}
	c, err := m.Log.At(m.Context(), set, position*uint64(s.ListSize)) // the name of a list that does not exist has no datetime
	if err != nil && !errors.Is(err, feed.ErrGone) && !errors.Is(err, resourcesync.ErrInvalid) {
		m.Fatal(err)
	}
	return fmt.Sprintf("%d-%d-%s-%d", s.Begin, n, end, c.Micros)
}

func TestListNames(t *testing.T) {
	m, s := newFilled(t, 3, 0, documents.Options{})
	m.add("peps", 9) // three closed lists and an empty one
	begin := m.state("peps").Begin
	one, two := m.listText("peps", 1), m.listText("peps", 2)
	at := func(position int) int64 { return m.cursor(uint64(position)).Micros }
	end := at(6)
	from := func(n, position int) string {
		return fmt.Sprintf("changelist-%d-%d-from-%d.xml", begin, n, at(position))
	}
	before := []string{from(1, 0), from(2, 3), from(3, 6), from(4, 9), from(2, 6), from(3, 3)}
	m.trim("peps", 6)
	for _, test := range []struct {
		name string
		code int
	}{
		{"changelist-" + one + ".xml", 410},
		{before[0], 410},
		{"changelist-" + two + ".xml", 200},
		{before[1], 200},
		{"changelist-" + m.listText("peps", 3) + ".xml", 200},
		{before[2], 200},
		{before[3], 404},
		{before[4], 404},
		{before[5], 404},
		{fmt.Sprintf("changelist-%d-2.xml", begin), 404},
		{fmt.Sprintf("changelist-%d-2-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-2-until-%d.xml", begin, end-1), 404},
		{fmt.Sprintf("changelist-%d-2-until-+%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-2-until-0%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-2-since-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-2-until-%d-seconds.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-4-until-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-5-from-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-18446744073709551615-from-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-18446744073709551616-until-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-02-until-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-+2-until-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-+%d-2-until-%d.xml", begin, end), 404},
		{fmt.Sprintf("changelist-%d-0-from-%d.xml", begin, begin), 404},
		{fmt.Sprintf("changelist-%d-2-until-%d", begin, end), 404},
		{fmt.Sprintf("changelist-%d-1-until-%d.xml", begin-1, end), 404},
		{fmt.Sprintf("changelist-%d-2-until-%d.xml", begin-1, end), 404},
		{"changelist-.xml", 404},
		{"changelist--2.xml", 404},
		{"changelist--2-until-.xml", 404},
		{"changelist-index.xml", 200},
		{"changelist.xml/", 404},
		{"resourcelist.xml", 404},
		{"", 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := s.get("/sets/peps/" + url.PathEscape(test.name))
			if w.Code != test.code {
				t.Errorf("GET %s: got %d, want %d", test.name, w.Code, test.code)
			}
			if test.code >= 400 && (w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Etag") != "") {
				t.Errorf("GET %s: got the header %v, want an uncached problem without ETag", test.name, w.Header())
			}
		})
	}
	for _, path := range []string{"changelist.xml", "changelist-index.xml", "changes", "capabilitylist.xml", ".well-known/resourcesync", "changelist.xml?from=2026-01-02T03:04:07Z"} {
		if w := s.get("/sets/none/" + path); w.Code != 404 || !strings.Contains(w.Body.String(), "no-such-set") {
			t.Errorf("GET %s of a missing set: got %d %s, want 404 no-such-set", path, w.Code, w.Body)
		}
	}
	if err := m.Delete(t.Context(), "peps"); err != nil {
		t.Fatal(err)
	}
	m.create("peps", 3)
	m.add("peps", 9)
	for _, name := range []string{"changelist-" + two + ".xml", fmt.Sprintf("changelist-%d-2-until-%d.xml", begin, at(6))} {
		if w := s.get("/sets/peps/" + name); w.Code != 404 {
			t.Errorf("GET %s of the deleted set: got %d, want 404", name, w.Code)
		}
	}
}

// After a log lost any number of entries and got others instead, a closed name returns the document that
// had it, or a 404 or a 410. An open name returns a document with the same start, which caches must
// revalidate.
func TestNamesAfterLoss(t *testing.T) {
	const k = 3
	before, most := 11, 14
	if testing.Short() {
		before, most = 5, 8
	}
	type version struct {
		length  int // length of the log at that time
		closed  bool
		etag    string
		content []byte
	}
	old := map[string]version{} // by path
	record := func(s *server, length int) {
		paths := s.indexPaths("/sets/peps/changelist-index.xml")
		for n := 1; n <= length/k+1; n++ {
			for _, f := range dialects {
				paths = append(paths, "/sets/peps/"+f.PageName(s.listText("peps", n)))
			}
		}
		for _, path := range paths {
			w := s.get(path)
			closed := w.Header().Get("Cache-Control") != "no-cache"
			if was, ok := old[path]; w.Code != 200 || ok && closed != was.closed || closed && ok && !bytes.Equal(w.Body.Bytes(), was.content) {
				t.Fatalf("GET %s with %d entries: got %d %s\nwant\n%s", path, length, w.Code, w.Body, was.content)
			}
			old[path] = version{length, closed, w.Header().Get("Etag"), w.Body.Bytes()}
		}
	}
	fill := func(m *memory, entries int) {
		for range entries {
			m.add("peps", 1)
		}
	}
	m, s := newFilled(t, k, 0, documents.Options{Dialects: dialects})
	for length := range before + 1 {
		fill(m, min(length, 1))
		record(s, length)
	}
	for kept := range before + 1 {
		m, s := newFilled(t, k, 0, documents.Options{Dialects: dialects})
		fill(m, kept)
		m.advance(time.Hour)
		for length := kept; length <= most; length++ {
			if length > kept {
				fill(m, 1)
			}
			found := 0
			for path, was := range old {
				w := s.get(path)
				same := bytes.Equal(w.Body.Bytes(), was.content)
				switch {
				case w.Code == 404 || w.Code == 410:
					if was.closed && was.length <= kept {
						t.Errorf("%d of %d entries lost, then %d: GET %s: got %d, want the closed document", before-kept, before, length, path, w.Code)
					}
				case w.Code != 200:
					t.Errorf("GET %s: got %d %s, want 200, 404 or 410", path, w.Code, w.Body)
				case was.closed && !same:
					t.Errorf("%d of %d entries lost, then %d: GET %s: got\n%s\nwant\n%s", before-kept, before, length, path, w.Body, was.content)
				case same != (w.Header().Get("Etag") == was.etag):
					t.Errorf("GET %s: got the ETag %s, before %s, with the same bytes: %t", path, w.Header().Get("Etag"), was.etag, same)
				case !was.closed && w.Header().Get("Cache-Control") != "no-cache":
					t.Errorf("GET %s: got Cache-Control %q, want no-cache", path, w.Header().Get("Cache-Control"))
				default:
					found++
				}
				if was, now := startOf(was.content), startOf(w.Body.Bytes()); w.Code == 200 && now != was {
					t.Errorf("GET %s: got the start %s, want %s", path, now, was)
				}
			}
			if kept > 0 && found == 0 {
				t.Fatalf("%d of %d entries lost: got no documents, want some", before-kept, before)
			}
		}
	}
}

var startForm = regexp.MustCompile(`h:after="[^"]*"|"startIndex":\d+|rel="prev(?:-archive| rs:changeset)" href="[^"]*"|href="[^"]*" rel="prev`)

// startOf returns the attribute with the start of a Change List or a page.
func startOf(document []byte) string { return string(startForm.Find(document)) }

// indexPaths returns the paths of the documents of an index.
func (s *server) indexPaths(index string) (paths []string) {
	s.Helper()
	for _, e := range s.read(index).Sitemaps {
		paths = append(paths, strings.TrimPrefix(e.Loc, base))
	}
	return paths
}
