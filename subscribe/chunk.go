package subscribe

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// maxChunk is the maximum number of bytes written in one call. A single frame may be longer.
const maxChunk = 64 << 10

// maxIdle is the maximum size of a buffer retained for the next chunk or event. It is small,
// because most sets are idle most of the time.
const maxIdle = 16 << 10

// A chunk has the frames of consecutive batches, to be written to connections in one call.
type chunk struct {
	after    feed.Cursor // cursor before the first batch
	diverged bool        // the log lost its tail, so connections' cursors need not be in the chunk
	frames   []frame
	buf      []byte
	all      tally // sum over all frames
}

// A frame is a batch in a chunk.
type frame struct {
	cursor feed.Cursor // cursor of the batch
	body   []byte      // message of the batch, shared by all connections; nil if it is in buf only
	tail   []byte      // trailer of the message
	end    int         // end of the frame in buf
	tally  tally
}

func (c *chunk) reset(after feed.Cursor) {
	clear(c.frames) // so that the bodies can be freed
	c.after, c.diverged, c.frames, c.buf, c.all = after, false, c.frames[:0], c.buf[:0], tally{}
}

// add appends the message of a batch as a frame of w.
func (c *chunk) add(w wire, body []byte, b *feed.Batch) {
	begin := len(c.buf)
	c.buf = w.append(c.buf, body)
	added := frame{cursor: b.Cursor, body: body, tail: w.tail(), end: len(c.buf)}
	size := len(c.buf) - begin
	if w.kind() == byEventStream {
		size = len(body) // without the overhead of HTTP
	}
	added.tally.add(len(b.Entries), size)
	c.all.plus(added.tally)
	c.frames = append(c.frames, added)
	c.diverged = c.diverged || b.Diverged
}

// addCopy appends a message and retains only the copy in buf.
func (c *chunk) addCopy(w wire, body []byte, b *feed.Batch) {
	c.add(w, body, b)
	c.frames[len(c.frames)-1].body = nil
}

// end returns the cursor after the chunk.
func (c *chunk) end() feed.Cursor { return c.frames[len(c.frames)-1].cursor }

// full reports whether a message of n bytes must go into the next chunk.
func (c *chunk) full(n int) bool {
	return len(c.frames) > 0 && (len(c.buf)+n > maxChunk || c.diverged)
}

// from returns the offset in buf of the frames after a cursor. ok is false if the cursor is
// neither the start of the chunk nor the end of one of its batches.
func (c *chunk) from(cur feed.Cursor) (offset int, ok bool) {
	if cur == c.after || c.diverged {
		return 0, true
	}
	for i := range c.frames {
		if c.frames[i].cursor == cur {
			return c.frames[i].end, true
		}
	}
	return 0, false
}

// tally adds the frames that start in buf[from:to] to t. A frame must start at from.
func (c *chunk) tally(t *tally, from, to int) {
	if from == 0 && to == len(c.buf) {
		t.plus(c.all)
		return
	}
	begin := 0
	for i := range c.frames {
		if begin >= from && begin < to {
			t.plus(c.frames[i].tally)
		}
		begin = c.frames[i].end
	}
}

// split returns the position of a client after buf[:offset] was written to it. cur is the cursor
// of the last batch of which the client got any bytes. rest is the missing part of that batch's
// frame, in pieces that do not alias buf, because buf is reused; one is a part of the batch's
// shared message.
func (c *chunk) split(offset int) (cur feed.Cursor, rest [][]byte) {
	cur = c.after
	begin := 0
	for _, f := range c.frames {
		switch {
		case offset == begin:
			return cur, nil
		case offset < f.end:
			tail := f.end - len(f.tail)
			body := tail - len(f.body)
			switch {
			case offset < body:
				return f.cursor, [][]byte{bytes.Clone(c.buf[offset:body]), f.body, f.tail}
			case offset < tail:
				return f.cursor, [][]byte{f.body[offset-body:], f.tail}
			}
			return f.cursor, [][]byte{f.tail[offset-tail:]}
		}
		begin, cur = f.end, f.cursor
	}
	return cur, nil
}

// chunks divides batches into chunks and calls write with each. Every chunk is scratch, so
// write must not retain it. At the end scratch has no large buffer.
func chunks(scratch *chunk, w wire, batches []*feed.Batch, write func(*chunk)) {
	scratch.reset(batches[0].After)
	for _, b := range batches {
		body := b.Encode(w.format)
		if scratch.full(len(body)) {
			write(scratch)
			scratch.reset(b.After)
		}
		scratch.add(w, body, b)
	}
	write(scratch)
	scratch.reset(scratch.end())
	if cap(scratch.buf) > maxIdle {
		scratch.buf = nil
	}
}

// A wire is the encoding of messages on a connection.
type wire struct {
	format  *feed.Format // format of a message
	framing framing      // framing of messages on the connection
}

// A framing is the way in which each message is delimited.
type framing uint8

const (
	webSocketFrames framing = iota // frames of a WebSocket
	preframed                      // frames of a WebSocket that a Single format already appends
	httpChunks                     // chunks of an HTTP/1.1 response (RFC 9112 section 7.1)
	unframed                       // none: net/http adds it, or the response is HTTP/1.0
)

// kind returns the transport.
func (w wire) kind() kind {
	if w.framing == webSocketFrames || w.framing == preframed {
		return byWebSocket
	}
	return byEventStream
}

// append appends a message with its header and trailer.
func (w wire) append(dst, body []byte) []byte {
	return append(append(w.head(dst, len(body)), body...), w.tail()...)
}

// head appends the header of a message of n bytes.
func (w wire) head(dst []byte, n int) []byte {
	switch w.framing {
	case webSocketFrames:
		opcode := byte(websocket.TextMessage)
		if w.format.Zstd {
			opcode = websocket.BinaryMessage
		}
		return appendFrameHead(dst, opcode, n)
	case httpChunks:
		return append(strconv.AppendInt(dst, int64(n), 16), newline...)
	}
	return dst
}

var newline = []byte("\r\n")

// tail returns the trailer of a message, which must not be modified.
func (w wire) tail() []byte {
	if w.framing == httpChunks {
		return newline
	}
	return nil
}

// end returns the last bytes of a connection that ends at a cursor. In an event stream they
// report only errors.
func (w wire) end(bye *closeFrame, cursor string) (last []byte) {
	if w.kind() == byWebSocket {
		text := bye.reason
		if bye.code != closeGone {
			text = strings.TrimSpace(cursor + " " + text)
		}
		return appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(bye.code, strings.ToValidUTF8(text[:min(len(text), maxControlPayload-2)], "")))
	}
	if bye.err != nil {
		last = w.append(last, lastEvent(bye.err))
	}
	if w.framing == httpChunks {
		last = append(last, "0\r\n\r\n"...)
	}
	return last
}

// appendFrame appends a whole message as one frame of a server (RFC 6455
// section 5.2): final and not masked. gorilla/websocket would encode it for each connection,
// although the bytes are the same.
func appendFrame(dst []byte, opcode byte, body []byte) []byte {
	return append(appendFrameHead(dst, opcode, len(body)), body...)
}

// appendFrameHead appends the header of a frame with n bytes of payload.
func appendFrameHead(dst []byte, opcode byte, n int) []byte {
	dst = append(dst, final|opcode)
	switch {
	case n < 126:
		return append(dst, byte(n))
	case n < 1<<16:
		dst = append(dst, 126)
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	default:
		dst = append(dst, 127)
		return binary.BigEndian.AppendUint64(dst, uint64(n))
	}
}
