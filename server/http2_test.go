package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/metricstest"
	"github.com/rshub/rshub/internal/untiltest"
)

// A proxy speaks HTTP/2 without TLS to a hub.
type proxy struct {
	*http.Client

	mu    sync.Mutex
	conns []*heldConn // all that it has opened
}

// newProxy returns a proxy that takes window bytes of an answer ahead of who reads it.
func newProxy(t *testing.T, window int) *proxy {
	p := &proxy{}
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerStream: window},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			held := &heldConn{Conn: conn, held: make(chan struct{}), closed: make(chan struct{})}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conns = append(p.conns, held)
			return held, nil
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	p.Client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.conns {
			c.Close()
		}
	})
	return p
}

// dialed returns how many connections the proxy has opened.
func (p *proxy) dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// A heldConn reads nothing any more once held is closed.
type heldConn struct {
	net.Conn
	held, closed chan struct{}
	close        sync.Once
}

func (c *heldConn) Read(p []byte) (int, error) {
	select {
	case <-c.held:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(p)
	}
}

func (c *heldConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// do makes a request. The body of the answer is still to be read.
func (p *proxy) do(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := p.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.ProtoMajor != 2 {
		t.Errorf("%s %s is answered over %s", method, url, resp.Proto)
	}
	return resp
}

// text makes a request and returns the body of the answer.
func (p *proxy) text(t *testing.T, status int, method, url, body string, headers ...string) string {
	t.Helper()
	resp := p.do(t, method, url, strings.NewReader(body), headers...)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %d %.200s, %v", method, url, resp.StatusCode, text, err)
	}
	return string(text)
}

// publish publishes a change, and others with about size bytes together.
func (p *proxy) publish(t *testing.T, topic, loc string, size int) {
	t.Helper()
	body := `{"loc":"` + loc + `","change":"updated"}` + "\n" + strings.Repeat(`{"loc":"https://example.org/`+strings.Repeat("x", 1000)+`","change":"updated"}`+"\n", size/1000)
	p.text(t, 200, "POST", topic, body, "Content-Type", "application/x-ndjson")
}

// An eventStream is one that is read all the time.
type eventStream struct {
	lines chan string // closed at the end
	err   error       // how it ended; only after lines is closed
}

// follow begins an event stream and reads it until it ends.
func (p *proxy) follow(t *testing.T, topic string) *eventStream {
	t.Helper()
	resp := p.do(t, "GET", topic, nil, "Accept", "text/event-stream")
	s := &eventStream{lines: make(chan string, 10_000)}
	go func() {
		defer close(s.lines)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			s.lines <- lines.Text()
		}
		s.err = lines.Err()
	}()
	s.expect(t, `"changes":[]`)
	return s
}

// expect waits for a line with a text.
func (s *eventStream) expect(t *testing.T, text string) {
	t.Helper()
	for line := range s.lines {
		if strings.Contains(line, text) {
			return
		}
	}
	t.Fatalf("there is no line with %s: %v", text, s.err)
}

// value returns the value of one of the hub's metrics.
func (h *started) value(t *testing.T, name string) float64 {
	t.Helper()
	return metricstest.Values(t, h.server.metrics)[name]
}

