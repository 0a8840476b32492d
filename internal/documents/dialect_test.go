package documents_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/internal/dialect/activitystreams"
	"github.com/rshub/rshub/internal/dialect/atom"
	"github.com/rshub/rshub/internal/dialect/changeset"
	"github.com/rshub/rshub/internal/documents"
)

var dialects = []*dialect.Form{activitystreams.Form, atom.Form, changeset.Form}

func TestDialects(t *testing.T) {
	m, s := newFilled(t, 4, 0, documents.Options{Dialects: dialects})
	m.create("rfcs", 4)
	m.add("peps", 3)
	m.add("peps", 5)
	m.add("peps", 2)
	page := func(n int) string { return m.listText("peps", n) }
	for _, test := range []struct{ file, url string }{
		{"collection.json", "/sets/peps/activity/collection.json"},
		{"empty-collection.json", "/sets/rfcs/activity/collection.json"},
		{"page-closed.json", "/sets/peps/activity/page-" + page(2) + ".json"},
		{"page-open.json", "/sets/peps/activity/page-" + page(3) + ".json"},
		{"atom.xml", "/sets/peps/atom.xml"},
		{"empty-atom.xml", "/sets/rfcs/atom.xml"},
		{"atom-archive.xml", "/sets/peps/atom-" + page(2) + ".xml"},
		{"changeset.xml", "/sets/peps/changeset.xml"},
		{"empty-changeset.xml", "/sets/rfcs/changeset.xml"},
		{"changeset-closed.xml", "/sets/peps/changeset-" + page(2) + ".xml"},
		{"changeset-after.xml", "/sets/peps/changeset.xml?after=7-" + strconv.FormatInt(m.cursor(7).Micros, 10)},
	} {
		t.Run(test.file, func(t *testing.T) {
			w := s.get(test.url)
			if w.Code != http.StatusOK {
				t.Fatalf("GET %s: got %d %s, want 200", test.url, w.Code, w.Body)
			}
			golden(t, "dialect/"+test.file, w.Body.Bytes())
		})
	}
}

func (m *memory) cursor(position uint64) feed.Cursor {
	m.Helper()
	c, err := m.Log.At(m.Context(), "peps", position)
	if err != nil {
		m.Fatal(err)
	}
	return c
}

// An activityDocument is any ActivityStreams document.
type activityDocument struct {
	Type       string `json:"type"`
	TotalItems int    `json:"totalItems"`
	First      *activityDocument
	Last       *activityDocument
	Prev, Next *activityDocument
	ID         string `json:"id"`
	Items      []struct {
		Type, EndTime string
		Object        struct{ ID string }
	} `json:"orderedItems"`
}

func (s *server) readActivity(url string) *activityDocument {
	s.Helper()
	v := new(activityDocument)
	if w := s.get(url); w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), v) != nil {
		s.Fatalf("GET %s: got %d %s, want JSON", url, w.Code, w.Body)
	}
	return v
}

// An atomFeed is the part of an Atom feed that feed readers use.
type atomFeed struct {
	Updated time.Time `xml:"http://www.w3.org/2005/Atom updated"`
	Links   []ln      `xml:"http://www.w3.org/2005/Atom link"`
	Archive *struct{} `xml:"http://purl.org/syndication/history/1.0 archive"`
	Entries []struct {
		ID    string `xml:"http://www.w3.org/2005/Atom id"`
		Title string `xml:"http://www.w3.org/2005/Atom title"`
	} `xml:"http://www.w3.org/2005/Atom entry"`
}

// For each length of a log with small lists, a client that follows the links of a form as its standard
// says sees each change in order. Feeds and archives may overlap.
func TestDialectsHaveAllChanges(t *testing.T) {
	m, s := newFilled(t, 3, 0, documents.Options{Dialects: dialects})
	next := "/sets/peps/changeset.xml"
	var polled []string // events of consecutive changesets
	for n := range 12 {
		if n > 0 {
			m.add("peps", 1)
		}
		var want []string
		for position := range uint64(n) {
			want = append(want, m.cursor(position+1).String())
		}

		c := s.readActivity("/sets/peps/activity/collection.json")
		if c.TotalItems != n || c.First == nil || c.Last == nil {
			t.Fatalf("collection of %d changes = %+v, want that total, a first and a last page", n, c)
		}
		times, first := []string{}, ""
		for at := c.Last; at != nil; { // as a new harvester does
			page := s.readActivity(at.ID)
			for _, item := range slices.Backward(page.Items) {
				times = append(times, item.EndTime)
			}
			first, at = page.ID, page.Prev
		}
		if first != c.First.ID || len(times) != n || !slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("backward through %d changes: got %q to %s, want all to %s", n, times, first, c.First.ID)
		}
		forward := 0
		for at := c.First; at != nil; {
			page := s.readActivity(at.ID)
			forward, at = forward+len(page.Items), page.Next
		}
		if forward != n {
			t.Errorf("forward: got %d changes, want %d", forward, n)
		}

		var seen []string
		for url := "/sets/peps/atom.xml"; url != ""; {
			var f atomFeed
			if w := s.get(url); w.Code != http.StatusOK || xml.Unmarshal(w.Body.Bytes(), &f) != nil {
				t.Fatalf("GET %s: got %d %s, want XML", url, w.Code, w.Body)
			}
			var ids []string
			for _, e := range f.Entries {
				_, cursor, _ := strings.Cut(e.ID, "#")
				ids = append(ids, cursor)
			}
			for len(seen) > 0 && slices.Contains(ids, seen[0]) {
				seen = seen[1:] // repeated in the archive
			}
			if seen = append(ids, seen...); url != "/sets/peps/atom.xml" && f.Archive == nil {
				t.Errorf("GET %s: got no fh:archive, want one", url)
			}
			url = link(f.Links, "prev-archive")
		}
		if !slices.Equal(seen, want) {
			t.Errorf("feed with archives: got %q, want %q", seen, want)
		}

		for { // as a client of the draft of 2012 polls
			var v struct {
				Links []ln     `xml:"http://www.w3.org/2005/Atom link"`
				IDs   []string `xml:"url>eventid"`
			}
			if w := s.get(next); w.Code != http.StatusOK || xml.Unmarshal(w.Body.Bytes(), &v) != nil {
				t.Fatalf("GET %s: got %d %s, want XML", next, w.Code, w.Body)
			}
			for _, id := range v.IDs {
				_, cursor, _ := strings.Cut(id, "#")
				polled = append(polled, cursor)
			}
			next = link(v.Links, "next rs:changeset")
			if len(v.IDs) == 0 {
				break
			}
		}
		if !slices.Equal(polled, want) {
			t.Errorf("changesets: got %q, want %q", polled, want)
		}
	}
}

