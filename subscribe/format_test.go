package subscribe_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/subscribe"
)

// TestThirdFormat checks that an additional format is available over WebSocket and as pages.
func TestThirdFormat(t *testing.T) {
	var mu sync.Mutex
	made := map[*feed.Batch]int{}
	parts := &feed.PageWriter{
		Head: func(dst []byte, b *feed.Batch, _ string) []byte { return fmt.Appendf(dst, "# %v", b.Cursor) },
		Entry: func(dst []byte, _ string, e *feed.Entry, _ bool) []byte {
			return append(append(dst, '\n'), e.Change.Loc...)
		},
		Tail: func(dst []byte) []byte { return dst },
	}
	locs := &feed.Format{Name: "test.locs", MediaType: "text/uri-list", Page: parts, Append: func(dst []byte, b *feed.Batch, next string) []byte {
		mu.Lock()
		made[b]++
		mu.Unlock()
		dst = parts.Head(dst, b, next)
		for i := range b.Entries {
			dst = parts.Entry(dst, b.Set, &b.Entries[i], i == 0)
		}
		return dst
	}}
	s := newSite(t, settings{Options: subscribe.Options{Messages: append(feed.MessageFormats(), locs), Pages: append(feed.PageFormats(), locs)}})
	start := s.publish(1)
	usual := s.dial("", dialer{protocol: "rs.json"})
	var clients []*websocket.Conn
	for range 3 {
		c, resp, err := s.tryDial("", dialer{protocol: "test.unknown, " + locs.Name})
		ok(t, err)
		if p := resp.Header.Values("Sec-WebSocket-Protocol"); len(p) != 1 || p[0] != locs.Name {
			t.Errorf("subprotocol = %q, want %q", p, locs.Name)
		}
		clients = append(clients, c.ws)
	}
	expect := func(want string) {
		t.Helper()
		for i, ws := range clients {
			if _, b, err := ws.ReadMessage(); err != nil || string(b) != want {
				t.Fatalf("client %d: got %q, %v, want %q", i, b, err, want)
			}
		}
	}
	expect(fmt.Sprintf("# %v", start))
	end := s.publish(2)
	body := fmt.Sprintf("# %v\nhttps://example.org/0\nhttps://example.org/1", end)
	expect(body)
	usual.readTo(end)
	mu.Lock()
	for b, n := range made {
		if n != 1 {
			t.Errorf("batch up to %v: encoded %d times, want once", b.Cursor, n)
		}
	}
	mu.Unlock()

	resp, page := s.get("?since="+start.String(), "Accept", locs.MediaType)
	if resp.Header.Get("Content-Type") != locs.MediaType || string(page) != body {
		t.Errorf("got a page of type %s: %q, want %q", resp.Header.Get("Content-Type"), page, body)
	}
	r, err := http.NewRequest(http.MethodGet, s.url(""), nil)
	ok(t, err)
	r.Header.Set("Accept", locs.MediaType)
	if !s.server.Wants(r) || subscribe.New(nil, nil, subscribe.Options{}).Wants(r) {
		t.Errorf("Wants with Accept %s: want true with the format, and false without", locs.MediaType)
	}
}

// TestSeveralFormats checks that the subprotocol in the handshake is the format of the messages, in
// whatever order the client offers several.
func TestSeveralFormats(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	for _, asked := range []string{"rs.xml, rs.json", "rs.json, rs.xml"} {
		c, resp, err := s.tryDial("", dialer{protocol: asked})
		ok(t, err)
		_, b, err := c.ws.ReadMessage()
		ok(t, err)
		want := map[byte]string{'{': "rs.json", '<': "rs.xml"}[b[0]]
		if p := resp.Header.Get("Sec-WebSocket-Protocol"); p != want {
			t.Errorf("offer %q: got subprotocol %q, want the %s of the messages", asked, p, want)
		}
	}
}

