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

// The documents avoid the traps that known clients fall into, at every length of a
// log with small lists.
func TestTraps(t *testing.T) {
	m, s := filled(t, 3, 0, documents.Options{})
	for n := range 12 {
		if n > 0 {
			m.add("peps", 1)
		}
		doc := s.read("/sets/peps/changelist.xml")
		if doc.XMLName.Local != "urlset" || doc.MD.Capability != "changelist" || doc.MD.Until != "" || doc.MD.From == "" {
			t.Errorf("trap 2: changelist.xml with %d entries is %v %+v", n, doc.XMLName, doc.MD)
		}
		// Trap 3: it reaches back over the newest closed list.
		if want := numbers(uint64(max(0, (n/3-1)*3))+1, uint64(n)); !slices.Equal(doc.positions(), want) {
			t.Errorf("trap 3: changelist.xml with %d entries has %v, want %v", n, doc.positions(), want)
		}
		for _, e := range doc.URLs {
			if !strings.HasSuffix(e.MD.Datetime, "Z") || e.MD.Datetime <= doc.MD.From[:19] {
				t.Errorf("traps 4 and 5: datetime %q in a list from %q", e.MD.Datetime, doc.MD.From)
			}
		}
		if w := s.get("/sets/peps/changelist.xml"); strings.LastIndex(w.Body.String(), "\n  <rs:") > strings.Index(w.Body.String(), "<url>") && n > 0 {
			t.Errorf("trap 10: the list's own elements come after an entry:\n%s", w.Body)
		}
		for _, l := range s.read("/sets/peps/changelist-index.xml").Sitemaps {
			if len(s.read(l.Loc).URLs) == 0 {
				t.Errorf("with %d entries the index names an empty list", n)
			}
		}
	}

	doc := s.read("/sets/peps/capabilitylist.xml")
	seen := make(map[string]string)
	for _, e := range doc.URLs {
		if seen[e.MD.Capability] != "" {
			t.Errorf("two entries have capability %s", e.MD.Capability)
		}
		seen[e.MD.Capability] = e.Loc
		if !strings.HasPrefix(e.Loc, "https://") {
			t.Errorf("loc %s", e.Loc)
		}
		if e.MD.Capability == "change-notification" {
			terms := resourcesync.Terms + "rel/"
			if link(e.Links, "hub") != base+"/hub" || link(e.Links, terms+"websocket") != "wss://hub.example.org/sets/peps/changes" ||
				link(e.Links, terms+"event-stream") != base+"/sets/peps/changes" {
				t.Errorf("links of the push channel: %v", e.Links)
			}
		}
	}
	if len(seen) != 2 || seen["changelist"] != base+"/sets/peps/changelist-index.xml" || seen["change-notification"] != base+"/sets/peps/changes" {
		t.Errorf("capabilities: %v", seen)
	}
	if link(doc.Links, "up") != base+"/.well-known/resourcesync" || link(doc.Links, "describedby") != "https://peps.example.org/about" {
		t.Errorf("links of the capability list: %v", doc.Links)
	}
	m.describe("peps", feed.Description{NoPush: true})
	if doc := s.read("/sets/peps/capabilitylist.xml"); len(doc.URLs) != 1 {
		t.Errorf("trap 6: %v", doc.URLs)
	}
	m.make("other", 3)
	if doc := s.read("/sets/peps/.well-known/resourcesync"); len(doc.URLs) != 1 || doc.MD.Capability != "description" {
		t.Errorf("trap 7: %+v", doc)
	}
	if doc := s.read("/.well-known/resourcesync"); len(doc.URLs) != 2 {
		t.Errorf("the description names %v", doc.URLs)
	}
}

