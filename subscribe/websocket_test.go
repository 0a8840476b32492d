package subscribe_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

func TestWebSocketSince(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(2)
	second := s.publish(3)
	end := s.publish(2)
	entry := func(c feed.Cursor, back time.Duration) string {
		return url.QueryEscape(c.Time().Add(-back).Format("2006-01-02T15:04:05.999999999Z07:00"))
	}
	for _, tt := range []struct {
		since   string
		entries int
	}{
		{"start", 7},
		{"now", 0},
		{"", 0},
		{second.String(), 2},
		{end.String(), 0},
		{entry(second, 0), 3}, // inclusive
		{entry(second, -time.Microsecond), 2},
		{entry(second, -999*time.Nanosecond), 3}, // finer digits are ignored
		{strings.ReplaceAll(second.Time().In(time.FixedZone("", 7200)).Format(time.RFC3339Nano), "+", "%20"), 3},
	} {
		t.Run(tt.since, func(t *testing.T) {
			c := s.in(t).dial("?since="+tt.since, dialer{})
			c.readTo(end)
			if c.entries != tt.entries {
				t.Errorf("got %d entries, want %d", c.entries, tt.entries)
			}
		})
	}
}

// TestBadRequests checks that all transports refuse invalid requests in the same way.
func TestBadRequests(t *testing.T) {
	s := newSite(t, settings{sets: []string{"a", "b"}})
	s.publish(1)
	const forms = "want a cursor (position-microseconds), a datetime (2026-01-31T12:00:00Z), start or now"
	for _, test := range []struct {
		query  string
		status int
		want   string
	}{
		{"?since=yesterday", 400, forms},
		{"?since=12-", 400, forms},
		{"?since=-1", 400, forms},
		{"?since=99999999999999999999-1", 400, forms},
		{"?since=" + strings.Repeat("x", 10_000), 400, forms},
		{"?since=2999-01-01", 400, "is in the future"},
		{"?since=2026-13", 410, ""}, // can only be a cursor
		{"?change=moved", 400, "want created, updated or deleted"},
		{"?type=html", 400, "want a media type"},
	} {
		for name, header := range map[string][]string{
			"page":      {"Accept", "application/json"},
			"events":    {"Accept", "text/event-stream"},
			"websocket": {"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="},
		} {
			if name == "websocket" && test.status == 410 {
				continue // accepted, then closed
			}
			s.refused(s.url(test.query), test.status, test.want, header...)
		}
	}
	s.refused(s.http.URL+"/sets/unknown/changes", 404, "no such set")
	s.refused(s.http.URL+"/sets/UNKNOWN/changes", 400, "invalid set name")
	for _, test := range []struct{ query, want string }{
		{"?limit=0", "want 1 to 10000"},
		{"?limit=-5", "want 1 to 10000"},
		{"?limit=10001", "want 1 to 10000"},
		{"?limit=many", "want 1 to 10000"},
		{"?wait=long", "want a duration"},
		{"?wait=-1s", "want 0s to 5m0s"},
		{"?wait=1h", "want 0s to 5m0s"},
		{"?wait=18446744074", "want a duration"}, // does not overflow
	} {
		s.refused(s.url(test.query), 400, test.want)
	}
}

func TestOrigin(t *testing.T) {
	for _, test := range []struct {
		check  func(*http.Request) bool
		origin string
		ok     bool
	}{
		{nil, "https://evil.example", false},
		{func(r *http.Request) bool { return r.Header.Get("Origin") == "https://good.example" }, "https://good.example", true},
		{func(r *http.Request) bool { return r.Header.Get("Origin") == "https://good.example" }, "https://evil.example", false},
	} {
		s := newSite(t, settings{Options: subscribe.Options{CheckOrigin: test.check}})
		ws, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.url(""), "http"), http.Header{"Origin": {test.origin}})
		if (err == nil) != test.ok {
			t.Errorf("dial from %s: got error %v, want success %v", test.origin, err, test.ok)
		}
		if err == nil {
			ws.Close()
		} else if resp.StatusCode != 403 || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("dial from %s: got %v, want a problem with 403", test.origin, resp)
		}
	}
}

