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

// newBaselineSite returns a site whose set a has an inventory and n resources.
func newBaselineSite(t testing.TB, o settings, n int) (*site, *snapshotStore) {
	sh := &snapshotStore{snapshots: map[feed.Cursor]resources{}, complete: true}
	o.Inventories = sh
	s := newSite(t, o)
	sh.log = s.log
	t.Cleanup(func() {
		s.shutdown()
		testutil.Until(t, "every snapshot is released", func() bool { return sh.open() == 0 })
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

// TestBaseline reads a baseline and the changes after it over every transport.
func TestBaseline(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2_500} {
		s, sh := newBaselineSite(t, settings{sets: []string{"a"}}, n)
		for name, open := range transports {
			for _, prefix := range []string{"", "https://example.org/b/", "https://example.org/none"} {
				if prefix != "" && n == 1 {
					continue // the same as without a prefix
				}
				t.Run(fmt.Sprintf("%s/%d/%s", name, n, prefix), func(t *testing.T) {
					s := s.in(t)
					read, m := open(s, "?since=baseline&limit=700&prefix="+prefix, ""), &mirror{filter: feed.Filter{Prefix: prefix}}
					for first := true; !m.ended; first = false {
						o := m.read(t, read)
						if name != "pages" && first && (len(o.Resources) > 0 || !*o.Baseline) || !o.Complete {
							t.Errorf("got first object %+v, want no resources, and complete", o)
						}
					}
					m.check(t, s, sh)
					s.publishChanges(change("b/new", resourcesync.Created, ""), change("b/000001", resourcesync.Deleted, ""))
					end := s.publishChanges(change(strings.TrimPrefix(prefix, "https://example.org/")+"last", resourcesync.Created, ""))
					for m.cursor != end.String() {
						m.read(t, read)
					}
					m.check(t, s, sh)
				})
			}
		}
	}
}

// TestBaselineOfACollection reads the current members of a collection and the changes after that over
// every transport.
func TestBaselineOfACollection(t *testing.T) {
	t.Parallel()
	const collection = "https://example.org/c?of=1"
	in := func(c resourcesync.Change) resourcesync.Change {
		c.Links = []resourcesync.Link{{Rel: "collection", Href: collection}}
		return c
	}
	s, sh := newBaselineSite(t, settings{}, 2_500)
	var all []resourcesync.Change
	for i := range 2_000 { // a quarter of them leave it again
		c := change(name(i), resourcesync.Updated, "text/plain")
		if all = append(all, in(c)); i%4 == 0 {
			all = append(all, c)
		}
	}
	s.publishChanges(all...)
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			query := "?since=baseline&limit=300&collection=" + url.QueryEscape(collection)
			m := &mirror{filter: feed.Filter{Collection: collection}}
			read := open(s, query, "")
			m.read(t, read)
			m.read(t, read)
			for read = open(s, query, m.cursor); !m.ended; { // resumes
				m.read(t, read)
			}
			m.check(t, s, sh)
			s.publishChanges(change("none", resourcesync.Created, ""), change("a/000000", resourcesync.Deleted, ""), in(change("new", resourcesync.Created, "")))
			m.readToHead(t, s, read)
			m.check(t, s, sh)
		})
	}
}

// TestBaselineOfASmallCollection checks that parts arrive even if few resources are in the
// collection, so that a client can resume.
func TestBaselineOfASmallCollection(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 0)
	at := s.publishChanges(change("x", resourcesync.Created, ""))
	const n = 100_001 // a part covers 50,000
	many := resources{shelf: sh, cursor: at, entries: make([]feed.Entry, n), tallies: make([]digest.Tally, n+1)}
	for i := range many.entries {
		many.entries[i] = feed.Entry{Cursor: at, Change: change(fmt.Sprintf("%06d", i), resourcesync.Created, "")}
		many.tallies[i+1].Count = uint64(i) + 1 // no test compares digests
	}
	many.entries[n-1].Change.Links = []resourcesync.Link{{Rel: "collection", Href: "urn:x:c"}}
	sh.snapshots[at] = many
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			read, m := open(s.in(t), "?since=baseline&collection=urn:x:c", ""), &mirror{filter: feed.Filter{Collection: "urn:x:c"}}
			parts := 0
			for ; !m.ended; parts++ {
				m.read(t, read)
			}
			if parts < 4 || len(m.resources) != 1 {
				t.Errorf("got %d parts with resources %v, want at least 4 parts and one resource", parts, m.resources)
			}
		})
	}
}

