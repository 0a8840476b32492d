package subscribe_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// newBaselineSite returns a site whose set a has baselines, and a history of n resources.
func newBaselineSite(t testing.TB, o settings, n int) (*site, *shelf) {
	sh := &shelf{kept: map[feed.Cursor]resources{}, complete: true}
	o.Inventories = sh
	s := newSite(t, o)
	sh.log = s.log
	t.Cleanup(func() {
		s.shutdown()
		testutil.Until(t, "every snapshot is released", func() bool { return sh.holding() == 0 })
	})
	s.history(n)
	return s, sh
}

// name returns the end of the loc of resource i.
func name(i int) string { return fmt.Sprintf("%c/%06d", 'a'+rune(i%3), i) }

// history publishes n resources, updates some of them, and deletes others.
func (s *site) history(n int) {
	s.Helper()
	var all []resourcesync.Change
	for i := range n {
		all = append(all, change(name(i), resourcesync.Created, "text/plain"))
	}
	for i := 0; i < n; i += 10 {
		all = append(all, change(name(i), resourcesync.Updated, "text/plain"), change(name(i/2), resourcesync.Deleted, ""))
	}
	for part := range slices.Chunk(all, 1000) {
		s.publishChanges(part...)
	}
}

// A baseline names what there is, over every transport, and then the changes follow.
func TestBaseline(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2_500} {
		s, sh := newBaselineSite(t, settings{sets: []string{"a"}}, n)
		for name, begin := range transports {
			for _, prefix := range []string{"", "https://example.org/b/", "https://example.org/none"} {
				if prefix != "" && n == 1 {
					continue // it has nothing of its own
				}
				t.Run(fmt.Sprintf("%s/%d/%s", name, n, prefix), func(t *testing.T) {
					s := s.in(t)
					read, m := begin(s, "?since=baseline&limit=700&prefix="+prefix, ""), &mirror{filter: feed.Filter{Prefix: prefix}}
					for first := true; !m.ended; first = false {
						o := m.read(t, read)
						if name != "pages" && first && (len(o.Resources) > 0 || !*o.Baseline) || !o.Complete {
							t.Errorf("it begins with %+v", o)
						}
					}
					m.is(t, s, sh)
					s.publishChanges(change("b/new", resourcesync.Created, ""), change("b/000001", resourcesync.Deleted, ""))
					end := s.publishChanges(change(strings.TrimPrefix(prefix, "https://example.org/")+"last", resourcesync.Created, ""))
					for m.cursor != end.String() {
						m.read(t, read)
					}
					m.is(t, s, sh)
				})
			}
		}
	}
}

// A baseline of a collection names what is in it now, over every transport, and then come
// its changes.
func TestBaselineOfACollection(t *testing.T) {
	t.Parallel()
	const collection = "https://example.org/c?of=1"
	in := func(c resourcesync.Change) resourcesync.Change {
		c.Links = []resourcesync.Link{{Rel: "collection", Href: collection}}
		return c
	}
	s, sh := newBaselineSite(t, settings{}, 2_500)
	var all []resourcesync.Change
	for i := range 2_000 { // a quarter of them leaves it again
		c := change(name(i), resourcesync.Updated, "text/plain")
		if all = append(all, in(c)); i%4 == 0 {
			all = append(all, c)
		}
	}
	s.publishChanges(all...)
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			query := "?since=baseline&limit=300&collection=" + url.QueryEscape(collection)
			m := &mirror{filter: feed.Filter{Collection: collection}}
			read := begin(s, query, "")
			m.read(t, read)
			m.read(t, read)
			for read = begin(s, query, m.cursor); !m.ended; { // it goes on there
				m.read(t, read)
			}
			m.is(t, s, sh)
			s.publishChanges(change("none", resourcesync.Created, ""), change("a/000000", resourcesync.Deleted, ""), in(change("new", resourcesync.Created, "")))
			m.readToHead(t, s, read)
			m.is(t, s, sh)
		})
	}
}

// A part of a baseline comes also if nothing is in the collection for long, so that a client
// need not begin again.
func TestBaselineOfASmallCollection(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 0)
	at := s.publishChanges(change("x", resourcesync.Created, ""))
	const n = 100_001 // a part looks at 50,000
	many := resources{shelf: sh, cursor: at, entries: make([]feed.Entry, n), tallies: make([]digest.Tally, n+1)}
	for i := range many.entries {
		many.entries[i] = feed.Entry{Cursor: at, Change: change(fmt.Sprintf("%06d", i), resourcesync.Created, "")}
		many.tallies[i+1].Count = uint64(i) + 1 // no reader compares digests
	}
	many.entries[n-1].Change.Links = []resourcesync.Link{{Rel: "collection", Href: "urn:x:c"}}
	sh.kept[at] = many
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			read, m := begin(s.in(t), "?since=baseline&collection=urn:x:c", ""), &mirror{filter: feed.Filter{Collection: "urn:x:c"}}
			parts := 0
			for ; !m.ended; parts++ {
				m.read(t, read)
			}
			if parts < 4 || len(m.resources) != 1 {
				t.Errorf("%d parts name %v", parts, m.resources)
			}
		})
	}
}