// All lists that the index names are together the whole log in order, and their
// intervals have no gaps.
func TestListsTogetherAreTheLog(t *testing.T) {
	m, s := filled(t, 3, 0, documents.Options{})
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
			t.Fatalf("index with %d entries: %v %+v, want from %s", n, index.XMLName, index.MD, from)
		}
		if link(index.Links, "up") != base+"/sets/peps/capabilitylist.xml" {
			t.Errorf("links of the index: %v", index.Links)
		}
		var all []uint64
		for i, l := range index.Sitemaps {
			doc := s.read(l.Loc)
			if doc.MD.From != from || l.MD.From != from || doc.MD.Until != l.MD.Until {
				t.Errorf("list %s is from %s until %s, in the index from %s until %s, want from %s", l.Loc, doc.MD.From, doc.MD.Until, l.MD.From, l.MD.Until, from)
			}
			open := i == len(index.Sitemaps)-1 && len(doc.URLs) < 3
			if (l.MD.Until == "") != open {
				t.Errorf("list %s with %d entries has until %q", l.Loc, len(doc.URLs), l.MD.Until)
			}
			if link(doc.Links, "up") != base+"/sets/peps/capabilitylist.xml" || link(doc.Links, "index") != base+"/sets/peps/changelist-index.xml" {
				t.Errorf("links of %s: %v", l.Loc, doc.Links)
			}
			from = doc.MD.Until
			all = append(all, doc.positions()...)
		}
		if !slices.Equal(all, numbers(state.Floor.Position+1, n)) {
			t.Errorf("the lists of %d entries hold %v", n, all)
		}
	}
}

func TestListIsStable(t *testing.T) {
	m, a := filled(t, 3, 3, documents.Options{})
	b := newServer(m, documents.Options{CacheBytes: 1})
	first := a.get(m.list("peps", 1))
	m.add("peps", 7)
	m.describe("peps", feed.Description{DescribedBy: "https://example.org/other"})
	for _, s := range []*server{a, b, newServer(m, documents.Options{})} {
		w := s.get(m.list("peps", 1))
		if !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) || w.Header().Get("Etag") != first.Header().Get("Etag") {
			t.Errorf("closed list changed: %v\n%s", w.Header(), w.Body)
		}
	}
	// Two hubs give the same bytes of every document, plain and compressed, from the
	// cache or not.
	for _, path := range []string{"changelist.xml", "changelist-index.xml", "capabilitylist.xml", "changes", "changelist.xml?from=2026-01-02T03:04:07Z"} {
		for _, coding := range []string{"gzip", "identity"} {
			x, y := a.get("/sets/peps/"+path, "Accept-Encoding", coding), b.get("/sets/peps/"+path, "Accept-Encoding", coding)
			if !bytes.Equal(x.Body.Bytes(), y.Body.Bytes()) || x.Header().Get("Etag") != y.Header().Get("Etag") || x.Header().Get("Etag") == "" {
				t.Errorf("%s %s: two hubs differ", path, coding)
			}
		}
	}
	other := newServer(m, documents.Options{})
	other.Server = documents.New(m, "https://other.example.org", documents.Options{})
	if other.get(m.list("peps", 1)).Header().Get("Etag") == first.Header().Get("Etag") {
		t.Error("the base URL is not in the ETag")
	}
}

