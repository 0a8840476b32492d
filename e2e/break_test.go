package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestPublisherGoesAway breaks the connection in the middle of a publish.
func TestPublisherGoesAway(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	for _, test := range []struct {
		name, mediaType string
		body            []byte
		want            int // changes that the memory has afterwards
	}{
		{"json", "application/json", []byte(`{"changes":[{"loc":"https://example.org/1","change":"created"},{"loc":"https://example.org/2",`), 0},
		{"ndjson", "application/x-ndjson", changes("a", 900), 0},
		// What was accepted before stays: a batch is 1,000 lines.
		{"ndjson-batches", "application/x-ndjson", changes("a", 3500), 3000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", h.host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
				test.name, h.host, test.mediaType, len(test.body)+1000)
			if _, err := conn.Write(test.body); err != nil {
				t.Fatal(err)
			}
			if test.want > 0 {
				until(t, "the hub accepts the first batches", func() error {
					if at := head(t, h, test.name); !strings.HasPrefix(at, fmt.Sprint(test.want, "-")) {
						return fmt.Errorf("the set is at %q", at)
					}
					return nil
				})
			}
			_ = conn.Close()
			// The next publish finds what was there before it.
			r := publish(t, h, test.name, change("after"))
			if !strings.HasPrefix(r.First, fmt.Sprint(test.want+1, "-")) {
				t.Errorf("the next change is at %s, and %d were accepted", r.First, test.want)
			}
			f := follow(t, h, byPolling, test.name, "start")
			f.has(t, test.want+1)
		})
	}
}

// TestFollowerStopsReading has followers that take no data any more. The hub
// gets rid of them, others notice nothing, and they go on where they were.
func TestFollowerStopsReading(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_WRITE_TIMEOUT=1s")
	const set = "stalled"
	others := []*follower{follow(t, h, byWebSocket, set, "start"), follow(t, h, byEvents, set, "start")}
	stalled := &follower{way: byWebSocket, set: set, hub: h, cursor: "start"}
	conn, _, err := (&websocket.Dialer{NetDialContext: smallBuffers, ReadBufferSize: 4096}).Dial("ws"+strings.TrimPrefix(stalled.url(), "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := smallBuffers(t.Context(), "tcp", h.host)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	fmt.Fprintf(stream, "GET /sets/%s/changes?since=start HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", set, h.host)
	for _, f := range others {
		f.begins(t)
	}

	note := strings.Repeat("x", 1000)
	const n = 60 // of 500 changes, more than all buffers between hold
	for i := range n {
		var lines bytes.Buffer
		for j := range 500 {
			fmt.Fprintf(&lines, `{"loc":"https://example.org/%d/%d","change":"updated","{https://example.org/}note":"%s"}`+"\n", i, j, note)
		}
		publish(t, h, set, lines.Bytes())
		for _, f := range others { // at once, whatever the others do
			f.has(t, (i+1)*500)
		}
	}
	// The hub closes what does not read. Then it has to be gone from its files,
	// which the test sees as a connection that ends.
	all := memory(t, h, set)
	until(t, "the hub gives up who does not read", func() error {
		if n := openConnections(t, h); n > len(others) {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	err = stalled.readMessages(conn)
	t.Logf("who did not read got %d entries, and: %v", stalled.count(), err)
	if c := stalled.count(); c == 0 || c >= len(all) {
		t.Errorf("who did not read got %d of %d entries", c, len(all))
	}
	stalled.run(t)
	same(t, "who did not read", stalled.has(t, len(all)), all)
	for _, f := range others {
		same(t, "the "+f.way, f.seen(), all)
		if len(f.ends) > 0 {
			t.Errorf("the %s was disturbed: %q", f.way, f.ends)
		}
	}
}

// TestQuietFollower has nothing to tell its followers for longer than a write
// may take. A deadline that stayed behind from the last write would end them.
func TestQuietFollower(t *testing.T) {
	t.Parallel()
	const writeTimeout = 100 * time.Millisecond
	h := startHub(t, "RSHUB_WRITE_TIMEOUT="+writeTimeout.String())
	for _, backlog := range []int{0, 3} { // whether there is something to catch up with
		set := fmt.Sprint("quiet", backlog)
		if backlog > 0 {
			publish(t, h, set, changes("before", backlog))
		}
		var followers []*follower
		for _, way := range allWays {
			f := follow(t, h, way, set, "start")
			f.begins(t)
			f.has(t, backlog)
			followers = append(followers, f)
		}
		for i := range 2 {
			begun := time.Now()
			until(t, "it has been quiet for long", func() error {
				if quiet := time.Since(begun); quiet < 3*writeTimeout {
					return fmt.Errorf("only for %v", quiet)
				}
				return nil
			})
			publish(t, h, set, change(fmt.Sprint("after", i)))
			for _, f := range followers {
				f.has(t, backlog+i+1)
			}
		}
		for _, f := range followers {
			f.mu.Lock()
			if len(f.ends) > 0 {
				t.Errorf("the %s of %s was disturbed: %q", f.way, set, f.ends)
			}
			f.mu.Unlock()
		}
	}
}

// smallBuffers dials with a small receive buffer, so that little is on the way.
func smallBuffers(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	return conn, err
}

// TestManyAtOnce has many publishers and followers of one set at a time.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	const set = "busy"
	var followers []*follower
	for i := range 12 {
		followers = append(followers, follow(t, h, allWays[i%3], set, "start"))
	}
	var publishers []*publisher
	for i := range 8 {
		publishers = append(publishers, publishing(t, h, set, fmt.Sprint("p", i), i%2 == 0))
	}
	followers[0].has(t, 3000)
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, h, set)
	for _, p := range publishers {
		p.check(t, all)
	}
	for _, f := range followers {
		same(t, "the "+f.way, f.has(t, len(all)), all)
	}
	filtered := &follower{way: byWebSocket, set: set, hub: h, cursor: "start", query: "&prefix=https://direct.example.org/p3/"}
	filtered.run(t)
	want := 0
	for _, e := range all {
		if strings.Contains(e.text, "org/p3/") {
			want++
		}
	}
	if got := len(filtered.has(t, want)); got != want {
		t.Errorf("%d entries pass the filter, not %d", got, want)
	}
}

// TestLatest looks at what the topic itself answers.
func TestLatest(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	r := publish(t, h, "latest", changes("a", 3))
	doc := document(t, h.topic("latest"))
	if doc.cursor != r.Cursor || len(doc.entries) != 3 {
		t.Errorf("the latest notification has %d changes up to %s, not 3 up to %s", len(doc.entries), doc.cursor, r.Cursor)
	}
	a := must(t, http.StatusOK, http.MethodHead, h.topic("latest"), nil)
	if link := a.header.Get("Link"); link != fmt.Sprintf(`<%s>; rel="self", <%s/hub>; rel="hub"`, h.topic("latest"), h.url) {
		t.Errorf("Link: %s", link)
	}
	must(t, http.StatusNotModified, http.MethodGet, h.topic("latest"), nil, "If-None-Match: "+a.header.Get("ETag"), "Accept-Encoding: identity")
}