// Closed pages are immutable, and pages removed by retention get a 410.
func TestDialectPagesAreImmutable(t *testing.T) {
	m, s := newFilled(t, 3, 3, documents.Options{Dialects: dialects})
	begin, first, empty := m.state("peps").Begin, m.listText("peps", 1), m.listText("peps", 2)
	m.add("peps", 3)
	second := m.listText("peps", 2)
	url := "/sets/peps/activity/page-" + second + ".json"
	before := s.get(url)
	if got := before.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
		t.Errorf("Cache-Control of a closed page = %q, want immutable", got)
	}
	if got := before.Header().Get("Content-Type"); got != activitystreams.Form.MediaType {
		t.Errorf("Content-Type = %q, want %q", got, activitystreams.Form.MediaType)
	}
	for _, text := range []string{empty, m.listText("peps", 3)} {
		if w := s.get("/sets/peps/activity/page-" + text + ".json"); w.Code != 200 || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("open name of a page: got %d, Cache-Control %q, want 200, no-cache", w.Code, w.Header().Get("Cache-Control"))
		}
	}
	if w := s.get(url, "If-None-Match", before.Header().Get("Etag")); w.Code != http.StatusNotModified {
		t.Errorf("GET with If-None-Match: got %d, want 304", w.Code)
	}
	after := "/sets/peps/changeset.xml?after=" + m.cursor(1).String()

	m.add("peps", 7)
	m.trim("peps", 8)
	m.describe("peps", feed.Description{Title: "Other"})
	if w := s.get(url); w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), before.Body.Bytes()) {
		t.Errorf("closed page after more changes: got %d %s, want the same", w.Code, w.Body)
	}
	c := s.readActivity("/sets/peps/activity/collection.json")
	if got := s.readActivity(c.First.ID); got.Items[0].Object.ID != change(4).Loc || c.TotalItems != 10 {
		t.Errorf("after retention: got %d activities, first %+v, want 10, first change 4", c.TotalItems, got.Items[0])
	}
	for _, gone := range []string{"/sets/peps/activity/page-" + first + ".json", "/sets/peps/atom-" + first + ".xml", after} {
		if w := s.get(gone); w.Code != http.StatusGone {
			t.Errorf("GET %s: got %d %s, want 410", gone, w.Code, w.Body)
		}
	}
	_, end, _ := strings.Cut(second, "-until-")
	for url, status := range map[string]int{
		fmt.Sprintf("/sets/peps/atom-%d-6-from-%s.xml", begin, end):    404,
		fmt.Sprintf("/sets/peps/atom-%d-0-from-%d.xml", begin, begin):  404,
		fmt.Sprintf("/sets/peps/atom-%d-2-until-%s.xml", begin+1, end): 404,
		fmt.Sprintf("/sets/peps/atom-%d-2.xml", begin):                 404,
		"/sets/peps/atom-" + second + "-seconds.xml":                   404,
		"/sets/peps/atom-.xml":                                         404,
		"/sets/peps/atom-x.xml":                                        404,
		"/sets/peps/atom.xml?after=nonsense":                           400,
		"/sets/peps/atom.xml?after=99-1700000000000000":                410,
		"/sets/peps/atom.xml?after=5-1700000000000000":                 410,
		"/sets/peps/activity/collection.json?after=0-0":                400,
		"/sets/peps/changelist.xml?after=0-0":                          400,
		"/sets/peps/atom.xml?from=2026-01-01":                          400,
	} {
		if w := s.get(url); w.Code != status {
			t.Errorf("GET %s: got %d, want %d: %s", url, w.Code, status, w.Body)
		}
	}
}