func TestFrom(t *testing.T) {
	m, s := filled(t, 3, 0, documents.Options{})
	for range 10 {
		m.add("peps", 2) // at second 1, at second 2, …; two entries 1 µs apart
	}
	m.trim("peps", 12) // keeps lists 3 to 7; the floor is position 6 of second 3
	at := func(d time.Duration) string { return began.Add(d).Format("2006-01-02T15:04:05.000000000Z") }
	for _, test := range []struct {
		name, from string
		code       int
		want       []uint64
	}{
		{"one second", at(5 * time.Second), 200, numbers(9, 20)},
		{"inclusive", at(5*time.Second + time.Microsecond), 200, numbers(10, 20)},
		{"finer digits are cut off", at(5*time.Second + 1999), 200, numbers(10, 20)},
		{"between", at(5*time.Second + 2*time.Microsecond), 200, numbers(11, 20)},
		{"whole seconds", "2026-01-02T03:04:10Z", 200, numbers(9, 20)},
		{"another zone", "2026-01-02T04:04:10%2B01:00", 200, numbers(9, 20)},
		{"the newest", at(10*time.Second + time.Microsecond), 200, numbers(20, 20)},
		{"nothing since", at(11 * time.Second), 200, nil},
		{"a little in the future", at(69 * time.Second), 200, nil},
		{"future", at(71 * time.Second), 400, nil},
		{"floor", at(3*time.Second + time.Microsecond), 410, nil},
		{"behind the floor", at(3*time.Second + 2*time.Microsecond), 200, numbers(7, 20)},
		{"before the floor", at(time.Second), 410, nil},
		{"a date", "2026-01-02", 410, nil},
		{"long ago", "0001-01-02T00:00:00Z", 410, nil},
		{"no zone", "2026-01-02T03:04:10", 400, nil},
		{"a blank for a plus", "2026-01-02T04:04:10+01:00", 200, numbers(9, 20)},
		{"a cursor", "12-34", 400, nil},
		{"empty", "", 400, nil},
		{"twice", "2026-01-02T03:04:10Z&from=2026-01-02T03:04:10Z", 400, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/sets/peps/changelist.xml?from=" + test.from
			if w := s.get(path); w.Code != test.code {
				t.Fatalf("%d %s, want %d", w.Code, w.Body, test.code)
			}
			if test.code != 200 {
				return
			}
			doc := s.read(path)
			if !slices.Equal(doc.positions(), test.want) {
				t.Errorf("positions %v, want %v", doc.positions(), test.want)
			}
			if doc.XMLName.Local != "urlset" || doc.MD.Until != "" || link(doc.Links, "next") != "" {
				t.Errorf("%v %+v", doc.XMLName, doc.MD)
			}
		})
	}

	m.make("new", 3)
	begin := resourcesync.AppendTimeMicro(nil, m.state("new").Begin)
	if doc := s.read("/sets/new/changelist.xml?from=" + string(begin)); len(doc.URLs) != 0 {
		t.Errorf("from the beginning of an empty log: %v", doc.URLs)
	}
	// ?from= may name a head that lies as far in the future as clocks may differ.
	m.add("new", 1)
	m.now.Store(began.Add(-10 * time.Minute).UnixNano())
	head := resourcesync.AppendTimeMicro(nil, m.state("new").Head.Micros)
	if doc := s.read("/sets/new/changelist.xml?from=" + string(head)); len(doc.URLs) != 1 {
		t.Errorf("from the head: %v", doc.URLs)
	}
}

// A destination that asks again from each until gets every change, in documents of
// at most 50,000 entries.
func TestFromIsCut(t *testing.T) {
	m, s := filled(t, 10_000, 50_000, documents.Options{})
	if testing.Short() {
		m.add("peps", 10)
		if lengths := s.walk(50_010); !slices.Equal(lengths, []int{50_000, 11}) {
			t.Errorf("documents of %v entries, want 50,000 and 11", lengths)
		}
		return
	}
	if lengths := s.walk(50_000); !slices.Equal(lengths, []int{50_000}) {
		t.Errorf("documents of %v entries", lengths)
	}
	for range 6 {
		m.add("peps", 10_000)
	}
	if lengths := s.walk(110_000); !slices.Equal(lengths, []int{50_000, 50_000, 10_002}) {
		t.Errorf("documents of %v entries", lengths)
	}
}

// walk reads ?from= from the beginning of the set peps, which has so many entries, and from each
// until again. It returns how many entries each document has.
func (s *server) walk(total uint64) (lengths []int) {
	s.Helper()
	var all []uint64
	for next := "/sets/peps/changelist.xml?from=" + string(resourcesync.AppendTimeMicro(nil, s.state("peps").Begin)); next != ""; {
		doc, positions := s.scan(next)
		if next = link(doc.Links, "next"); (next == "") != (doc.MD.Until == "") {
			s.Fatalf("until %q and next %q", doc.MD.Until, next)
		}
		if last := doc.URLs[len(doc.URLs)-1].MD; doc.MD.Until != "" && doc.MD.Until != last.Datetime {
			s.Errorf("until %s, last entry %s", doc.MD.Until, last.Datetime)
		}
		lengths = append(lengths, len(positions))
		if len(all) > 0 {
			if len(positions) < 2 || positions[0] != all[len(all)-1] {
				s.Fatalf("goes on with %v after %d", positions, all[len(all)-1])
			}
			positions = positions[1:] // the entry that is repeated
		}
		all = append(all, positions...)
	}
	if !slices.Equal(all, numbers(1, total)) {
		s.Errorf("%d entries", len(all))
	}
	return lengths
}

