package documents_test

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// For each length of a log with small lists, the documents avoid what known clients fail on.
func TestKnownClientProblems(t *testing.T) {
	m, s := newFilled(t, 3, 0, documents.Options{})
	for n := range 12 {
		if n > 0 {
			m.add("peps", 1)
		}
		doc := s.read("/sets/peps/changelist.xml")
		if doc.XMLName.Local != "urlset" || doc.MD.Capability != "changelist" || doc.MD.Until != "" || doc.MD.From == "" {
			t.Errorf("changelist.xml with %d entries: got %v %+v, want an open urlset", n, doc.XMLName, doc.MD)
		}
		// It contains the newest closed list, too.
		if want := numbers(uint64(max(0, (n/3-1)*3))+1, uint64(n)); !slices.Equal(doc.positions(), want) {
			t.Errorf("changelist.xml with %d entries: got %v, want %v", n, doc.positions(), want)
		}
		for _, e := range doc.URLs {
			if !strings.HasSuffix(e.MD.Datetime, "Z") || e.MD.Datetime <= doc.MD.From[:19] {
				t.Errorf("got the datetime %q in a list from %q, want a later one in UTC", e.MD.Datetime, doc.MD.From)
			}
		}
		if w := s.get("/sets/peps/changelist.xml"); strings.LastIndex(w.Body.String(), "\n  <rs:") > strings.Index(w.Body.String(), "<url>") && n > 0 {
			t.Errorf("got an element of the list after an entry, want all before:\n%s", w.Body)
		}
		for _, l := range s.read("/sets/peps/changelist-index.xml").Sitemaps {
			if len(s.read(l.Loc).URLs) == 0 {
				t.Errorf("index with %d entries: got an empty list, want none", n)
			}
		}
	}

	doc := s.read("/sets/peps/capabilitylist.xml")
	seen := make(map[string]string)
	for _, e := range doc.URLs {
		if seen[e.MD.Capability] != "" {
			t.Errorf("got two entries with capability %s, want one", e.MD.Capability)
		}
		seen[e.MD.Capability] = e.Loc
		if !strings.HasPrefix(e.Loc, "https://") {
			t.Errorf("loc = %s, want https", e.Loc)
		}
		if e.MD.Capability == "change-notification" {
			terms := resourcesync.Terms + "rel/"
			if link(e.Links, "hub") != base+"/hub" || link(e.Links, terms+"websocket") != "wss://hub.example.org/sets/peps/changes" ||
				link(e.Links, terms+"event-stream") != base+"/sets/peps/changes" {
				t.Errorf("links of the push channel = %v, want hub, WebSocket and event stream", e.Links)
			}
		}
	}
	if len(seen) != 2 || seen["changelist"] != base+"/sets/peps/changelist-index.xml" || seen["change-notification"] != base+"/sets/peps/changes" {
		t.Errorf("capabilities = %v, want a Change List and Change Notification", seen)
	}
	if link(doc.Links, "up") != base+"/.well-known/resourcesync" || link(doc.Links, "describedby") != "https://peps.example.org/about" {
		t.Errorf("links of the Capability List = %v, want up and describedby", doc.Links)
	}
	m.describe("peps", feed.Description{NoPush: true})
	if doc := s.read("/sets/peps/capabilitylist.xml"); len(doc.URLs) != 1 {
		t.Errorf("Capability List without push = %v, want one entry", doc.URLs)
	}
	m.create("other", 3)
	if doc := s.read("/sets/peps/.well-known/resourcesync"); len(doc.URLs) != 1 || doc.MD.Capability != "description" {
		t.Errorf("Source Description of the set = %+v, want one entry", doc)
	}
	if doc := s.read("/.well-known/resourcesync"); len(doc.URLs) != 2 {
		t.Errorf("Source Description = %v, want two entries", doc.URLs)
	}
}

