package subscribe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A sessionMessage is a message of a session.
type sessionMessage struct {
	message
	ID         any
	Followed   string
	Sets       *int
	Unfollowed string
	Cursors    map[string]string
	Error      *struct {
		Type, Detail, Cursor string
		Status               int
	}
	Resources []struct{ Loc string }
	Baseline  *bool // false at the end of a baseline
}

// A sessionClient is the client of a session.
type sessionClient struct {
	testing.TB
	ws       *websocket.Conn
	chains   map[string]*chain // by set
	filtered bool              // whether some follows have filters
}

func (s *site) dialSession(protocols ...string) *sessionClient {
	s.Helper()
	wd := websocket.Dialer{HandshakeTimeout: patience, Subprotocols: protocols, NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return s.connect(ctx, network, addr, dialer{})
	}}
	ws, resp, err := wd.Dial("ws"+strings.TrimPrefix(s.http.URL, "http")+"/changes", nil)
	if err != nil {
		s.Fatal("dial:", err, resp)
	}
	s.Cleanup(func() { ws.Close() })
	return &sessionClient{TB: s, ws: ws, chains: map[string]*chain{}}
}

// send sends a message.
func (c *sessionClient) send(format string, args ...any) {
	c.Helper()
	ok(c, c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)))
}

// read returns the next message. It checks that the messages of each set are consecutive.
func (c *sessionClient) read() (m sessionMessage) {
	c.Helper()
	ok(c, c.ws.SetReadDeadline(time.Now().Add(10*patience)))
	text, _, err := readMessage(c.ws)
	ok(c, err)
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&m); err != nil {
		c.Fatalf("got message %s: %v", text, err)
	}
	switch {
	case m.Error != nil:
		delete(c.chains, m.Set)
	case m.Unfollowed != "":
		delete(c.chains, m.Unfollowed)
	case m.ended():
		c.chains[m.Set] = &chain{cursor: m.Cursor, last: position(m.Cursor), filtered: c.filtered}
	case m.Cursor != "" && m.Baseline == nil:
		if len(m.Changes) == 0 && m.After == m.Cursor {
			c.chains[m.Set] = &chain{filtered: c.filtered}
		}
		if c.chains[m.Set] == nil {
			c.Fatalf("set %s: got changes before a starting cursor: %.200s", m.Set, text)
		}
		if err := c.chains[m.Set].add(m.message); err != nil {
			c.Errorf("set %s: %v", m.Set, err)
		}
	}
	return m
}

// expect reads a message, and compares its summary.
func (c *sessionClient) expect(want string) sessionMessage {
	c.Helper()
	m := c.read()
	if got := m.String(); got != want {
		c.Fatalf("got message %q, want %q", got, want)
	}
	return m
}

// ended reports whether m is the end of a baseline.
func (m sessionMessage) ended() bool { return m.Baseline != nil && !*m.Baseline }

// String returns a summary: "id 1: start of a at 3", "a: 2 changes to 5", "a: 410 from 2".
func (m sessionMessage) String() string {
	text := ""
	if m.ID != nil {
		text = fmt.Sprintf("id %v: ", m.ID)
	}
	switch {
	case m.Error != nil:
		text += fmt.Sprintf("%s: %d", m.Set, m.Error.Status)
		if m.Error.Cursor != "" {
			text += fmt.Sprintf(" from %d", position(m.Error.Cursor))
		}
	case m.Followed != "":
		text += fmt.Sprintf("followed %s: %d", m.Followed, *m.Sets)
	case m.Unfollowed != "":
		text += "unfollowed " + m.Unfollowed
	case m.Cursors != nil:
		text += fmt.Sprintf("cursors of %d", len(m.Cursors))
	case m.ended():
		text += "end of baseline of " + m.Set
	case m.Baseline != nil:
		text += fmt.Sprintf("%d resources of %s", len(m.Resources), m.Set)
	case len(m.Changes) == 0:
		text += fmt.Sprintf("start of %s at %d", m.Set, position(m.Cursor))
	default:
		text += fmt.Sprintf("%s: %d changes to %d", m.Set, len(m.Changes), position(m.Cursor))
	}
	if m.Diverged {
		text += " diverged"
	}
	return text
}

// publishTo publishes n changes to a set.
func (s *site) publishTo(set string, n int) feed.Cursor {
	s.Helper()
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%d", set, i), Change: resourcesync.Updated}
	}
	a, err := s.hub.Publish(s.Context(), set, changelog.Publish{Changes: changes})
	ok(s, err)
	return a.Cursor
}

func TestSessionFollow(t *testing.T) {
	for _, protocol := range []string{"", "rs.json", "rs.json+zstd"} {
		t.Run(protocol, func(t *testing.T) {
			s := newSite(t, settings{})
			at := s.publishTo("a", 3)
			s.publishTo("b", 2)
			c := s.dialSession(strings.Fields(protocol)...)
			c.send(`{"id":1,"follow":"a","since":"start"}`)
			c.expect("id 1: start of a at 0")
			c.expect("a: 3 changes to 3")
			c.send(`{"follow":"b"}`)
			c.expect("start of b at 2")
			c.send(`{"id":"again","follow":"a","since":"%v"}`, at)
			c.expect("id again: start of a at 3")
			s.publishTo("b", 1)
			c.expect("b: 1 changes to 3")
			s.publishTo("a", 2)
			c.expect("a: 2 changes to 5")
			c.send(`{"id":"x","unfollow":"a"}`)
			c.expect("id x: unfollowed a")
			s.publishTo("a", 1)
			s.publishTo("b", 1)
			c.expect("b: 1 changes to 4")
			c.send(`{"follow":"new"}`)
			c.expect("start of new at 0")
			s.publishTo("new", 1)
			c.expect("new: 1 changes to 1")
		})
	}
}