// A ?from= of few entries reads them once. It has the same bytes as one whose entries are read
// again, because the body could not be kept.
func TestFromOfFew(t *testing.T) {
	m, kept := filled(t, 1_000, 3_000, documents.Options{})
	streamed := newServer(m, documents.Options{CacheBytes: 1})
	for _, n := range []uint64{1, 2, 300, 2_500} {
		after, err := m.At(t.Context(), "peps", 3_000-n)
		if err != nil {
			t.Fatal(err)
		}
		path := "/sets/peps/changelist.xml?from=" + string(resourcesync.AppendTimeMicro(nil, after.Micros+1))
		reads := m.reads.Load()
		got := kept.get(path)
		if reads = m.reads.Load() - reads; n < 1_000 && reads != 2 { // one of them looks for the time
			t.Errorf("%d entries took %d reads", n, reads)
		}
		want := streamed.get(path)
		if want.Header().Get("Content-Length") != "" || !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) {
			t.Errorf("%d entries: %d bytes, and %d when they are streamed", n, got.Body.Len(), want.Body.Len())
		}
		if urls := bytes.Count(got.Body.Bytes(), []byte("<url>")); uint64(urls) != n {
			t.Errorf("%d entries of %d", urls, n)
		}
	}
}

// An index names at most 50,000 lists. If there are more, it names the newest ones,
// and its from says where they begin.
func TestIndexIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("has 50,000 lists")
	}
	m, s := filled(t, 1, 50_000, documents.Options{})
	if doc, lists := s.scan("/sets/peps/changelist-index.xml"); len(lists) != 50_000 || !strings.Contains(doc.Sitemaps[0].Loc, "-1-until-") {
		t.Errorf("%d lists, the first %s", len(lists), doc.Sitemaps[0].Loc)
	}
	m.add("peps", 3)
	looks := m.looks.Load()
	doc, lists := s.scan("/sets/peps/changelist-index.xml")
	first := doc.Sitemaps[0]
	if len(lists) != 50_000 || !strings.Contains(first.Loc, "-4-until-") || first.MD.From != doc.MD.From {
		t.Errorf("%d lists, the first %+v, index from %s", len(lists), first, doc.MD.From)
	}
	if n := m.looks.Load() - looks; n > 10 {
		t.Errorf("three more lists took %d looks at the log", n)
	}
	if w := s.get(m.list("peps", 1)); w.Code != 200 {
		t.Errorf("list 1, which the index no longer names: %d", w.Code)
	}
}

// A document has the same bytes whether it is kept or streamed, and however the log
// pages.
func TestStreamed(t *testing.T) {
	m, large := filled(t, 2_500, 0, documents.Options{CacheBytes: 1 << 30})
	for range 3 {
		m.add("peps", 1_000)
	}
	small := newServer(m, documents.Options{CacheBytes: 1 << 16})
	for _, coding := range []string{"identity", "gzip"} {
		for _, path := range []string{"/sets/peps/changelist.xml", m.list("peps", 1)} {
			a, b := large.get(path, "Accept-Encoding", coding), small.get(path, "Accept-Encoding", coding)
			if !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) || a.Header().Get("Etag") != b.Header().Get("Etag") {
				t.Errorf("%s %s: %d bytes kept, %d streamed", path, coding, a.Body.Len(), b.Body.Len())
			}
			if a.Header().Get("Content-Length") == "" || b.Header().Get("Content-Length") != "" {
				t.Errorf("%s %s: Content-Length %q and %q", path, coding, a.Header().Get("Content-Length"), b.Header().Get("Content-Length"))
			}
			reads := m.reads.Load()
			if w := small.do("HEAD", path, "Accept-Encoding", coding); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "" {
				t.Errorf("HEAD %s: %d %v", path, w.Code, w.Header())
			}
			if m.reads.Load() != reads {
				t.Error("HEAD of what is known to be too large reads it again")
			}
		}
	}
}

// Writers, retention and readers work at the same time. Every document that a reader
// gets is complete.
func TestConcurrent(t *testing.T) {
	m, s := filled(t, 50, 120, documents.Options{CacheBytes: 200 << 10})
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
						t.Errorf("%s: %d %s", path, w.Code, body)
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