// TestSetCreatedLater checks that all transports wait for a set that does not exist yet, or is empty.
func TestSetCreatedLater(t *testing.T) {
	s := newSite(t, settings{})
	early := []*client{s.dial("", dialer{}), s.dial("?since=start", dialer{protocol: "rs.xml"}), s.dial("?since=2020-01-01", dialer{}), s.dial("?since=2020-01", dialer{}),
		s.dial("?prefix=https:", dialer{}), s.dial("?since=0-0", dialer{})}
	for _, c := range early {
		if m := c.next(); m.Cursor != "0-0" {
			t.Errorf("first cursor of a nonexistent set = %s, want 0-0", m.Cursor)
		}
	}
	events := s.stream("")
	if e, m := events.next(); e.id != "0-0" || len(m.Changes) > 0 {
		t.Errorf("first event = %+v, want one at 0-0 without changes", e)
	}
	ok(t, s.log.Make(t.Context(), "a", feed.Description{}, 10))
	late := []*client{s.dial("", dialer{}), s.dial("?prefix=https:", dialer{})}
	for _, c := range late {
		if m := c.next(); position(m.Cursor) != 0 || m.Cursor == "0-0" {
			t.Errorf("first cursor of an empty set = %s, want position 0 with a datetime", m.Cursor)
		}
	}
	s.publish(2)
	end := s.publish(3)
	for _, c := range append(early, late...) {
		c.readTo(end)
		if c.entries != 5 {
			t.Errorf("got %d entries, want 5", c.entries)
		}
	}
	events.readTo(end)
}

// TestFilters checks that messages of a filtered stream are consecutive: omitted changes belong to
// the interval of the next message or heartbeat.
func TestFilters(t *testing.T) { synctest.Test(t, testFilters) }

func testFilters(t *testing.T) {
	s := newSite(t, settings{fake: true, Options: subscribe.Options{Heartbeat: 2 * time.Second}})
	s.publish(1)
	kinds := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
	types := []string{"text/html", "text/plain; charset=utf-8", "image/png"}
	clients := map[string]*client{}
	for _, query := range []string{"?prefix=https://example.org/b/", "?change=created", "?change=created,deleted", "?type=text/*",
		"?type=image/png&change=updated", "?prefix=https://example.org/a/&type=text/html", "?prefix=https://example.org/nothing", "?collection=https://example.org/c", "?collection=https://example.org/c&change=updated"} {
		clients[query] = s.dial(query, dialer{})
		clients[query].next()
	}
	want := map[string]int{}
	var end feed.Cursor
	for i := range 60 {
		dir := []string{"a/", "b/"}[i%2]
		c := change(fmt.Sprint(dir, i), kinds[i%3], types[i/3%3])
		if i%5 == 0 {
			c.Links = []resourcesync.Link{{Rel: "collection", Href: "https://example.org/c"}}
		}
		end = s.publishChanges(c)
		for query := range clients {
			q, _ := url.ParseQuery(query[1:])
			if f, err := feed.ParseFilter(q); err == nil && f.Match(&c) {
				want[query]++
			}
		}
	}
	for query, c := range clients {
		c.readTo(end) // with a heartbeat at the latest
		if c.entries != want[query] {
			t.Errorf("%s: got %d entries, want %d", query, c.entries, want[query])
		}
	}
	// The same while catching up from the log.
	for query := range clients {
		c := s.dial(query+"&since=start", dialer{protocol: "rs.xml"})
		c.readTo(end)
		if n := want[query]; c.entries < n || c.entries > n+1 {
			t.Errorf("%s: got %d entries from the start, want %d", query, c.entries, n)
		}
	}
}

// TestFilterVariants checks that connections with the same filter and different last cursors each
// get a message after their own cursor.
func TestFilterVariants(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{Options: subscribe.Options{Heartbeat: time.Hour}}) // a heartbeat would send the cursor, too
	s.publish(1)
	var clients []*client
	for i := range 150 {
		clients = append(clients, s.follow("?change=created", dialer{}))
		if i%3 == 0 {
			s.publishChanges(change("u", resourcesync.Updated, ""))
		}
	}
	end := s.publishChanges(change("c", resourcesync.Created, ""))
	for _, c := range clients {
		if m := c.next(); m.Cursor != end.String() || len(m.Changes) != 1 {
			t.Errorf("got %+v, want one change at %v", m, end)
		}
	}
}