// Everything but WebSockets works over HTTP/2, on one connection.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), Heartbeat: 2500 * time.Millisecond, WriteTimeout: 2 * time.Second}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	events := p.follow(t, topic)
	polled := make(chan *http.Response, 1)
	go func() { polled <- p.do(t, "GET", topic+"?since=now&wait=1m", nil) }()
	untiltest.Done(t, "the poll waits", func() bool { return h.value(t, `rshub_followers{kind="longpoll"}`) == 1 })
	p.publish(t, topic, "https://example.org/one", 0)
	events.expect(t, "https://example.org/one")
	if page, err := io.ReadAll((<-polled).Body); err != nil || !strings.Contains(string(page), "https://example.org/one") {
		t.Errorf("the poll got %s, %v", page, err)
	}

	// A stream of changes while it is written, and large answers.
	reader, writer := io.Pipe()
	go func() {
		for i := range 2500 {
			fmt.Fprintf(writer, `{"loc":"https://example.org/line/%d","change":"created"}`+"\n", i)
		}
		writer.Close()
	}()
	streamed := p.do(t, "POST", topic, reader, "Content-Type", "application/x-ndjson")
	if text, err := io.ReadAll(streamed.Body); err != nil || streamed.StatusCode != 200 || !strings.Contains(string(text), `"count":2500`) {
		t.Errorf("the stream is answered %d %s, %v", streamed.StatusCode, text, err)
	}
	events.expect(t, "https://example.org/line/2499")
	if page := p.text(t, 200, "GET", topic+"?since=start&limit=10000", ""); strings.Count(page, `"position"`) != 2501 {
		t.Errorf("the page has %d entries", strings.Count(page, `"position"`))
	}
	if list := p.text(t, 200, "GET", h.URL+"/sets/demo/changelist.xml", ""); strings.Count(list, "<loc>") != 2501 {
		t.Errorf("the Change List has %d entries", strings.Count(list, "<loc>"))
	}
	if resp := p.do(t, "HEAD", topic, nil); resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/xml" {
		t.Errorf("HEAD: %v", resp)
	}

	// A stream may be silent for longer than a write may take.
	events.expect(t, ":")
	p.publish(t, topic, "https://example.org/late", 1<<20)
	events.expect(t, "https://example.org/late")
	if n := p.dialed(); n != 1 {
		t.Errorf("it took %d connections", n)
	}

	h.Stop()
	for range events.lines {
	}
	if events.err != nil {
		t.Errorf("a hub that stops ended the stream with %v", events.err)
	}
}

// A stream that is not read delays no other on the same connection, and is ended.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 3 * time.Second}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	slow, quick := p.do(t, "GET", topic, nil, "Accept", "text/event-stream"), p.follow(t, topic)
	for i := range 8 {
		loc := fmt.Sprint("https://example.org/large/", i)
		p.publish(t, topic, loc, 100_000)
		quick.expect(t, loc)
	}
	untiltest.Done(t, "the slow stream is ended", func() bool {
		return h.value(t, `rshub_followers_closed_total{kind="eventstream",reason="slow"}`) == 1
	})
	if _, err := io.Copy(io.Discard, slow.Body); err == nil {
		t.Error("the slow stream ended as if it were whole")
	}
	p.publish(t, topic, "https://example.org/last", 0)
	quick.expect(t, "https://example.org/last")
	if n := p.dialed(); n != 1 {
		t.Errorf("it took %d connections", n)
	}
}

// A connection that takes nothing at all is closed, with all that is on it.
func TestHTTP2Stalled(t *testing.T) {
	t.Parallel()
	const streams = 4
	h, stalled, other := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 2 * time.Second}), newProxy(t, 3<<20), newProxy(t, 3<<20)
	topic := h.URL + "/sets/demo/changes"
	for range streams {
		stalled.follow(t, topic)
	}
	close(stalled.conns[0].held)
	quick := other.follow(t, topic)
	for i := range 2 { // more than the sockets hold
		loc := fmt.Sprint("https://example.org/large/", i)
		other.publish(t, topic, loc, 1_000_000)
		quick.expect(t, loc)
	}
	untiltest.Done(t, "the connection is closed", func() bool { return h.value(t, `rshub_followers{kind="eventstream"}`) == 1 })
	other.publish(t, topic, "https://example.org/last", 0)
	quick.expect(t, "https://example.org/last")
}

// HTTP/2 has no upgrades, so a WebSocket needs HTTP/1.1. Who tries is told so.
func TestHTTP2WebSocket(t *testing.T) {
	h, p := start(t, Config{}), newProxy(t, 64<<10)
	text := p.text(t, 400, "GET", h.URL+"/sets/demo/changes", "", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version", "13")
	if !strings.Contains(text, "HTTP/1.1") {
		t.Errorf("a handshake is answered %s", text)
	}
}
