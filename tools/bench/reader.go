//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/zst"
)

// A reader receives and checks the messages of many subscribers, with a goroutine and a small
// buffer for each.
type reader struct {
	zstd   bool // request compressed messages from WebSockets
	handle func(s *subscriber, body []byte, at int64) (deliveries int)

	mu          sync.Mutex // guards the fields below
	moved       sync.Cond  // every subscriber has another delivery, or a connection was closed
	subscribers int64
	delivered   int64
	bytes       int64    // size of all messages as received
	latencies   []uint32 // µs
	disorder    int      // deliveries that did not follow the previous one
	closed      []error  // why the server closed connections
	conns       []io.Closer
	ended       bool // whether close was called

	readers sync.WaitGroup
}

// A subscriber is a receiving connection.
type subscriber struct {
	last [feeds]uint32 // number of the last message of each publisher
	told string        // in a catch-up, the cursor of the last message
}

func (b *bench) newReader() *reader {
	r := &reader{subscribers: 1}
	r.handle, r.moved.L = r.mark, &r.mu
	b.later(r.close)
	return r
}

// connect adds n subscribers to a URL path, by WebSocket or event stream. It makes several
// connections at a time.
func (r *reader) connect(addr, path string, events bool, n int) error {
	r.subscribers = int64(n)
	return inParallel(32, n, func(int) error {
		if events {
			return r.connectEvents("http://" + addr + path)
		}
		dialer := websocket.Dialer{}
		if r.zstd {
			dialer.Subprotocols = []string{"rs.json+zstd"}
		}
		c, _, err := dialer.Dial("ws://"+addr+path, nil)
		if err != nil {
			return err
		}
		r.addWebSocket(c)
		return nil
	})
}

// addWebSocket starts to read from a WebSocket.
func (r *reader) addWebSocket(c *websocket.Conn) {
	r.add(c, func(s *subscriber) error {
		var body bytes.Buffer
		for {
			kind, in, err := c.NextReader()
			if err != nil {
				return err
			}
			body.Reset()
			if _, err := body.ReadFrom(in); err != nil {
				return err
			}
			text := body.Bytes()
			if kind == websocket.BinaryMessage {
				decoded, err := zst.Decode(text)
				if err != nil {
					return err
				}
				text = []byte(decoded)
			}
			r.heard(s, text, body.Len())
		}
	})
}

// connectEvents adds an event stream in which each event has one line of data.
func (r *reader) connectEvents(url string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	r.add(resp.Body, func(s *subscriber) error {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if body, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				r.heard(s, body, len(body))
			}
		}
		return fmt.Errorf("end of the stream: %w", lines.Err())
	})
	return nil
}

// add starts to read from a subscriber.
func (r *reader) add(c io.Closer, read func(s *subscriber) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
	r.readers.Go(func() {
		err := read(&subscriber{})
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ended {
			r.closed = append(r.closed, err)
			r.moved.Broadcast()
		}
	})
}

// heard handles a message that was received as n bytes.
func (r *reader) heard(s *subscriber, body []byte, n int) {
	at := now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(n)
	before := r.delivered / r.subscribers
	r.delivered += int64(r.handle(s, body, at))
	if r.delivered/r.subscribers > before {
		r.moved.Broadcast()
	}
}

// mark handles a message with one mark per publish. Messages without marks are not counted: the
// first message only contains the starting cursor.
func (r *reader) mark(s *subscriber, body []byte, at int64) (deliveries int) {
	for {
		seq, sent, rest, ok := readMark(body)
		if !ok {
			return deliveries
		}
		body = rest
		last := &s.last[seq>>feedShift%feeds]
		if seq = seq << (32 - feedShift) >> (32 - feedShift); seq != *last+1 {
			r.disorder++
		}
		*last = seq
		r.latencies = append(r.latencies, uint32(max(0, at-sent)/1000))
		deliveries++
	}
}

var positionMember = []byte(`{"position":`)

// batch handles messages with changes. Each must start where the previous one ended, and have every
// position in between.
func (r *reader) batch(s *subscriber, body []byte) int {
	after, cursor := member(body, `"after":"`), member(body, `"cursor":"`)
	n := bytes.Count(body, positionMember)
	from, err1 := feed.ParseCursor(after)
	to, err2 := feed.ParseCursor(cursor)
	if err1 != nil || err2 != nil || s.told != "" && s.told != after || to.Position-from.Position != uint64(n) {
		r.disorder++
	}
	s.told = cursor
	return n
}

// member returns the string value of a member.
func member(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(name))
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(value)
}

// reset discards the measurements.
func (r *reader) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies, r.delivered = r.latencies[:0], 0
}

// stall is the maximum time to wait for deliveries.
const stall = time.Minute

// await returns nil when each subscriber has the given number of deliveries, and an error if no
// more arrive.
func (r *reader) await(ctx context.Context, each int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := each * r.subscribers
	if r.delivered >= want {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.moved.Broadcast()
	})()
	for r.delivered < want && len(r.closed) == 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("LOST: %d of %d deliveries did not arrive: %w", want-r.delivered, want, ctx.Err())
		}
		r.moved.Wait()
	}
	return r.wrong()
}

// check returns an error for deliveries out of order and closed connections.
func (r *reader) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong()
}

func (r *reader) wrong() error {
	switch {
	case r.disorder > 0:
		return fmt.Errorf("%d deliveries were lost, repeated or OUT OF ORDER", r.disorder)
	case len(r.closed) > 0:
		return fmt.Errorf("%d connections were CLOSED, the first with: %w", len(r.closed), r.closed[0])
	}
	return nil
}

// close closes the connections and waits for their goroutines.
func (r *reader) close() error {
	r.mu.Lock()
	r.ended = true
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.readers.Wait()
	return nil
}
