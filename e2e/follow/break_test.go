package follow

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

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPublisherGoesAway breaks the connection in the middle of a publish.
func TestPublisherGoesAway(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	for _, test := range []struct {
		name, mediaType string
		body            []byte
		want            int // changes that the memory has afterwards
	}{
		{"json", "application/json", []byte(`{"changes":[{"loc":"https://example.org/1","change":"created"},{"loc":"https://example.org/2",`), 0},
		{"ndjson", "application/x-ndjson", hubtest.Changes("a", 900), 0},
		// What was accepted before stays: a batch is 1,000 lines.
		{"ndjson-batches", "application/x-ndjson", hubtest.Changes("a", 3500), 3000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", h.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
				test.name, h.Host, test.mediaType, len(test.body)+1000)
			if _, err := conn.Write(test.body); err != nil {
				t.Fatal(err)
			}
			if test.want > 0 {
				hubtest.Until(t, "the hub accepts the first batches", func() error {
					if at := hubtest.Head(t, h, test.name); !strings.HasPrefix(at, fmt.Sprint(test.want, "-")) {
						return fmt.Errorf("the set is at %q", at)
					}
					return nil
				})
			}
			_ = conn.Close()
			// The next publish finds what was there before it.
			r := hubtest.Publish(t, h, test.name, hubtest.Change("after"))
			if !strings.HasPrefix(r.First, fmt.Sprint(test.want+1, "-")) {
				t.Errorf("the next change is at %s, and %d were accepted", r.First, test.want)
			}
			f := hubtest.Follow(t, h, hubtest.ByPolling, test.name, "start")
			f.Has(t, test.want+1)
		})
	}
}