func TestGone(t *testing.T) {
	s := newSite(t, settings{listSize: 10})
	first := s.publish(1)
	for range 5 {
		s.publish(10)
	}
	if n, err := s.log.Trim(t.Context(), "a", changelog.Retention{Count: 1}); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	for _, since := range []string{first.String(), "2020-01-01", "2026-01"} {
		if reason := s.dial("?since="+since, dialer{}).closed(4410); !strings.Contains(reason, "read all resources") {
			t.Errorf("got close reason %q, want advice", reason)
		}
		s.refused(s.url("?since="+since), 410, "read the resources")
		s.refused(s.url("?since="+since), 410, "read the resources", "Accept", "text/event-stream")
	}
}

func TestDeletedSet(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	clients := []*client{s.dial("", dialer{}), s.dial("?since=start", dialer{}), s.dial("?change=created", dialer{protocol: "rs.xml"})}
	for _, c := range clients {
		c.next()
	}
	events := s.followEvents("")
	ok(t, s.hub.Delete(t.Context(), "a"))
	for _, c := range clients {
		if reason := c.closed(4410); !strings.HasPrefix(reason, "the changes are gone") {
			t.Errorf("got close reason %q, want that the changes are gone", reason)
		}
	}
	e, err := events.event()
	if err != nil || e.name != "gone" || !strings.Contains(e.data, `"status":410`) {
		t.Errorf("got event %+v, %v, want gone with status 410", e, err)
	}
	if e, err := events.event(); err == nil {
		t.Errorf("got %+v after the event gone, want the end", e)
	}
	// A new set with that name has another log.
	end := s.publish(1)
	c := s.dial("?since=start", dialer{})
	c.readTo(end)
}

func TestDivergedStart(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(2)
	end := s.publish(3)
	lost := feed.Cursor{Position: end.Position + 5, Micros: end.Micros + 5}.String()
	for _, protocol := range []string{"rs.json", "rs.xml", "rs.json+zstd"} {
		c := s.dial("?since="+lost, dialer{protocol: protocol})
		if m := c.next(); !m.Diverged || position(m.After) >= end.Position {
			t.Errorf("first message = %+v, want diverged", m)
		}
		c.readTo(end)
	}
	events := s.stream("?since=" + lost)
	if e, m := events.next(); !m.Diverged || e.id != m.After || events.resp.Header.Get("RS-Diverged") != "true" {
		t.Errorf("first event = %+v, want diverged", e)
	}
	events.readTo(end)
	resp, body := s.get("?since=" + lost)
	if m, err := parseJSON(body); !m.Diverged || resp.Header.Get("RS-Diverged") != "true" || err != nil {
		t.Errorf("page = %s, %v, want diverged", body, err)
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{Options: subscribe.Options{Heartbeat: time.Minute}})
	end := s.publish(5)
	clients := []*client{s.dial("?since=start", dialer{}), s.dial("", dialer{protocol: "rs.xml"}), s.dial("?change=deleted", dialer{})}
	for _, c := range clients {
		c.next()
	}
	clients[0].readTo(end)
	later := s.publish(2)
	clients[0].readTo(later)
	clients[1].readTo(later)
	// Shutdown waits for the clients' close frames, so they must read.
	done := make(chan error)
	go func() { done <- s.server.Shutdown(t.Context()) }()
	for i, c := range clients {
		reason := c.closed(websocket.CloseGoingAway)
		cursor, text, _ := strings.Cut(reason, " ")
		if want := later.String(); cursor != want && (i < 2 || position(cursor) > later.Position) {
			t.Errorf("client %d: got close reason %q, want cursor %s", i, reason, want)
		}
		if text != "the hub is stopping" {
			t.Errorf("client %d: got close reason %q, want that the hub is stopping", i, reason)
		}
	}
	if err := <-done; err != nil {
		t.Error("Shutdown:", err)
	}
	if s.refused(s.url("?since=now"), 503, "reconnect with your cursor").Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}
}