// The lists of the index together contain the whole log in order, and their intervals have no gaps.
func TestListsContainWholeLog(t *testing.T) {
	m, s := newFilled(t, 3, 0, documents.Options{})
	for n := range uint64(20) {
		if n > 0 {
			m.add("peps", 1)
		}
		if n == 13 {
			m.trim("peps", 7)
		}
		state := m.state("peps")
		index := s.read("/sets/peps/changelist-index.xml")
		from := string(resourcesync.AppendTimeMicro(nil, state.Floor.Micros))
		if index.XMLName.Local != "sitemapindex" || index.MD.Capability != "changelist" || index.MD.From != from || index.MD.Until != "" {
			t.Fatalf("index with %d entries: got %v %+v, want from %s", n, index.XMLName, index.MD, from)
		}
		if link(index.Links, "up") != base+"/sets/peps/capabilitylist.xml" {
			t.Errorf("links of the index = %v, want up", index.Links)
		}
		var all []uint64
		for i, l := range index.Sitemaps {
			doc := s.read(l.Loc)
			if doc.MD.From != from || l.MD.From != from || doc.MD.Until != l.MD.Until {
				t.Errorf("list %s: got from %s until %s, in the index from %s until %s, want from %s", l.Loc, doc.MD.From, doc.MD.Until, l.MD.From, l.MD.Until, from)
			}
			open := i == len(index.Sitemaps)-1 && len(doc.URLs) < 3
			if (l.MD.Until == "") != open {
				t.Errorf("list %s with %d entries: got until %q, want it only if closed", l.Loc, len(doc.URLs), l.MD.Until)
			}
			if link(doc.Links, "up") != base+"/sets/peps/capabilitylist.xml" || link(doc.Links, "index") != base+"/sets/peps/changelist-index.xml" {
				t.Errorf("links of %s = %v, want up and index", l.Loc, doc.Links)
			}
			from = doc.MD.Until
			all = append(all, doc.positions()...)
		}
		if !slices.Equal(all, numbers(state.Floor.Position+1, n)) {
			t.Errorf("lists of %d entries: got the positions %v, want all", n, all)
		}
	}
}

func TestClosedListNeverChanges(t *testing.T) {
	m, a := newFilled(t, 3, 3, documents.Options{})
	b := newServer(m, documents.Options{CacheBytes: 1})
	first := a.get(m.list("peps", 1))
	m.add("peps", 7)
	m.describe("peps", feed.Description{DescribedBy: "https://example.org/other"})
	for _, s := range []*server{a, b, newServer(m, documents.Options{})} {
		w := s.get(m.list("peps", 1))
		if !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) || w.Header().Get("Etag") != first.Header().Get("Etag") {
			t.Errorf("closed list: got %v\n%s\nwant it unchanged", w.Header(), w.Body)
		}
	}
	// Two hubs return the same bytes of every document, plain and compressed, cached or not.
	for _, path := range []string{"changelist.xml", "changelist-index.xml", "capabilitylist.xml", "changes", "changelist.xml?from=2026-01-02T03:04:07Z"} {
		for _, coding := range []string{"gzip", "identity"} {
			x, y := a.get("/sets/peps/"+path, "Accept-Encoding", coding), b.get("/sets/peps/"+path, "Accept-Encoding", coding)
			if !bytes.Equal(x.Body.Bytes(), y.Body.Bytes()) || x.Header().Get("Etag") != y.Header().Get("Etag") || x.Header().Get("Etag") == "" {
				t.Errorf("GET %s as %s: got different bytes or ETags from two hubs, want the same", path, coding)
			}
		}
	}
	other := newServer(m, documents.Options{})
	other.Server = documents.New(m, "https://other.example.org", documents.Options{})
	if other.get(m.list("peps", 1)).Header().Get("Etag") == first.Header().Get("Etag") {
		t.Error("got the same ETag for another base URL, want a different one")
	}
}

func TestFrom(t *testing.T) {
	m, s := newFilled(t, 3, 0, documents.Options{})
	for range 10 {
		m.add("peps", 2) // at second 1, at second 2, …; two entries 1 µs apart
	}
	m.trim("peps", 12) // keeps lists 3 to 7; the floor is position 6 of second 3
	at := func(d time.Duration) string { return startTime.Add(d).Format("2006-01-02T15:04:05.000000000Z") }
	for _, test := range []struct {
		name, from string
		code       int
		want       []uint64
	}{
		{"one second", at(5 * time.Second), 200, numbers(9, 20)},
		{"inclusive", at(5*time.Second + time.Microsecond), 200, numbers(10, 20)},
		{"truncated to microseconds", at(5*time.Second + 1999), 200, numbers(10, 20)},
		{"between two entries", at(5*time.Second + 2*time.Microsecond), 200, numbers(11, 20)},
		{"whole seconds", "2026-01-02T03:04:10Z", 200, numbers(9, 20)},
		{"other time zone", "2026-01-02T04:04:10%2B01:00", 200, numbers(9, 20)},
		{"newest entry", at(10*time.Second + time.Microsecond), 200, numbers(20, 20)},
		{"no changes since", at(11 * time.Second), 200, nil},
		{"within the clock skew", at(69 * time.Second), 200, nil},
		{"future", at(71 * time.Second), 400, nil},
		{"floor", at(3*time.Second + time.Microsecond), 410, nil},
		{"after the floor", at(3*time.Second + 2*time.Microsecond), 200, numbers(7, 20)},
		{"before the floor", at(time.Second), 410, nil},
		{"date", "2026-01-02", 410, nil},
		{"year 1", "0001-01-02T00:00:00Z", 410, nil},
		{"no time zone", "2026-01-02T03:04:10", 400, nil},
		{"space for plus", "2026-01-02T04:04:10+01:00", 200, numbers(9, 20)},
		{"cursor", "12-34", 400, nil},
		{"empty", "", 400, nil},
		{"twice", "2026-01-02T03:04:10Z&from=2026-01-02T03:04:10Z", 400, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/sets/peps/changelist.xml?from=" + test.from
			if w := s.get(path); w.Code != test.code {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, test.code)
			}
			if test.code != 200 {
				return
			}
			doc := s.read(path)
			if !slices.Equal(doc.positions(), test.want) {
				t.Errorf("got the positions %v, want %v", doc.positions(), test.want)
			}
			if doc.XMLName.Local != "urlset" || doc.MD.Until != "" || link(doc.Links, "next") != "" {
				t.Errorf("got %v %+v, want an open urlset without next", doc.XMLName, doc.MD)
			}
		})
	}

	m.create("new", 3)
	begin := resourcesync.AppendTimeMicro(nil, m.state("new").Begin)
	if doc := s.read("/sets/new/changelist.xml?from=" + string(begin)); len(doc.URLs) != 0 {
		t.Errorf("from the start of an empty log: got %v, want no entries", doc.URLs)
	}
	// ?from= may be a head in the future, because clocks may differ.
	m.add("new", 1)
	m.now.Store(startTime.Add(-10 * time.Minute).UnixNano())
	head := resourcesync.AppendTimeMicro(nil, m.state("new").Head.Micros)
	if doc := s.read("/sets/new/changelist.xml?from=" + string(head)); len(doc.URLs) != 1 {
		t.Errorf("from the head: got %v, want one entry", doc.URLs)
	}
}