// TestFollowerStopsReading has followers that take no data any more. The hub
// gets rid of them, others notice nothing, and they go on where they were.
func TestFollowerStopsReading(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_WRITE_TIMEOUT=1s")
	const set = "stalled"
	others := []*hubtest.Follower{hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start"), hubtest.Follow(t, h, hubtest.ByEvents, set, "start")}
	stalled := &hubtest.Follower{Way: hubtest.ByWebSocket, Set: set, Hub: h, Cursor: "start"}
	conn, _, err := (&websocket.Dialer{NetDialContext: smallBuffers, ReadBufferSize: 4096}).Dial("ws"+strings.TrimPrefix(stalled.URL(), "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := smallBuffers(t.Context(), "tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	fmt.Fprintf(stream, "GET /sets/%s/changes?since=start HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", set, h.Host)
	for _, f := range others {
		f.Begins(t)
	}

	note := strings.Repeat("x", 1000)
	const n = 60 // of 500 changes, more than all buffers between hold
	for i := range n {
		var lines bytes.Buffer
		for j := range 500 {
			fmt.Fprintf(&lines, `{"loc":"https://example.org/%d/%d","change":"updated","{https://example.org/}note":"%s"}`+"\n", i, j, note)
		}
		hubtest.Publish(t, h, set, lines.Bytes())
		for _, f := range others { // at once, whatever the others do
			f.Has(t, (i+1)*500)
		}
	}
	// The hub closes what does not read. Then it has to be gone from its files,
	// which the test sees as a connection that ends.
	all := hubtest.Memory(t, h, set)
	hubtest.Until(t, "the hub gives up who does not read", func() error {
		if n := hubtest.OpenConnections(t, h); n > len(others) {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	_ = conn.SetReadDeadline(time.Now().Add(hubtest.Patience))
	err = stalled.ReadMessages(conn)
	t.Logf("who did not read got %d entries, and: %v", stalled.Count(), err)
	if c := stalled.Count(); c == 0 || c >= len(all) {
		t.Errorf("who did not read got %d of %d entries", c, len(all))
	}
	stalled.Run(t)
	hubtest.Same(t, "who did not read", stalled.Has(t, len(all)), all)
	for _, f := range others {
		hubtest.Same(t, "the "+f.Way, f.Seen(), all)
		if len(f.Ends) > 0 {
			t.Errorf("the %s was disturbed: %q", f.Way, f.Ends)
		}
	}
}

// TestQuietFollower has nothing to tell its followers for longer than a write
// may take. A deadline that stayed behind from the last write would end them.
func TestQuietFollower(t *testing.T) {
	t.Parallel()
	const writeTimeout = 100 * time.Millisecond
	h := hubtest.StartHub(t, "RSHUB_WRITE_TIMEOUT="+writeTimeout.String())
	for _, backlog := range []int{0, 3} { // whether there is something to catch up with
		set := fmt.Sprint("quiet", backlog)
		if backlog > 0 {
			hubtest.Publish(t, h, set, hubtest.Changes("before", backlog))
		}
		var followers []*hubtest.Follower
		for _, way := range hubtest.AllWays {
			f := hubtest.Follow(t, h, way, set, "start")
			f.Begins(t)
			f.Has(t, backlog)
			followers = append(followers, f)
		}
		for i := range 2 {
			begun := time.Now()
			hubtest.Until(t, "it has been quiet for long", func() error {
				if quiet := time.Since(begun); quiet < 3*writeTimeout {
					return fmt.Errorf("only for %v", quiet)
				}
				return nil
			})
			hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint("after", i)))
			for _, f := range followers {
				f.Has(t, backlog+i+1)
			}
		}
		for _, f := range followers {
			f.Mu.Lock()
			if len(f.Ends) > 0 {
				t.Errorf("the %s of %s was disturbed: %q", f.Way, set, f.Ends)
			}
			f.Mu.Unlock()
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
	h := hubtest.StartHub(t)
	const set = "busy"
	var followers []*hubtest.Follower
	for i := range 12 {
		followers = append(followers, hubtest.Follow(t, h, hubtest.AllWays[i%3], set, "start"))
	}
	var publishers []*hubtest.Publisher
	for i := range 8 {
		publishers = append(publishers, hubtest.Publishing(t, h, set, fmt.Sprint("p", i), i%2 == 0))
	}
	followers[0].Has(t, 3000)
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.Memory(t, h, set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	for _, f := range followers {
		hubtest.Same(t, "the "+f.Way, f.Has(t, len(all)), all)
	}
	filtered := &hubtest.Follower{Way: hubtest.ByWebSocket, Set: set, Hub: h, Cursor: "start", Query: "&prefix=https://direct.example.org/p3/"}
	filtered.Run(t)
	want := 0
	for _, e := range all {
		if strings.Contains(e.Text, "org/p3/") {
			want++
		}
	}
	if got := len(filtered.Has(t, want)); got != want {
		t.Errorf("%d entries pass the filter, not %d", got, want)
	}
}

// TestLatest looks at what the topic itself answers.
func TestLatest(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	r := hubtest.Publish(t, h, "latest", hubtest.Changes("a", 3))
	doc := hubtest.Document(t, h.Topic("latest"))
	if doc.Cursor != r.Cursor || len(doc.Entries) != 3 {
		t.Errorf("the latest notification has %d changes up to %s, not 3 up to %s", len(doc.Entries), doc.Cursor, r.Cursor)
	}
	a := hubtest.Must(t, http.StatusOK, http.MethodHead, h.Topic("latest"), nil)
	if link := a.Header.Get("Link"); link != fmt.Sprintf(`<%s>; rel="self", <%s/hub>; rel="hub", <%s/sets/latest/capabilitylist.xml>; rel="resourcesync"`, h.Topic("latest"), h.URL, h.URL) {
		t.Errorf("Link: %s", link)
	}
	hubtest.Must(t, http.StatusNotModified, http.MethodGet, h.Topic("latest"), nil, "If-None-Match: "+a.Header.Get("ETag"), "Accept-Encoding: identity")
}
