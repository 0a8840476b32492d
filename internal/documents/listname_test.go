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

// list returns the path of Change List n, by the name that the index has for it now.
func (m *memory) list(set string, n int) string {
	m.Helper()
	return "/sets/" + set + "/changelist-" + m.listText(set, n) + ".xml"
}

// listText returns what the name of Change List n says of it.
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

func TestNames(t *testing.T) {
	m, s := filled(t, 3, 0, documents.Options{})
	m.add("peps", 9) // three closed lists; the fourth has no entry yet
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
		w := s.get("/sets/peps/" + url.PathEscape(test.name))
		if w.Code != test.code {
			t.Errorf("%s: %d, want %d", test.name, w.Code, test.code)
		}
		if test.code >= 400 && (w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Etag") != "") {
			t.Errorf("%s: %v", test.name, w.Header())
		}
	}
	for _, path := range []string{"changelist.xml", "changelist-index.xml", "changes", "capabilitylist.xml", ".well-known/resourcesync", "changelist.xml?from=2026-01-02T03:04:07Z"} {
		if w := s.get("/sets/none/" + path); w.Code != 404 || !strings.Contains(w.Body.String(), "no-such-set") {
			t.Errorf("%s of no set: %d %s", path, w.Code, w.Body)
		}
	}
	if err := m.Delete(t.Context(), "peps"); err != nil {
		t.Fatal(err)
	}
	m.make("peps", 3)
	m.add("peps", 9)
	for _, name := range []string{"changelist-" + two + ".xml", fmt.Sprintf("changelist-%d-2-until-%d.xml", begin, at(6))} {
		if w := s.get("/sets/peps/" + name); w.Code != 404 {
			t.Errorf("%s of the set that was deleted: %d", name, w.Code)
		}
	}
}

// A log loses entries, as few or as many as there are, and gets others in their place. Whoever
// asks by a name from before gets what had that name, or a 404 or a 410. By a name that a list
// or a page had while it was open, clients get what begins in the same place, and no cache keeps
// it without asking.
func TestNamesAfterALoss(t *testing.T) {
	const k = 3
	before, most := 11, 14
	if testing.Short() {
		before, most = 5, 8
	}
	type named struct {
		length  int // of the log, when the document had the bytes
		closed  bool
		etag    string
		content []byte
	}
	old := map[string]named{} // by path
	note := func(s *server, length int) {
		paths := s.named("/sets/peps/changelist-index.xml")
		for n := 1; n <= length/k+1; n++ {
			for _, f := range dialects {
				paths = append(paths, "/sets/peps/"+f.PageName(s.listText("peps", n)))
			}
		}
		for _, path := range paths {
			w := s.get(path)
			closed := w.Header().Get("Cache-Control") != "no-cache"
			if was, ok := old[path]; w.Code != 200 || ok && closed != was.closed || closed && ok && !bytes.Equal(w.Body.Bytes(), was.content) {
				t.Fatalf("%s with %d entries: %d %s\nit was\n%s", path, length, w.Code, w.Body, was.content)
			}
			old[path] = named{length, closed, w.Header().Get("Etag"), w.Body.Bytes()}
		}
	}
	fill := func(m *memory, entries int) {
		for range entries {
			m.add("peps", 1)
		}
	}
	m, s := filled(t, k, 0, documents.Options{Dialects: dialects})
	for length := range before + 1 {
		fill(m, min(length, 1))
		note(s, length)
	}
	for kept := range before + 1 {
		m, s := filled(t, k, 0, documents.Options{Dialects: dialects})
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
						t.Errorf("%d of %d entries are lost, then there are %d: the closed %s is %d", before-kept, before, length, path, w.Code)
					}
				case w.Code != 200:
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				case was.closed && !same:
					t.Errorf("%d of %d entries are lost, then there are %d: %s is\n%s\nit was\n%s", before-kept, before, length, path, w.Body, was.content)
				case same != (w.Header().Get("Etag") == was.etag):
					t.Errorf("%s has the ETag %s and had %s, the same bytes: %t", path, w.Header().Get("Etag"), was.etag, same)
				case !was.closed && w.Header().Get("Cache-Control") != "no-cache":
					t.Errorf("%s has Cache-Control %q", path, w.Header().Get("Cache-Control"))
				default:
					found++
				}
				if was, now := beginOf(was.content), beginOf(w.Body.Bytes()); w.Code == 200 && now != was {
					t.Errorf("%s begins at %s, and began at %s", path, now, was)
				}
			}
			if kept > 0 && found == 0 {
				t.Fatalf("%d of %d entries are lost, and no document is left", before-kept, before)
			}
		}
	}
}

var beginForm = regexp.MustCompile(`h:after="[^"]*"|"startIndex":\d+|rel="prev(?:-archive| rs:changeset)" href="[^"]*"|href="[^"]*" rel="prev`)

// beginOf returns what says where a Change List or a page begins.
func beginOf(document []byte) string { return string(beginForm.Find(document)) }

// named returns the paths of the documents that an index names.
func (s *server) named(index string) (paths []string) {
	s.Helper()
	for _, e := range s.read(index).Sitemaps {
		paths = append(paths, strings.TrimPrefix(e.Loc, base))
	}
	return paths
}
