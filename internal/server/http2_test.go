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

// A proxy is a client that uses HTTP/2 without TLS.
type proxy struct {
	*http.Client
	t *testing.T

	mu    sync.Mutex
	conns []*stallConn // opened connections
}

// newProxy returns a proxy with a receive window of the given size.
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
			held := &stallConn{Conn: conn, stalled: make(chan struct{}), closed: make(chan struct{})}
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

// A stallConn stops reading once stalled is closed.
type stallConn struct {
	net.Conn
	stalled, closed chan struct{}
	close           sync.Once
}

func (c *stallConn) Read(p []byte) (int, error) {
	select {
	case <-c.stalled:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(p)
	}
}

func (c *stallConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// wantStatus sends a request, checks the status and the protocol, and returns the body.
func (p *proxy) wantStatus(status int, method, url, body string, headers ...string) string {
	p.t.Helper()
	resp, text := doRequest(p.t, p.Client, method, url, body, headers...)
	if resp.StatusCode != status || resp.ProtoMajor != 2 {
		p.t.Fatalf("%s %s: got %d %.200s over %s, want %d over HTTP/2", method, url, resp.StatusCode, text, resp.Proto, status)
	}
	return text
}

// publish publishes a change, and further changes of about size bytes in total.
func (p *proxy) publish(topic, loc string, size int) {
	p.t.Helper()
	p.wantStatus(200, "POST", topic, `{"loc":"`+loc+`","change":"updated"}`+"\n"+changes(size/1000, 1000), asNDJSON...)
}

// wantOneConn checks that the proxy has opened one connection.
func (p *proxy) wantOneConn() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) != 1 {
		p.t.Errorf("got %d connections, want 1", len(p.conns))
	}
}

// Everything except WebSockets works over one HTTP/2 connection.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), Heartbeat: 2500 * time.Millisecond, WriteTimeout: 2 * time.Second}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	events := followEvents(t, p.Client, topic)
	polled := h.startPoll(p.Client, "demo")
	p.publish(topic, "https://example.org/one", 0)
	events.waitFor("https://example.org/one")
	if page, err := io.ReadAll((<-polled).Body); err != nil || !strings.Contains(string(page), "https://example.org/one") {
		t.Errorf("long poll: got %s, %v, want the change", page, err)
	}

	// A publish whose body is still being written, and large responses.
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, changes(2500, 0))
		writer.Close()
	}()
	streamed := sendRequest(t, p.Client, "POST", topic, reader, asNDJSON...)
	if text, err := io.ReadAll(streamed.Body); err != nil || streamed.StatusCode != 200 || !strings.Contains(string(text), `"count":2500`) {
		t.Errorf("publish: got %d %s, %v, want 2500 changes", streamed.StatusCode, text, err)
	}
	events.waitFor("https://example.org/002499/")
	if page := p.wantStatus(200, "GET", topic+"?since=start&limit=10000", ""); strings.Count(page, `"position"`) != 2501 {
		t.Errorf("page: got %d entries, want 2501", strings.Count(page, `"position"`))
	}
	if list := p.wantStatus(200, "GET", h.URL+"/sets/demo/changelist.xml", ""); strings.Count(list, "<loc>") != 2501 {
		t.Errorf("Change List: got %d entries, want 2501", strings.Count(list, "<loc>"))
	}
	p.wantStatus(200, "HEAD", topic, "")

	// A stream may be idle for longer than the write timeout.
	events.waitForHeartbeat()
	p.publish(topic, "https://example.org/late", 1<<20)
	events.waitFor("https://example.org/late")
	p.wantOneConn()

	// HTTP/2 has no upgrades, so a WebSocket requires HTTP/1.1, which the error says.
	if text := p.wantStatus(400, "GET", topic, "", upgrade[4:]...); !strings.Contains(text, "HTTP/1.1") {
		t.Errorf("WebSocket handshake: got %s, want HTTP/1.1 in the error", text)
	}
	h.Stop()
	events.waitForEnd()
}