// A destination that continues from each until receives every change, in documents of at most 50,000
// entries.
func TestFromIsSplit(t *testing.T) {
	m, s := newFilled(t, 10_000, 50_000, documents.Options{})
	if testing.Short() {
		m.add("peps", 10)
		if lengths := s.walk(50_010); !slices.Equal(lengths, []int{50_000, 11}) {
			t.Errorf("got documents of %v entries, want 50,000 and 11", lengths)
		}
		return
	}
	if lengths := s.walk(50_000); !slices.Equal(lengths, []int{50_000}) {
		t.Errorf("got documents of %v entries, want 50,000", lengths)
	}
	for range 6 {
		m.add("peps", 10_000)
	}
	if lengths := s.walk(110_000); !slices.Equal(lengths, []int{50_000, 50_000, 10_002}) {
		t.Errorf("got documents of %v entries, want 50,000, 50,000 and 10,002", lengths)
	}
}

// walk reads ?from= from the start of the set peps, which has total entries, and then from each until. It
// returns the number of entries of each document.
func (s *server) walk(total uint64) (lengths []int) {
	s.Helper()
	var all []uint64
	for next := "/sets/peps/changelist.xml?from=" + string(resourcesync.AppendTimeMicro(nil, s.state("peps").Begin)); next != ""; {
		doc, positions := s.scan(next)
		if next = link(doc.Links, "next"); (next == "") != (doc.MD.Until == "") {
			s.Fatalf("got until %q and next %q, want both or none", doc.MD.Until, next)
		}
		if last := doc.URLs[len(doc.URLs)-1].MD; doc.MD.Until != "" && doc.MD.Until != last.Datetime {
			s.Errorf("got until %s, want the last entry's, %s", doc.MD.Until, last.Datetime)
		}
		lengths = append(lengths, len(positions))
		if len(all) > 0 {
			if len(positions) < 2 || positions[0] != all[len(all)-1] {
				s.Fatalf("got the positions %v after %d, want the first one repeated", positions, all[len(all)-1])
			}
			positions = positions[1:] // the repeated entry
		}
		all = append(all, positions...)
	}
	if !slices.Equal(all, numbers(1, total)) {
		s.Errorf("got %d entries, want %d", len(all), total)
	}
	return lengths
}

// A ?from= with few entries reads them once. It equals a streamed document, whose
// entries are read again.
func TestFromWithFewEntries(t *testing.T) {
	m, cached := newFilled(t, 1_000, 3_000, documents.Options{})
	streamed := newServer(m, documents.Options{CacheBytes: 1})
	for _, n := range []uint64{1, 2, 300, 2_500} {
		after, err := m.At(t.Context(), "peps", 3_000-n)
		if err != nil {
			t.Fatal(err)
		}
		path := "/sets/peps/changelist.xml?from=" + string(resourcesync.AppendTimeMicro(nil, after.Micros+1))
		reads := m.reads.Load()
		got := cached.get(path)
		if reads = m.reads.Load() - reads; n < 1_000 && reads != 2 { // one of them seeks the time
			t.Errorf("%d entries: got %d reads, want 2", n, reads)
		}
		want := streamed.get(path)
		if want.Header().Get("Content-Length") != "" || !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) {
			t.Errorf("%d entries: got %d bytes, want %d as streamed", n, got.Body.Len(), want.Body.Len())
		}
		if urls := bytes.Count(got.Body.Bytes(), []byte("<url>")); uint64(urls) != n {
			t.Errorf("got %d entries, want %d", urls, n)
		}
	}
}