func TestSessionEvery(t *testing.T) {
	s := newSite(t, settings{})
	s.publishTo("a", 3)
	s.publishTo("b", 2)
	s.publishTo("c", 1)
	c := s.dialSession()
	c.filtered = true
	c.send(`{"follow":"b","since":"start","prefix":"https://example.org/b/1"}`)
	c.expect("start of b at 0")
	c.send(`{"id":7,"follow":"*","since":"now"}`)
	got := map[string]bool{c.read().String(): true, c.read().String(): true, c.read().String(): true}
	for _, want := range []string{"b: 1 changes to 2", "start of a at 3", "start of c at 1"} {
		if !got[want] {
			t.Errorf("got messages %v, want %q", got, want)
		}
	}
	c.expect("id 7: followed *: 2")
	c.send(`{"unfollow":"c"}`)
	c.expect("unfollowed c")
	s.publishTo("c", 1) // excluded
	s.publishTo("d", 2) // new
	c.expect("start of d at 0")
	c.expect("d: 2 changes to 2")
	c.send(`{"unfollow":"*"}`)
	c.expect("unfollowed *")
	s.publishTo("a", 1)
	s.publishTo("e", 1)
	s.publishTo("b", 2)
	c.expect("b: 1 changes to 4")
}

// TestSessionDeleted checks that a deleted set is reported, and that a session which follows every set
// follows it again when it is made again.
func TestSessionDeleted(t *testing.T) {
	s := newSite(t, settings{})
	s.publishTo("a", 3)
	s.publishTo("b", 3)
	named, every := s.dialSession(), s.dialSession()
	named.send(`{"follow":"a"}`)
	named.expect("start of a at 3")
	every.send(`{"follow":"*"}`)
	every.expect("start of a at 3")
	every.expect("start of b at 3")
	every.expect("followed *: 2")
	old := every.chains["a"].cursor
	ok(t, s.hub.Delete(t.Context(), "a"))
	named.expect("a: 404")
	every.expect("a: 404")
	s.publishTo("a", 1)
	every.expect("start of a at 0 diverged")
	every.expect("a: 1 changes to 1")
	named.send(`{"follow":"a","since":"start"}`)
	named.expect("start of a at 0")
	named.expect("a: 1 changes to 1")
	resumed := s.dialSession()
	resumed.send(`{"follow":"a","since":"%s"}`, old)
	resumed.expect("a: 404 from 0")
	resumed.send(`{"follow":"*","since":"now"}`)
	resumed.expect("start of a at 0 diverged")
	resumed.expect("start of b at 3")
}

// TestSessionErrors checks that an error concerns only one message or set.
func TestSessionErrors(t *testing.T) {
	s := newSite(t, settings{sets: []string{"a", "b"}})
	at := s.publishTo("a", 1)
	for range 3 {
		s.publishTo("a", 10)
	}
	if _, err := s.log.Trim(t.Context(), "a", changelog.Retention{Count: 1}); err != nil {
		t.Fatal(err)
	}
	c := s.dialSession()
	c.send(`{"follow":"b"}`)
	c.expect("start of b at 0")
	for _, tt := range []struct{ name, send, want, detail string }{
		{"no JSON", `follow`, ": 400", "JSON"},
		{"empty", ``, ": 400", "empty"},
		{"no object", `[]`, ": 400", ""},
		{"unknown member", `{"id":1,"follow":"a","sinse":"now"}`, "id 1: : 400", `since`},
		{"id of another type", `{"id":{},"follow":"a"}`, ": 400", "id"},
		{"long id", `{"id":"` + strings.Repeat("x", 200) + `","follow":"a"}`, ": 400", "id"},
		{"neither", `{"id":2}`, "id 2: : 400", "follow"},
		{"both", `{"follow":"a","unfollow":"b"}`, ": 400", "follow"},
		{"invalid name", `{"follow":"A b"}`, "A b: 400", "set name"},
		{"invalid since", `{"follow":"a","since":"yesterday"}`, "a: 400", "since"},
		{"future", `{"follow":"a","since":"2999-01-01"}`, "a: 400", "future"},
		{"invalid change", `{"follow":"a","change":"moved"}`, "a: 400", "change"},
		{"unfollow with since", `{"unfollow":"a","since":"now"}`, "a: 400", "unfollow"},
		{"baselines of every set", `{"follow":"*","since":"baseline"}`, "*: 400", "baseline"},
		{"cursor of every set", `{"follow":"*","since":"5-5"}`, "*: 400", "datetime"},
		{"future of every set", `{"follow":"*","since":"2999-01-01"}`, "*: 400", "future"},
		{"no such set", `{"id":3,"follow":"c"}`, "id 3: c: 404", "no such set"},
		{"gone", fmt.Sprintf(`{"follow":"a","since":"%v"}`, at), "a: 410 from 20", "baseline"},
		{"of a deleted set", `{"follow":"a","since":"5-5"}`, "a: 404 from 20", "since=start"},
		{"of another log", fmt.Sprintf(`{"follow":"a","since":"25-%d"}`, time.Now().UnixMicro()), "start of a at 25", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.TB = t
			c.send("%s", tt.send)
			m := c.expect(tt.want)
			if m.Error != nil && !strings.Contains(m.Error.Detail, tt.detail) {
				t.Errorf("got detail %q, want %q", m.Error.Detail, tt.detail)
			}
		})
	}
	c.TB = t
	c.expect("a: 11 changes to 31 diverged") // the cursor was checked when the log was read
	ok(t, c.ws.WriteMessage(websocket.BinaryMessage, []byte(`{"follow":"b"}`)))
	c.expect(": 400")
	s.publishTo("b", 1)
	c.expect("b: 1 changes to 1")
}
