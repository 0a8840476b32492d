package subscribe

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// maxChunk bounds the bytes that are written in one call. A single frame may be
// longer.
const maxChunk = 64 << 10

// maxIdle bounds the buffer, in bytes, that is kept for the next chunk or event. It
// is small, because most sets are silent most of the time.
const maxIdle = 16 << 10

// A chunk is what is written to connections in one call: the frames of
// consecutive batches.
type chunk struct {
	after    feed.Cursor // before the first batch
	diverged bool        // the log has lost its tail, so the connections' cursors need not be in the chunk
	frames   []frame
	buf      []byte
	all      tally // of all frames
}

// A frame is a batch in a chunk.
type frame struct {
	cursor feed.Cursor // of the batch
	body   []byte      // the batch's message, shared by all connections; nil: it is in buf only
	tail   []byte      // what stands behind the message
	end    int         // where the frame ends in buf
	tally  tally
}

func (c *chunk) reset(after feed.Cursor) {
	clear(c.frames) // so that the bodies can be freed
	c.after, c.diverged, c.frames, c.buf, c.all = after, false, c.frames[:0], c.buf[:0], tally{}
}

// add adds the message of a batch for a wire.
func (c *chunk) add(w wire, body []byte, b *feed.Batch) {
	begin := len(c.buf)
	c.buf = w.append(c.buf, body)
	added := frame{cursor: b.Cursor, body: body, tail: w.tail(), end: len(c.buf)}
	size := len(c.buf) - begin
	if w.kind() == byEventStream {
		size = len(body) // what HTTP adds does not count
	}
	added.tally.add(len(b.Entries), size)
	c.all.plus(added.tally)
	c.frames = append(c.frames, added)
	c.diverged = c.diverged || b.Diverged
}

// addCopy adds a message, and keeps only the copy in buf.
func (c *chunk) addCopy(w wire, body []byte, b *feed.Batch) {
	c.add(w, body, b)
	c.frames[len(c.frames)-1].body = nil
}

// end returns the cursor behind the chunk.
func (c *chunk) end() feed.Cursor { return c.frames[len(c.frames)-1].cursor }

// full reports whether a message of n bytes must go into the next chunk.
func (c *chunk) full(n int) bool {
	return len(c.frames) > 0 && (len(c.buf)+n > maxChunk || c.diverged)
}

// from returns where in buf the frames behind a cursor begin. ok is false when the
// cursor is neither the beginning of the chunk nor the end of one of its batches.
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

// tally adds to t the frames that begin in buf[from:to]. A frame must begin at from.
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

// cut says how far a client is after buf[:offset] was written to it. cur is the
// cursor of the last batch of which the client got any bytes. rest is the missing part of
// that batch's frame, in pieces. None of them is in buf, because buf is used again. One is
// of the batch's shared message.
func (c *chunk) cut(offset int) (cur feed.Cursor, rest [][]byte) {
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

// chunks divides batches into chunks and calls write with each of them. Each of them
// is scratch, so write must not keep it. At the end scratch has no large buffer.
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

// A wire is how messages are written to a connection.
type wire struct {
	format  *feed.Format // of a message
	framing framing      // of the bytes on the connection
}

// A framing is what stands around each message.
type framing uint8

const (
	inFrames framing = iota // of a WebSocket
	framed                  // of a WebSocket; what a Single format appends has them
	inChunks                // of an HTTP/1.1 response (RFC 9112 section 7.1)
	bare                    // nothing: net/http adds what is needed, or it is an HTTP/1.0 response
)

// kind returns the way to follow.
func (w wire) kind() kind {
	if w.framing == inFrames || w.framing == framed {
		return byWebSocket
	}
	return byEventStream
}

// append appends a message.
func (w wire) append(dst, body []byte) []byte {
	return append(append(w.head(dst, len(body)), body...), w.tail()...)
}

// head appends what stands before the n bytes of a message.
func (w wire) head(dst []byte, n int) []byte {
	switch w.framing {
	case inFrames:
		opcode := byte(websocket.TextMessage)
		if w.format.Zstd {
			opcode = websocket.BinaryMessage
		}
		return appendFrameHead(dst, opcode, n)
	case inChunks:
		return append(strconv.AppendInt(dst, int64(n), 16), newline...)
	}
	return dst
}

var newline = []byte("\r\n")

// tail returns what stands behind a message. Nobody may change it.
func (w wire) tail() []byte {
	if w.framing == inChunks {
		return newline
	}
	return nil
}

// end returns the last bytes of a connection that ends at a cursor. In an event stream they
// tell only an error.
func (w wire) end(bye *closeFrame, cursor string) (last []byte) {
	if w.kind() == byWebSocket {
		text := bye.reason
		if bye.code != closeGone {
			text = strings.TrimSpace(cursor + " " + text)
		}
		return appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(bye.code, text[:min(len(text), 123)]))
	}
	if bye.err != nil {
		last = w.append(last, lastEvent(bye.err))
	}
	if w.framing == inChunks {
		last = append(last, "0\r\n\r\n"...)
	}
	return last
}

// appendFrame appends a whole message as one frame of a server (RFC 6455
// section 5.2): final and not masked. gorilla/websocket would make a frame for each
// connection. These bytes are the same for all connections.
func appendFrame(dst []byte, opcode byte, body []byte) []byte {
	return append(appendFrameHead(dst, opcode, len(body)), body...)
}

// appendFrameHead appends what stands before the n bytes of a message.
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