// An index has at most 50,000 lists. If there are more, it has the newest ones and starts with the first
// of them.
func TestIndexSize(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 50,000 lists")
	}
	m, s := newFilled(t, 1, 50_000, documents.Options{})
	if doc, lists := s.scan("/sets/peps/changelist-index.xml"); len(lists) != 50_000 || !strings.Contains(doc.Sitemaps[0].Loc, "-1-until-") {
		t.Errorf("got %d lists, first %s, want 50,000 from list 1", len(lists), doc.Sitemaps[0].Loc)
	}
	m.add("peps", 3)
	lookups := m.lookups.Load()
	doc, lists := s.scan("/sets/peps/changelist-index.xml")
	first := doc.Sitemaps[0]
	if len(lists) != 50_000 || !strings.Contains(first.Loc, "-4-until-") || first.MD.From != doc.MD.From {
		t.Errorf("got %d lists, first %+v, index from %s, want 50,000 from list 4", len(lists), first, doc.MD.From)
	}
	if n := m.lookups.Load() - lookups; n > 10 {
		t.Errorf("three more lists: got %d lookups in the log, want at most 10", n)
	}
	if w := s.get(m.list("peps", 1)); w.Code != 200 {
		t.Errorf("list 1, which is no longer in the index: got %d, want 200", w.Code)
	}
}

// A document has the same bytes whether it is cached or streamed.
func TestStreamedBytesEqualCached(t *testing.T) {
	m, large := newFilled(t, 2_500, 0, documents.Options{CacheBytes: 1 << 30})
	for range 3 {
		m.add("peps", 1_000)
	}
	small := newServer(m, documents.Options{CacheBytes: 1 << 16})
	for _, coding := range []string{"identity", "gzip"} {
		for _, path := range []string{"/sets/peps/changelist.xml", m.list("peps", 1)} {
			a, b := large.get(path, "Accept-Encoding", coding), small.get(path, "Accept-Encoding", coding)
			if !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) || a.Header().Get("Etag") != b.Header().Get("Etag") {
				t.Errorf("GET %s as %s: got %d bytes cached and %d streamed, want the same", path, coding, a.Body.Len(), b.Body.Len())
			}
			if a.Header().Get("Content-Length") == "" || b.Header().Get("Content-Length") != "" {
				t.Errorf("GET %s as %s: got Content-Length %q and %q, want none if streamed", path, coding, a.Header().Get("Content-Length"), b.Header().Get("Content-Length"))
			}
			reads := m.reads.Load()
			if w := small.do("HEAD", path, "Accept-Encoding", coding); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "" {
				t.Errorf("HEAD %s: got %d %v, want 200 without Content-Length", path, w.Code, w.Header())
			}
			if m.reads.Load() != reads {
				t.Errorf("HEAD %s of a document known to be too large: got reads, want none", path)
			}
		}
	}
}

// With concurrent writers, retention and readers, every response is complete.
func TestConcurrent(t *testing.T) {
	m, s := newFilled(t, 50, 120, documents.Options{CacheBytes: 200 << 10})
	rounds := 60
	if testing.Short() {
		rounds = 25
	}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	writers.Go(func() {
		defer close(stop)
		for range rounds {
			m.add("peps", 17)
			m.trim("peps", 300)
		}
	})
	for i := range 8 {
		coding := []string{"gzip", "identity"}[i%2]
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				state := m.state("peps")
				_, open := state.Lists()
				closed := m.list("peps", int(open)-1)
				for _, path := range []string{"/sets/peps/changelist.xml", "/sets/peps/changelist-index.xml", closed, "/sets/peps/changes"} {
					w := s.get(path, "Accept-Encoding", coding)
					body := w.Body.Bytes()
					if w.Header().Get("Content-Encoding") == "gzip" {
						body = gunzip(t, body)
					}
					if numbered := path == closed; w.Code != 200 && (w.Code != 410 || !numbered) && (w.Code != 503 || numbered) {
						t.Errorf("GET %s: got %d %s, want 200, 410 for a list or 503", path, w.Code, body)
					}
					if w.Code == 200 && len(body) > 0 {
						if _, err := resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{}); err != nil {
							t.Errorf("%s: %v", path, err)
						}
					}
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
}
