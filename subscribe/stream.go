package subscribe

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rshub/rshub/feed"
)

// eventChunks returns events as an event stream over HTTP/1.1 gets them: each is a whole
// chunk (RFC 9112 section 7.1), and packed. All streams share these bytes, which is good
// for many streams: a delivery is one system call, as for a WebSocket. eventWriter is the
// slow way to the same events.
func eventChunks(pack func(dst, text []byte) []byte) *feed.Format {
	return &feed.Format{MediaType: eventStream, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		return appendHTTPChunk(dst, pack(nil, appendEvent(nil, b.Cursor, feed.JSON.Append(nil, b, ""))))
	}}
}

// httpChunkData returns the data of a chunk that appendHTTPChunk has made.
func httpChunkData(chunk []byte) []byte {
	_, data, _ := bytes.Cut(chunk, []byte("\r\n"))
	return data[:len(data)-2]
}

// appendHTTPChunk appends a chunk of a response.
func appendHTTPChunk(dst, data []byte) []byte {
	dst = strconv.AppendInt(dst, int64(len(data)), 16)
	dst = append(dst, "\r\n"...)
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// lastChunks returns the end of an event stream. Unless err is nil, it says why the
// stream ends.
func lastChunks(c *coding, err error) (last []byte) {
	if err != nil {
		last = appendHTTPChunk(nil, c.pack(nil, appendGone(nil, err)))
	}
	return append(last, "0\r\n\r\n"...)
}

// takeOverStream answers with an event stream, and makes a conn of the connection, to
// which its group writes. It can do so over HTTP/1.1 without TLS. Otherwise it does
// nothing and returns false.
func (s *Server) takeOverStream(w http.ResponseWriter, r *http.Request, begin *feed.Batch, filter feed.Filter, coded *coding) (taken bool) {
	if !s.takesOver || !r.ProtoAtLeast(1, 1) || r.ProtoMajor > 1 || r.TLS != nil {
		return false
	}
	nc, _, err := hijacker{w}.Hijack()
	if err != nil {
		return false
	}
	c := &conn{
		server: s, nc: nc, filter: filter, cursor: begin.Cursor, told: begin.Cursor, index: -1, coding: coded,
		key: groupKey{set: begin.Set, kind: byEventStream, format: coded.events, filtered: !filter.IsZero()},
	}
	c.findSocket()
	_ = nc.SetDeadline(time.Now().Add(s.opts.WriteTimeout))
	if _, err := nc.Write(streamHead(w.Header(), begin, coded)); err != nil {
		c.cut()
		s.metrics.closed[byEventStream][byClient].Inc()
		return true
	}
	_ = nc.SetDeadline(time.Time{})
	c.release = s.opts.Hold(r.Context(), begin.Set, func(err error) { c.goodbye(closeNoRight, err.Error()) })
	s.follow(c)
	return true
}

// streamHead returns the head of a response that is an event stream, and the first event.
func streamHead(h http.Header, begin *feed.Batch, c *coding) []byte {
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Transfer-Encoding", "chunked")
	h.Set("Connection", "close") // the stream is the last response on this connection
	head := bytes.NewBufferString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(head) // to memory
	head.WriteString("\r\n")
	return appendHTTPChunk(head.Bytes(), c.pack(slices.Clone(c.head), appendEvent([]byte(retry), begin.Cursor, begin.In(feed.JSON))))
}

// readNothing reads from an event stream until c waits in the poller, or until the client
// is gone. Then it ends the connection. A client has nothing to say.
func (c *conn) readNothing() {
	var buf [64]byte
	for {
		if _, err := c.nc.Read(buf[:]); err != nil {
			c.end()
			return
		}
		if c.poller.wait(c) {
			return
		}
	}
}
