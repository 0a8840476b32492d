package subscribe_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// codings are the headers with which a client asks for a coding, by its name.
var codings = map[string][]string{
	"":     {"Accept-Encoding", "gzip"},
	"zstd": {"Accept-Encoding", "zstd"},
	"dcz":  {"Accept-Encoding", "gzip;q=0.1, zstd;q=0.5, dcz", "Available-Dictionary", compressed.Available()},
}

// mixed publishes changes that fill messages of all sizes, and returns the cursor behind
// them.
func (s *site) mixed() feed.Cursor {
	s.publish(1)
	s.publishLarge(200_000)
	s.publish(100)
	s.publishChanges(change("b/1", resourcesync.Created, "text/html"), change("c", resourcesync.Deleted, ""))
	for i := range 20 {
		s.publishChanges(change(fmt.Sprint("b/", i), resourcesync.Updated, ""))
	}
	return s.publishChanges(change("b/end", resourcesync.Deleted, ""))
}

// before publishes what streams begin with that are to have the same bytes, and returns the
// cursor behind it. With and without a filter, something comes of it: so a test knows that
// the stream is where the next change comes to it by itself.
func (s *site) before() feed.Cursor {
	s.publish(3)
	return s.publishChanges(change("b/begin", resourcesync.Deleted, ""))
}

// entries returns the entries of messages as text. How many messages they come in depends
// on how far the memory was when it was read.
func entries(messages [][]byte) (all string) {
	for _, m := range messages {
		_, rest, _ := strings.Cut(string(m), `"changes":[`)
		all += strings.TrimSuffix(rest, "]}") + "\n"
	}
	return strings.ReplaceAll(strings.Trim(all, "\n"), "},{\"position\"", "}\n{\"position\"")
}

// A compressed message unpacks to the bytes of the plain one, whether it is new or old, and
// with a filter.
func TestCompressedMessages(t *testing.T) {
	s := newSite(t, settings{})
	s.mixed()
	for _, query := range []string{"", "?since=start", "?prefix=https://example.org/b", "?since=start&prefix=https://example.org/b"} {
		read := func(protocol string) func(to feed.Cursor) [][]byte {
			c := s.dial(query, dialer{protocol: protocol})
			next := func() []byte {
				kind, b, err := c.ws.ReadMessage()
				if err != nil {
					t.Fatal(err)
				}
				if protocol != "rs.json" {
					if b, err = compressed.Open(nil, b); err != nil || kind != websocket.BinaryMessage {
						t.Fatalf("a message of kind %d: %v", kind, err)
					}
				}
				return b
			}
			all := [][]byte{next()} // it says where the follower begins, which more changes must not move
			return func(to feed.Cursor) [][]byte {
				for !bytes.Contains(all[len(all)-1], []byte(`"cursor":"`+to.String())) {
					all = append(all, next())
				}
				return all
			}
		}
		plain, long, short := read("rs.json"), read(compressed.JSON.Name), read(compressed.ShortJSON().Name)
		end := s.mixed()
		want := plain(end)
		for i, read := range []func(feed.Cursor) [][]byte{long, short} {
			got := read(end)
			if live := !strings.Contains(query, "start"); live && !bytes.Equal(bytes.Join(got, []byte("\n")), bytes.Join(want, []byte("\n"))) {
				t.Errorf("%s: format %d has %d messages, and not the %d plain ones", query, i, len(got), len(want))
			}
			if entries(got) != entries(want) {
				t.Errorf("%s: format %d has other entries", query, i)
			}
		}
	}
}