// TestBaselineResumes reads a baseline over connections that end after two parts.
func TestBaselineResumes(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 2_500)
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			m, resume := &mirror{}, ""
			for i := 0; !m.ended; i++ {
				read := open(s, "?since=baseline&limit=700", resume)
				for n := 0; n < 2 && !m.ended; n++ {
					m.read(t, read)
				}
				resume = m.cursor
				s.publish(1) // the snapshot stays the same
			}
			if m.restarts > 0 {
				t.Errorf("got %d restarts, want none", m.restarts)
			}
			m.readToHead(t, s, open(s, "?since=baseline", resume))
			m.check(t, s, sh)
		})
	}
}

// TestBaselineRestarts checks that a baseline starts over on the same connection if its snapshot is
// gone, and that states are never mixed.
func TestBaselineRestarts(t *testing.T) {
	t.Parallel()
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{}, 3_500)
			sh.walks = 3
			read, m := open(s, "?since=baseline", ""), &mirror{}
			for !m.ended {
				m.read(t, read)
				if m.restarts == 0 {
					s.publishChanges(change("a/000000", resourcesync.Deleted, ""))
				}
			}
			if m.restarts != 1 {
				t.Errorf("got %d restarts, want 1", m.restarts)
			}
			m.readToHead(t, s, read)
			m.check(t, s, sh)
		})
	}
}

// TestBaselineAfterTrim checks that a baseline starts over if the log no longer reaches back to its
// snapshot, and that the client gets an error if no newer snapshot exists.
func TestBaselineAfterTrim(t *testing.T) {
	t.Parallel()
	for _, newer := range []bool{true, false} {
		t.Run(fmt.Sprintf("newer snapshot %t", newer), func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{listSize: 10}, 40)
			resp, body := s.get("?since=baseline")
			var o object
			if err := json.Unmarshal(body, &o); err != nil || len(o.Resources) == 0 {
				t.Fatalf("got page %s, %v, want one with resources", body, err)
			}
			old, err := s.log.State(t.Context(), "a")
			ok(t, err)
			s.history(40)
			if _, err := s.log.Trim(t.Context(), "a", changelog.Retention{Count: 10}); err != nil {
				t.Fatal(err)
			}
			if !newer {
				sh.mu.Lock()
				sh.snapshots[feed.Cursor{}] = sh.snapshots[old.Head]
				sh.mu.Unlock()
			}
			next := nextURL(t, resp)
			if !newer {
				s.refused(next, 410, "since=baseline")
				read, err := s.dialObjects("?since=baseline", o.Cursor, ""), error(nil)
				for err == nil {
					_, err = read()
				}
				if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != 4410 {
					t.Errorf("WebSocket ends with %v, want a close with 4410", err)
				}
				return
			}
			_, body = s.do(http.MethodGet, next)
			if err := json.Unmarshal(body, &o); err != nil || !o.Restart || !*o.Baseline || o.Cursor == old.Head.String() {
				t.Errorf("next page = %s, %v, want a restart", body, err)
			}
			for name, open := range transports {
				if name == "pages" {
					continue
				}
				read, m := open(s, "?since=baseline", next[strings.Index(next, "since=")+6:]), &mirror{}
				for !m.ended {
					m.read(t, read)
				}
				if m.restarts != 1 {
					t.Errorf("%s: got %d restarts, want 1", name, m.restarts)
				}
				m.check(t, s, sh)
			}
		})
	}
}

// TestBaselineRefused checks that invalid requests for baselines are refused.
func TestBaselineRefused(t *testing.T) {
	s, sh := newBaselineSite(t, settings{}, 0)
	s.publish(1)
	for _, test := range []struct{ query, want string }{
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
			s.refused(s.url(test.query), 400, test.want, "Accept", accept)
		}
	}
	sh.fail = &feed.Error{Code: "busy", Status: 429, RetryAfter: 5, Text: "busy", Detail: "ask again"}
	if s.refused(s.url("?since=baseline"), 429, "ask again", "Accept", "text/event-stream").Get("Retry-After") != "5" {
		t.Error("got no Retry-After, want 5")
	}
	without := newSite(t, settings{})
	without.publish(1)
	without.refused(without.url("?since=baseline"), 404, "has no inventory")
}

