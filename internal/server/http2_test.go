package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/testutil"
)

// A proxy speaks HTTP/2 without TLS to a hub.
type proxy struct {
	*http.Client
	t *testing.T

	mu    sync.Mutex
	conns []*heldConn // all that it has opened
}

// newProxy returns a proxy that takes window bytes of an answer ahead of who reads it.
func newProxy(t *testing.T, window int) *proxy {
	p := &proxy{t: t}
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

// text makes a request that is answered with a status over HTTP/2, and returns the body.
func (p *proxy) text(status int, method, url, body string, headers ...string) string {
	p.t.Helper()
	resp, text := asked(p.t, p.Client, method, url, body, headers...)
	if resp.StatusCode != status || resp.ProtoMajor != 2 {
		p.t.Fatalf("%s %s: %d %.200s over %s", method, url, resp.StatusCode, text, resp.Proto)
	}
	return text
}

// publish publishes a change, and others with about size bytes together.
func (p *proxy) publish(topic, loc string, size int) {
	p.t.Helper()
	p.text(200, "POST", topic, `{"loc":"`+loc+`","change":"updated"}`+"\n"+changes(size/1000, 1000), asNDJSON...)
}

// only checks that the proxy has opened one connection.
func (p *proxy) only() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) != 1 {
		p.t.Errorf("it took %d connections", len(p.conns))
	}
}

// Everything but WebSockets works over HTTP/2, on one connection.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), Heartbeat: 2500 * time.Millisecond, WriteTimeout: 2 * time.Second}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	events := events(t, p.Client, topic)
	polled := h.polls(p.Client, "demo")
	p.publish(topic, "https://example.org/one", 0)
	events.gets("https://example.org/one")
	if page, err := io.ReadAll((<-polled).Body); err != nil || !strings.Contains(string(page), "https://example.org/one") {
		t.Errorf("the poll got %s, %v", page, err)
	}

	// A stream of changes while it is written, and large answers.
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, changes(2500, 0))
		writer.Close()
	}()
	streamed := ask(t, p.Client, "POST", topic, reader, asNDJSON...)
	if text, err := io.ReadAll(streamed.Body); err != nil || streamed.StatusCode != 200 || !strings.Contains(string(text), `"count":2500`) {
		t.Errorf("the stream is answered %d %s, %v", streamed.StatusCode, text, err)
	}
	events.gets("https://example.org/002499/")
	if page := p.text(200, "GET", topic+"?since=start&limit=10000", ""); strings.Count(page, `"position"`) != 2501 {
		t.Errorf("the page has %d entries", strings.Count(page, `"position"`))
	}
	if list := p.text(200, "GET", h.URL+"/sets/demo/changelist.xml", ""); strings.Count(list, "<loc>") != 2501 {
		t.Errorf("the Change List has %d entries", strings.Count(list, "<loc>"))
	}
	p.text(200, "HEAD", topic, "")

	// A stream may be silent for longer than a write may take.
	events.lives()
	p.publish(topic, "https://example.org/late", 1<<20)
	events.gets("https://example.org/late")
	p.only()

	// HTTP/2 has no upgrades, so a WebSocket needs HTTP/1.1. Who tries is told so.
	if text := p.text(400, "GET", topic, "", upgrade[4:]...); !strings.Contains(text, "HTTP/1.1") {
		t.Errorf("a handshake is answered %s", text)
	}
	h.Stop()
	events.ends()
}

// A stream that is not read delays no other on the same connection, and is ended.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 2 * time.Second, Heartbeat: 100 * time.Millisecond}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	slow, quick := ask(t, p.Client, "GET", topic, nil, "Accept", "text/event-stream"), events(t, p.Client, topic)
	for i := range 8 {
		loc := fmt.Sprint("https://example.org/large/", i)
		p.publish(topic, loc, 100_000)
		quick.gets(loc)
	}
	testutil.Until(t, "the slow stream is ended", func() bool {
		quick.lives() // a look for each sign of life
		return h.value(`rshub_followers_closed_total{kind="eventstream",reason="slow"}`) == 1
	})
	if _, err := io.Copy(io.Discard, slow.Body); err == nil {
		t.Error("the slow stream ended as if it were whole")
	}
	p.publish(topic, "https://example.org/last", 0)
	quick.gets("https://example.org/last")
	p.only()
}

// A connection that takes nothing at all is closed, with all that is on it.
func TestHTTP2Stalled(t *testing.T) {
	t.Parallel()
	const streams = 4
	h, stalled, other := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 2 * time.Second, Heartbeat: 100 * time.Millisecond}), newProxy(t, 3<<20), newProxy(t, 3<<20)
	topic := h.URL + "/sets/demo/changes"
	for range streams {
		events(t, stalled.Client, topic)
	}
	close(stalled.conns[0].held)
	quick := events(t, other.Client, topic)
	for i := range 2 { // more than the sockets hold
		loc := fmt.Sprint("https://example.org/large/", i)
		other.publish(topic, loc, 1_000_000)
		quick.gets(loc)
	}
	testutil.Until(t, "the connection is closed", func() bool {
		quick.lives()
		return h.value(`rshub_followers{kind="eventstream"}`) == 1
	})
	other.publish(topic, "https://example.org/last", 0)
	quick.gets("https://example.org/last")
}

// Types and flags of frames of HTTP/2 (RFC 9113 section 6).
const (
	dataFrame, headersFrame, resetFrame, settingsFrame = 0, 1, 3, 4

	endStream, endHeaders, ack = 1, 4, 1
)

func frame(b *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = append(head, flags)
	head = binary.BigEndian.AppendUint32(head, stream)
	b.Write(append(head, payload...))
}

// A client that has many requests under way on one connection, and takes no byte of the
// answers, does not have the hub keep the refusals for it. Others get theirs whole.
func TestRefusalsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	known, _ := tokens(t, "publish:* operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, AddressLimits: limits(t, "requests:20/h"), WriteTimeout: time.Minute})
	var b bytes.Buffer
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(&b, settingsFrame, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // a window of no byte
	for i := range maxStreams {
		block := []byte{0x82, 0x86, 0x84, 0x41, 9} // GET, http, /, :authority
		frame(&b, headersFrame, endStream|endHeaders, uint32(2*i+1), append(block, "localhost"...))
	}
	conn := testutil.Dial(t, "", strings.TrimPrefix(h.URL, "http://"), b.String())
	_ = conn.SetDeadline(time.Now().Add(40 * time.Second)) // less than WriteTimeout
	const held = 20 + maxRefusalBodies                     // those that are within the limit have their answers kept
	for ended := 0; ended < maxStreams-held; {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("%d of %d requests are over: %v", ended, maxStreams, err)
		}
		length := binary.BigEndian.Uint32(head[:4]) >> 8
		if _, err := io.CopyN(io.Discard, conn, int64(length)); err != nil {
			t.Fatal(err)
		}
		switch kind, flags := head[3], head[4]; {
		case kind == settingsFrame && flags&ack == 0:
			var b bytes.Buffer
			frame(&b, settingsFrame, ack, 0, nil)
			_, _ = conn.Write(b.Bytes())
		case kind == resetFrame, flags&endStream != 0 && (kind == headersFrame || kind == dataFrame):
			ended++
		}
	}
	p := newProxy(t, 1<<20)
	for range 2 * maxRefusals {
		if text := p.text(http.StatusTooManyRequests, http.MethodGet, h.URL+"/sets", ""); !strings.Contains(text, `"type"`) {
			t.Fatalf("a refusal is %q", text)
		}
	}
}