// A batch is compressed once for all who follow, and not at all while nobody asks for it.
func TestCompressedOnce(t *testing.T) {
	var packed atomic.Int64
	counted := &feed.Format{Name: "test.packed", Append: feed.JSON.Append, Pack: func(dst, text []byte) []byte {
		packed.Add(1)
		return compressed.Append(dst, text)
	}}
	s := newSite(t, settings{Options: subscribe.Options{Messages: append(feed.Messages(), counted)}})
	usual := s.dial("", dialer{protocol: "rs.json"})
	usual.next()
	end := s.publish(3)
	usual.readTo(end)
	if n := packed.Load(); n != 0 {
		t.Fatalf("%d messages were compressed for nobody", n)
	}
	var clients []*client
	for range 20 {
		c := s.dial("", dialer{protocol: counted.Name})
		if _, _, err := c.ws.ReadMessage(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	before := packed.Load()
	for range 5 {
		end = s.publish(3)
		usual.readTo(end)
		for _, c := range clients {
			if _, b, err := c.ws.ReadMessage(); err != nil {
				t.Fatal(err)
			} else if text, err := compressed.Open(nil, b); err != nil || !bytes.Contains(text, []byte(end.String())) {
				t.Fatalf("%.200s, %v", text, err)
			}
		}
	}
	if n := packed.Load() - before; n != 5 {
		t.Errorf("5 messages were compressed %d times for %d clients", n, len(clients))
	}
}

// The bytes that are counted are those that a client gets.
func TestCompressedBytes(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	c := s.dial("", dialer{protocol: compressed.JSON.Name})
	c.next()
	c.readTo(s.publish(100))
	if plain := 100 * 100; c.bytes == 0 || c.bytes > plain/3 {
		t.Errorf("a message of 100 changes took %d bytes", c.bytes)
	}
}

// What a client prefers is what it gets.
func TestSubprotocolOrder(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	short := compressed.ShortJSON().Name
	for _, test := range []struct {
		asked []string
		want  string
	}{
		{nil, ""}, {[]string{"rs.json"}, "rs.json"}, {[]string{"rs.xml", "rs.json"}, "rs.xml"}, {[]string{short, "rs.json"}, short},
		{[]string{"rs.json+zstd.00000000", "rs.json+zstd", "rs.json"}, "rs.json+zstd"}, {[]string{"rs.json+zstd.00000000", "rs.json"}, "rs.json"},
	} {
		d := websocket.Dialer{HandshakeTimeout: patience, Subprotocols: test.asked}
		ws, resp, err := d.Dial("ws"+strings.TrimPrefix(s.url(""), "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if got := resp.Header.Values("Sec-Websocket-Protocol"); ws.Subprotocol() != test.want || len(got) > 1 || test.want == "" && len(got) > 0 {
			t.Errorf("%q: got %q", test.asked, got)
		}
	}
}

// A compressed event stream unpacks to the bytes of the plain one, whether it was taken
// over or not.
func TestCompressedStreams(t *testing.T) {
	for _, query := range []string{"?since=start", "", "?prefix=https://example.org/b&since=start"} {
		s := newSite(t, settings{})
		begin := s.before()
		got := map[string]*recording{}
		for coding, header := range codings {
			for _, keep := range []string{"", "1"} {
				events := s.stream(query, append([]string{keepHeader, keep}, header...)...)
				if h := events.resp.Header; h.Get("Content-Encoding") != coding || !strings.Contains(strings.Join(h.Values("Vary"), ", "), "Accept-Encoding, Available-Dictionary") {
					t.Errorf("%s: %v", coding, h)
				}
				got[coding+keep] = events.record()
				got[coding+keep].wait(begin)
			}
		}
		end := s.mixed()
		for _, r := range got {
			r.wait(end)
		}
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		plain, _ := got[""].all()
		for name, r := range got {
			body, err := r.all()
			if err != nil {
				t.Errorf("%s, %s: the stream does not end properly: %v", query, name, err)
			}
			if !bytes.Equal(body, plain) {
				t.Errorf("%s: %s:\n%.2000s\nplain:\n%.2000s", query, name, body, plain)
			}
		}
	}
}

// A compressed event can be read before the next one comes.
func TestCompressedEventsComeAtOnce(t *testing.T) {
	for coding, header := range codings {
		for _, keep := range []string{"", "1"} {
			s := newSite(t, settings{})
			events := s.stream("", append([]string{keepHeader, keep}, header...)...)
			events.next()
			for range 3 {
				if end, m := s.publish(2), (message{}); true {
					if _, m = events.next(); m.Cursor != end.String() {
						t.Errorf("%s: %s came, not %v", coding, m.Cursor, end)
					}
				}
			}
		}
	}
}

// Who names gzip besides zstd gets an event stream as it is: clients that name all they know
// may read only its first frame. A page is one frame, and so is compressed for them.
func TestCodings(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	own := compressed.Available()
	link := fmt.Sprintf("<%s/dictionaries/%s>; rel=\"compression-dictionary\"", s.http.URL, compressed.Name())
	for _, test := range []struct{ accept, dictionary, page, stream string }{
		{"identity", "", "", ""}, {"gzip", "", "", ""}, {"*", "", "", ""}, {"zstd", "", "zstd", "zstd"}, {"zstd;q=0", "", "", ""},
		{"gzip, deflate, br, zstd", "", "zstd", ""}, {"gzip, deflate, br, zstd, dcb, dcz", own, "dcz", ""}, {"gzip;q=0.5, zstd", "", "zstd", "zstd"},
		{"identity, zstd;q=0.5", "", "", ""}, {"dcz, zstd", own, "dcz", "dcz"}, {"dcz, zstd", "", "zstd", "zstd"}, {"dcz", "", "", ""},
		{"dcz", ":" + strings.Repeat("A", 43) + "=:", "", ""}, {"zstd", own, "zstd", "zstd"}, {"dcz;q=0.5, zstd", own, "zstd", "zstd"},
	} {
		for _, accept := range []string{"application/json", "application/x-ndjson", "text/event-stream"} {
			resp, _ := s.do(http.MethodHead, s.url("?since=start"), "Accept", accept, "Accept-Encoding", test.accept, "Available-Dictionary", test.dictionary)
			want := test.page
			if accept == "text/event-stream" {
				want = test.stream
			}
			told := strings.Contains(strings.Join(resp.Header.Values("Link"), ", "), link)
			if got := resp.Header.Get("Content-Encoding"); got != want || told != (strings.Contains(test.accept, "dcz") && want != "dcz") {
				t.Errorf("%s for %s, %s: %q, %v", accept, test.accept, test.dictionary, got, resp.Header)
			}
		}
	}
	resp, body := s.get("?since=nonsense", "Accept-Encoding", "zstd")
	if s.problem(resp, body, 400, "since"); resp.Header.Get("Content-Encoding") != "" {
		t.Error("a problem is not compressed")
	}
}

// A compressed page unpacks to the bytes of the plain one, and has its own length.
func TestCompressedPages(t *testing.T) {
	s := newSite(t, settings{})
	s.mixed()
	for range 3 {
		s.publish(1_000)
	}
	for _, query := range []string{"?since=start&limit=1", "?since=start", "?since=start&limit=10000", "?since=now", "?since=start&prefix=https://example.org/b", "?since=start&wait=1s"} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			_, want := s.get(query, "Accept", accept)
			for coding, header := range codings {
				resp, got := s.get(query, append([]string{"Accept", accept}, header...)...)
				if resp.Header.Get("Content-Encoding") != coding || !bytes.Equal(got, want) {
					t.Errorf("%s of %s in %q: %d bytes and not %d, %v", query, accept, coding, len(got), len(want), resp.Header)
				}
				if resp.ContentLength < 0 || len(want) > 10_000 && coding != "" && resp.ContentLength > int64(len(want)/3) {
					t.Errorf("%s in %q: %d bytes of %d", query, coding, resp.ContentLength, len(want))
				}
				head, _ := s.do(http.MethodHead, s.url(query), append([]string{"Accept", accept}, header...)...)
				if head.ContentLength != resp.ContentLength {
					t.Errorf("%s in %q: HEAD says %d bytes, GET %d", query, coding, head.ContentLength, resp.ContentLength)
				}
			}
		}
	}
}