func TestWants(t *testing.T) {
	s := subscribe.New(nil, nil, subscribe.Options{})
	for _, test := range []struct {
		query, accept string
		want          bool
	}{
		{"", "", false}, {"", "*/*", false}, {"", "application/xml", false}, {"?prefix=x", "", true}, {"?x=since", "", false},
		{"?since=now", "", true}, {"?wait=1s", "", true}, {"", "application/json", true}, {"", "text/event-stream", true},
		{"", "application/x-ndjson", true}, {"", "application/json;q=0", false}, {"", "application/json;q=0.0, text/html", false},
		{"", "application/json, application/xml;q=0.9", true}, {"", "application/json;q=0.9, application/xml", false}, {"", "application/json, */*", true},
		{"", "text/event-stream;q=0.5, application/xml;q=0.6", false}, {"", "text/event-stream;q=0.6, application/xml;q=0.5", true}, {"", "application/xml;q=0", true},
		{"", "application/json;q=0.5", true}, {"", "text/*", false}, {"", "APPLICATION/JSON", true}, {"", "application/json;;", false},
	} {
		r, err := http.NewRequest(http.MethodGet, "/sets/a/changes"+test.query, nil)
		ok(t, err)
		r.Header.Set("Accept", test.accept)
		if got := s.Wants(r); got != test.want {
			t.Errorf("Wants(%s, Accept: %s) = %v, want %v", test.query, test.accept, got, test.want)
		}
	}
}

// TestAccept checks that Accept selects the format, and that an error lists the formats if it refuses
// all.
func TestAccept(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	for _, test := range []struct{ accept, want string }{
		{"", "application/json"}, {"*/*", "application/json"}, {"text/*", "application/json"},
		{"application/xml", "application/json"}, // a notification is not a page
		{"application/json;q=0.5, application/x-ndjson", "application/x-ndjson"},
		{"application/x-ndjson, */*", "application/x-ndjson"},
		{"application/json;q=0", "application/x-ndjson"},
		{"text/event-stream", "text/event-stream"},
		{"text/event-stream, */*", "text/event-stream"},
		{"application/json, text/event-stream", "text/event-stream"},
		{"application/json, text/event-stream;q=0.9", "application/json"},
		{"text/event-stream;q=0", "application/json"},
	} {
		resp, _ := s.do(http.MethodHead, s.url("?since=start"), "Accept", test.accept)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != test.want || resp.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %s: got %d %s, want %s", test.accept, resp.StatusCode, got, test.want)
		}
	}
	s.refused(s.url("?since=start"), 406, "application/json, application/x-ndjson, and text/event-stream", "Accept", "*/*;q=0")
}

// TestSingleFormat checks that a format of single entries has a message or event for each entry.
func TestSingleFormat(t *testing.T) {
	one := &feed.Format{Name: "test.one", MediaType: "text/x-one", Single: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		for _, e := range b.Entries {
			return append(dst, e.Change.Loc...)
		}
		return fmt.Appendf(dst, "at %v", b.Cursor)
	}}
	s := newSite(t, settings{Options: subscribe.Options{Messages: append(feed.MessageFormats(), one)}})
	start := s.publish(1)
	expect := func(ws *websocket.Conn, want ...string) {
		t.Helper()
		for _, want := range want {
			if kind, b, err := ws.ReadMessage(); err != nil || kind != websocket.TextMessage || string(b) != want {
				t.Fatalf("got %q, %v, want %q", b, err, want)
			}
		}
	}
	live := s.dial("", dialer{protocol: one.Name}).ws
	expect(live, fmt.Sprintf("at %v", start))
	events := s.stream("", "Accept", "text/event-stream, "+one.MediaType)
	event := func(id feed.Cursor, data string) {
		t.Helper()
		for {
			e, err := events.event()
			ok(t, err)
			if e.comment {
				continue
			}
			if e.id != id.String() || e.data != data {
				t.Fatalf("got event %+v, want %q at %v", e, data, id)
			}
			return
		}
	}
	event(start, fmt.Sprintf("at %v", start))
	end := s.publish(3)
	first := feed.Cursor{Position: end.Position - 2, Micros: end.Micros - 2}
	locs := []string{"https://example.org/0", "https://example.org/1", "https://example.org/2"}
	expect(live, locs...)
	event(first, locs[0])
	event(feed.Cursor{Position: end.Position - 1, Micros: end.Micros - 1}, locs[1])
	event(end, locs[2])

	// A client can resume from each entry, even within a batch.
	late := s.dial("?since="+first.String(), dialer{protocol: one.Name})
	expect(late.ws, append([]string{fmt.Sprintf("at %v", first)}, locs[1:]...)...)
	if _, _, err := s.tryDial("?since=baseline", dialer{protocol: one.Name}); err == nil {
		t.Error("baseline in a format without baselines: got no error, want one")
	}
}