// TestBaselineAsNDJSON checks the header RS-Baseline, which has the members that NDJSON cannot have.
func TestBaselineAsNDJSON(t *testing.T) {
	s, _ := newBaselineSite(t, settings{}, 30)
	next, lines := s.url("?since=baseline&limit=7"), 0
	for range 100 {
		resp, body := s.do(http.MethodGet, next, "Accept", "application/x-ndjson")
		var o object
		if err := json.Unmarshal([]byte(resp.Header.Get("RS-Baseline")), &o); err != nil || o.Baseline == nil {
			t.Fatalf("RS-Baseline = %q, want an object with baseline; error %v", resp.Header.Get("RS-Baseline"), err)
		}
		for in := bufio.NewScanner(strings.NewReader(string(body))); in.Scan(); lines++ {
			if !strings.HasPrefix(in.Text(), `{"position":`) {
				t.Errorf("got line %s, want a resource", in.Text())
			}
		}
		if next = nextURL(t, resp); *o.Baseline {
			continue
		}
		if lines != o.Count || len(body) > 0 {
			t.Errorf("got %d lines and %q at the end, want %d lines", lines, body, o.Count)
		}
		return
	}
	t.Error("got 100 pages without the end, want the end")
}

// TestSlowBaseline checks that clients that do not read use no memory and do not delay others.
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
		testutil.Until(t, "all baselines are in progress", func() bool { return sh.open() == clients })
		if taken := streams.Taken(); taken != int64(clients)<<20 {
			t.Errorf("got %d bytes of the budget in use, want %d", taken, int64(clients)<<20)
		}
		if after := heap(); after > before+uint64(clients)<<20 {
			t.Errorf("got %d bytes of memory in use, want at most %d", after-before, clients<<20)
		}
		if _, body := s.get("?since=baseline&limit=10000"); strings.Count(string(body), `{"position":`) != 3_000 {
			t.Errorf("other client: got %d bytes, want 3000 resources", len(body))
		}
		for _, p := range slow {
			_ = p.conn.Close()
		}
		testutil.Until(t, "the budget is free again", func() bool { return streams.Taken() == 0 })
	}
}

// TestBaselineShutdown checks that the close frame of a baseline has the cursor for resuming it.
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
			t.Errorf("got %v after %s, want a close with that cursor", err, last)
		}
		_ = c.ws.Close()
		break
	}
	<-done
}

// TestBaselineOfAnotherRoot checks that a baseline starts over if it is resumed in another snapshot
// at the same cursor, or without naming one.
func TestBaselineOfAnotherRoot(t *testing.T) {
	t.Parallel()
	s, sh := newBaselineSite(t, settings{}, 2_500)
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			sh.mu.Lock()
			clear(sh.snapshots)
			sh.mu.Unlock()
			m := &mirror{}
			read := open(s, "?since=baseline&limit=700", "")
			for range 3 {
				m.read(t, read)
			}
			at, err := feed.ParseBaselineCursor(m.cursor)
			if err != nil || at.Root == 0 {
				t.Fatalf("got cursor %s, %v, want one with a root", m.cursor, err)
			}
			unnamed := feed.BaselineCursor{Cursor: at.Cursor, Rank: at.Rank}
			for _, test := range []struct {
				name    string
				resume  feed.BaselineCursor
				removed int // number of resources missing in the snapshot
				restart bool
			}{
				{"same root", at, 0, false},
				{"no root", unnamed, 0, true},
				{"other root", at, 7, true},
			} {
				sh.mu.Lock()
				r := sh.snapshots[at.Cursor]
				r.entries, r.tallies = r.entries[test.removed:], r.tallies[test.removed:]
				sh.snapshots[at.Cursor] = r
				sh.mu.Unlock()
				first, err := open(s, "?since=baseline&limit=700", test.resume.String())()
				if err != nil || first.Restart != test.restart {
					t.Errorf("%s: got %.200v, %v, want restart %v", test.name, first, err, test.restart)
				}
			}
		})
	}
}