// A baseline is read to its end also if every connection ends after one part.
func TestBaselineResumes(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 2_500)
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			m, resume := &mirror{}, ""
			for i := 0; !m.ended; i++ {
				read := begin(s, "?since=baseline&limit=700", resume)
				for n := 0; n < 2 && !m.ended; n++ {
					m.read(t, read)
				}
				resume = m.cursor
				s.publish(1) // the snapshot stays the same
			}
			if m.restarts > 0 {
				t.Errorf("it began anew %d times", m.restarts)
			}
			m.readToHead(t, s, begin(s, "?since=baseline", resume))
			m.is(t, s, sh)
		})
	}
}

// When the snapshot is gone, the baseline begins anew on the same connection, and what
// the client then holds is no mixture.
func TestBaselineBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{}, 3_500)
			sh.walks = 3
			read, m := begin(s, "?since=baseline", ""), &mirror{}
			for !m.ended {
				m.read(t, read)
				if m.restarts == 0 {
					s.publishChanges(change("a/000000", resourcesync.Deleted, ""))
				}
			}
			if m.restarts != 1 {
				t.Errorf("it began anew %d times", m.restarts)
			}
			m.readToHead(t, s, read)
			m.is(t, s, sh)
		})
	}
}

// When the log does not reach back to the snapshot at the end, the baseline begins anew.
// When no snapshot is better, the client is told.
func TestBaselineBehindTheLog(t *testing.T) {
	t.Parallel()
	for _, better := range []bool{true, false} {
		t.Run(fmt.Sprint(better), func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{listSize: 10}, 40)
			resp, body := s.get("?since=baseline")
			var o object
			if err := json.Unmarshal(body, &o); err != nil || len(o.Resources) == 0 {
				t.Fatalf("%s: %v", body, err)
			}
			old, err := s.log.State(t.Context(), "a")
			ok(t, err)
			s.history(40)
			if _, err := s.log.Trim(t.Context(), "a", changelog.Retention{Count: 10}); err != nil {
				t.Fatal(err)
			}
			if !better {
				sh.mu.Lock()
				sh.kept[feed.Cursor{}] = sh.kept[old.Head]
				sh.mu.Unlock()
			}
			next := nextURL(t, resp)
			if !better {
				s.refused(next, 410, "since=baseline")
				read, err := s.dialObjects("?since=baseline", o.Cursor, ""), error(nil)
				for err == nil {
					_, err = read()
				}
				if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != 4410 {
					t.Errorf("a WebSocket ends with %v", err)
				}
				return
			}
			_, body = s.do(http.MethodGet, next)
			if err := json.Unmarshal(body, &o); err != nil || !o.Restart || !*o.Baseline || o.Cursor == old.Head.String() {
				t.Errorf("the next page is %s, %v", body, err)
			}
			for name, begin := range transports {
				if name == "pages" {
					continue
				}
				read, m := begin(s, "?since=baseline", next[strings.Index(next, "since=")+6:]), &mirror{}
				for !m.ended {
					m.read(t, read)
				}
				if m.restarts != 1 {
					t.Errorf("%s: it began anew %d times", name, m.restarts)
				}
				m.is(t, s, sh)
			}
		})
	}
}

// What cannot be a baseline is refused before it begins.
func TestBaselineRefused(t *testing.T) {
	s, sh := newBaselineSite(t, settings{}, 0)
	s.publish(1)
	for _, test := range []struct{ query, says string }{
		{"?since=baseline&change=created", "use prefix and collection"},
		{"?since=baseline&type=text/plain", "use prefix and collection"},
		{"?since=baseline&collection=c", "collection"},
		{"?since=1-2~", "invalid baseline cursor"},
		{"?since=~", "invalid baseline cursor"},
		{"?since=baseline&since=1-2~3", "since: got 2 values"},
		{"?since=baseline&limit=0", "limit"},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			if strings.Contains(test.query, "limit") && accept == "text/event-stream" {
				continue // only pages have a limit
			}
			s.refused(s.url(test.query), 400, test.says, "Accept", accept)
		}
	}
	sh.fail = &feed.Error{Code: "busy", Status: 429, RetryAfter: 5, Text: "busy", Detail: "ask again"}
	if s.refused(s.url("?since=baseline"), 429, "ask again", "Accept", "text/event-stream").Get("Retry-After") != "5" {
		t.Error("no Retry-After")
	}
	without := newSite(t, settings{})
	without.publish(1)
	without.refused(without.url("?since=baseline"), 404, "has no inventory")
}