// TestResumeAfterShutdown checks that a client that resumes from the cursor in the close frame misses
// nothing.
func TestResumeAfterShutdown(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	c := s.follow("?since=start", dialer{})
	stop := s.publishRepeatedly(func() { s.publish(3) })
	for c.entries < 100 {
		c.next()
	}
	go s.server.Shutdown(t.Context())
	reason := c.closed(websocket.CloseGoingAway)
	cursor, _, _ := strings.Cut(reason, " ")
	if cursor != c.cursor {
		t.Errorf("got cursor %s in the close frame, want %s", cursor, c.cursor)
	}
	stop()
	b, err := s.log.Since(t.Context(), "a", mustCursor(t, cursor), 1)
	if err != nil || b.Diverged || len(b.Entries) > 0 && b.Entries[0].Position != c.last+1 {
		t.Errorf("Since(%s) = %v, %v, want the next change", cursor, b, err)
	}
}

func mustCursor(t testing.TB, s string) feed.Cursor {
	t.Helper()
	c, err := feed.ParseCursor(s)
	ok(t, err)
	return c
}

func TestClientMessages(t *testing.T) {
	s := newSite(t, settings{})
	end := s.publish(1)
	raw := func(frame string) func(*websocket.Conn) error {
		return func(ws *websocket.Conn) error {
			_, err := ws.NetConn().Write([]byte(frame))
			return err
		}
	}
	for _, test := range []struct {
		name string
		send func(*websocket.Conn) error
		code int
	}{
		{"message", func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.TextMessage, []byte("hello")) }, websocket.ClosePolicyViolation},
		{"large message", func(ws *websocket.Conn) error {
			const size = 1 << 20
			frame := binary.BigEndian.AppendUint64([]byte{0x82, 0x80 | 127}, size)
			_, err := ws.NetConn().Write(append(frame, make([]byte, 4+size)...))
			return err
		}, websocket.ClosePolicyViolation},
		{"unmasked frame", raw("\x81\x01x"), websocket.CloseProtocolError},
		{"continuation without a message", raw("\x80\x80mask"), websocket.CloseProtocolError},
		{"frame with an extension", raw("\xc9\x80mask"), websocket.CloseProtocolError},
		{"unknown opcode", raw("\x8b\x80mask"), websocket.CloseProtocolError},
		{"fragmented ping", raw("\x09\x80mask"), websocket.CloseProtocolError},
		{"long ping", raw("\x89\xfe\x00\x7emask"), websocket.CloseProtocolError},
		{"close of one byte", raw("\x88\x81\x00\x00\x00\x00\x03"), websocket.CloseProtocolError},
		{"close with a reserved code", raw("\x88\x82\x00\x00\x00\x00\x03\xed"), websocket.CloseProtocolError},
		{"close reason is not UTF-8", raw("\x88\x83\x00\x00\x00\x00\x03\xe8\xff"), websocket.CloseInvalidFramePayloadData},
		{"close", func(ws *websocket.Conn) error {
			return ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "bye"))
		}, websocket.CloseNormalClosure},
		{"close without a code", func(ws *websocket.Conn) error {
			return ws.WriteMessage(websocket.CloseMessage, nil)
		}, websocket.CloseNoStatusReceived},
	} {
		for _, when := range []string{"live", "immediately"} {
			t.Run(test.name+" "+when, func(t *testing.T) {
				c := s.in(t).dial("", dialer{})
				if when == "live" {
					c.next()
				}
				ok(t, test.send(c.ws))
				reason := c.closed(test.code)
				if test.code != websocket.CloseNoStatusReceived && !strings.HasPrefix(reason, end.String()) {
					t.Errorf("got close reason %q, want cursor %v", reason, end)
				}
			})
		}
	}
}

// TestClientPings checks that pings are answered in order, whatever segments they arrive in.
func TestClientPings(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	c := s.dial("", dialer{})
	c.next()
	send := func(b ...byte) {
		_, err := c.ws.NetConn().Write(b)
		ok(t, err)
	}
	want := []string{"a", "", "bc", "a", "", "bc"}
	var answers []string
	c.ws.SetPongHandler(func(payload string) error {
		if answers = append(answers, payload); len(answers) == len(want) {
			send([]byte("\x88\x82\x00\x00\x00\x00\x03\xe8")...)
		}
		return nil
	})
	pings := []byte("\x89\x81\x00\x00\x00\x00a\x89\x80mask\x89\x82\x00\x00\x00\x00bc")
	send(pings...)
	for _, b := range pings {
		send(b)
	}
	c.closed(websocket.CloseNormalClosure)
	if !slices.Equal(answers, want) {
		t.Errorf("got pongs %q, want %q", answers, want)
	}
}