// A stream that is not read does not delay others on the same connection, and is closed.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	h, p := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 2 * time.Second, Heartbeat: 100 * time.Millisecond}), newProxy(t, 64<<10)
	topic := h.URL + "/sets/demo/changes"
	slow, quick := sendRequest(t, p.Client, "GET", topic, nil, "Accept", "text/event-stream"), followEvents(t, p.Client, topic)
	for i := range 8 {
		loc := fmt.Sprint("https://example.org/large/", i)
		p.publish(topic, loc, 100_000)
		quick.waitFor(loc)
	}
	testutil.Until(t, "the slow stream is closed", func() bool {
		quick.waitForHeartbeat() // polls the metric once per heartbeat
		return h.metric(`rshub_followers_closed_total{kind="eventstream",reason="slow"}`) == 1
	})
	if _, err := io.Copy(io.Discard, slow.Body); err == nil {
		t.Error("slow stream: got no error at its end, want one")
	}
	p.publish(topic, "https://example.org/last", 0)
	quick.waitFor("https://example.org/last")
	p.wantOneConn()
}

// A connection that does not read at all is closed with all its streams.
func TestHTTP2Stalled(t *testing.T) {
	t.Parallel()
	const streams = 4
	h, stalled, other := start(t, Config{Metrics: prometheus.NewRegistry(), WriteTimeout: 2 * time.Second, Heartbeat: 100 * time.Millisecond}), newProxy(t, 3<<20), newProxy(t, 3<<20)
	topic := h.URL + "/sets/demo/changes"
	for range streams {
		followEvents(t, stalled.Client, topic)
	}
	close(stalled.conns[0].stalled)
	quick := followEvents(t, other.Client, topic)
	for i := range 2 { // more than the socket buffers hold
		loc := fmt.Sprint("https://example.org/large/", i)
		other.publish(topic, loc, 1_000_000)
		quick.waitFor(loc)
	}
	testutil.Until(t, "the connection is closed", func() bool {
		quick.waitForHeartbeat()
		return h.metric(`rshub_followers{kind="eventstream"}`) == 1
	})
	other.publish(topic, "https://example.org/last", 0)
	quick.waitFor("https://example.org/last")
}

// Types and flags of HTTP/2 frames (RFC 9113 section 6).
const (
	dataFrame, headersFrame, resetFrame, settingsFrame = 0, 1, 3, 4

	endStream, endHeaders, ack = 1, 4, 1
)

func writeFrame(b *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = append(head, flags)
	head = binary.BigEndian.AppendUint32(head, stream)
	b.Write(append(head, payload...))
}

// The hub does not hold refusals in memory for a client with many requests on one connection that reads
// no response. Other clients receive theirs with a body.
func TestUnreadRefusals(t *testing.T) {
	t.Parallel()
	known, _ := tokens(t, "publish:* operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, AddressLimits: limits(t, "requests:20/h"), WriteTimeout: time.Minute})
	var b bytes.Buffer
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	writeFrame(&b, settingsFrame, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // an empty window
	for i := range maxStreams {
		block := []byte{0x82, 0x86, 0x84, 0x41, 9} // GET, http, /, :authority
		writeFrame(&b, headersFrame, endStream|endHeaders, uint32(2*i+1), append(block, "localhost"...))
	}
	conn := testutil.Dial(t, "", strings.TrimPrefix(h.URL, "http://"), b.String())
	_ = conn.SetDeadline(time.Now().Add(40 * time.Second)) // less than WriteTimeout
	const held = 20 + maxRefusalBodies                     // responses to requests within the limit stay in memory
	for ended := 0; ended < maxStreams-held; {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("got %d of %d requests ended, want all but %d: %v", ended, maxStreams, held, err)
		}
		length := binary.BigEndian.Uint32(head[:4]) >> 8
		if _, err := io.CopyN(io.Discard, conn, int64(length)); err != nil {
			t.Fatal(err)
		}
		switch kind, flags := head[3], head[4]; {
		case kind == settingsFrame && flags&ack == 0:
			var b bytes.Buffer
			writeFrame(&b, settingsFrame, ack, 0, nil)
			_, _ = conn.Write(b.Bytes())
		case kind == resetFrame, flags&endStream != 0 && (kind == headersFrame || kind == dataFrame):
			ended++
		}
	}
	p := newProxy(t, 1<<20)
	for range 2 * maxRefusals {
		if text := p.wantStatus(http.StatusTooManyRequests, http.MethodGet, h.URL+"/sets", ""); !strings.Contains(text, `"type"`) {
			t.Fatalf("refusal = %q, want a problem document", text)
		}
	}
}