// The header says what the JSON says, because NDJSON has no place for it.
func TestBaselineAsNDJSON(t *testing.T) {
	s, _ := newBaselineSite(t, settings{}, 30)
	next, lines := s.url("?since=baseline&limit=7"), 0
	for range 100 {
		resp, body := s.do(http.MethodGet, next, "Accept", "application/x-ndjson")
		var o object
		if err := json.Unmarshal([]byte(resp.Header.Get("RS-Baseline")), &o); err != nil || o.Baseline == nil {
			t.Fatalf("the header RS-Baseline is %q: %v", resp.Header.Get("RS-Baseline"), err)
		}
		for in := bufio.NewScanner(strings.NewReader(string(body))); in.Scan(); lines++ {
			if !strings.HasPrefix(in.Text(), `{"position":`) {
				t.Errorf("a line is %s", in.Text())
			}
		}
		if next = nextURL(t, resp); *o.Baseline {
			continue
		}
		if lines != o.Count || len(body) > 0 {
			t.Errorf("%d lines of %d resources, and %q at the end", lines, o.Count, body)
		}
		return
	}
	t.Error("it has no end")
}

// Clients that do not read take no memory, and others get their baselines.
func TestSlowBaseline(t *testing.T) {
	streams := limit.NewBudget(64<<20, patience)
	s, sh := newBaselineSite(t, settings{Options: subscribe.Options{WriteTimeout: patience, Streams: streams}, sendBuffer: smallSend}, 0)
	s.ordinary(3_000)
	clients := 40
	if testing.Short() {
		clients = 20
	}
	for _, query := range []string{"?since=baseline&limit=10000", "?since=baseline"} {
		before, slow := heap(), []*slowPage{}
		for range clients {
			slow = append(slow, s.slowly(query, "application/json, text/event-stream;q=0."+fmt.Sprint(len(query)%2)))
		}
		testutil.Until(t, "all of them are under way", func() bool { return sh.holding() == clients })
		if taken := streams.Taken(); taken != int64(clients)<<20 {
			t.Errorf("%d bytes of room are taken", taken)
		}
		if after := heap(); after > before+uint64(clients)<<20 {
			t.Errorf("%d bytes are held", after-before)
		}
		if _, body := s.get("?since=baseline&limit=10000"); strings.Count(string(body), `{"position":`) != 3_000 {
			t.Errorf("another one gets %d bytes", len(body))
		}
		for _, p := range slow {
			_ = p.conn.Close()
		}
		testutil.Until(t, "the room is free again", func() bool { return streams.Taken() == 0 })
	}
}

// A hub that stops tells a reader of a baseline where to go on.
func TestBaselineShutdown(t *testing.T) {
	t.Parallel()
	s, _ := newBaselineSite(t, settings{sendBuffer: 8 << 10}, 0)
	s.ordinary(3_000)
	c := s.dial("?since=baseline", smallBuffers(8<<10))
	done := make(chan struct{})
	for last := ""; ; {
		_, b, err := c.ws.ReadMessage()
		if last == "" {
			go func() { defer close(done); s.shutdown() }()
		}
		if err == nil {
			var o object
			ok(t, json.Unmarshal(b, &o))
			last = o.Cursor
			continue
		}
		if !strings.Contains(err.Error(), last+" the hub is stopping") || !strings.Contains(last, "~") {
			t.Errorf("behind %s it ends with %v", last, err)
		}
		_ = c.ws.Close()
		break
	}
	<-done
}

// A cursor alone does not say what the set held. Resumed in another snapshot at the same
// cursor, or without a word of which it is, a baseline begins anew; it is never a mixture.
func TestBaselineOfAnotherRoot(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 2_500)
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			sh.mu.Lock()
			clear(sh.kept)
			sh.mu.Unlock()
			m := &mirror{}
			read := begin(s, "?since=baseline&limit=700", "")
			for range 3 {
				m.read(t, read)
			}
			at, err := feed.ParseBaselineCursor(m.cursor)
			if err != nil || at.Root == 0 {
				t.Fatalf("the place is %s, %v", m.cursor, err)
			}
			unnamed := feed.BaselineCursor{Cursor: at.Cursor, Rank: at.Rank}
			for _, test := range []struct {
				what    string
				resume  feed.BaselineCursor
				without int // resources that the snapshot has lost
				restart bool
			}{
				{"of the same root", at, 0, false},
				{"of no root", unnamed, 0, true},
				{"of another root", at, 7, true},
			} {
				sh.mu.Lock()
				r := sh.kept[at.Cursor]
				r.entries, r.tallies = r.entries[test.without:], r.tallies[test.without:]
				sh.kept[at.Cursor] = r
				sh.mu.Unlock()
				first, err := begin(s, "?since=baseline&limit=700", test.resume.String())()
				if err != nil || first.Restart != test.restart {
					t.Errorf("%s: it goes on with %.200v, %v", test.what, first, err)
				}
			}
		})
	}
}
