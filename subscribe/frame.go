package subscribe

import (
	"encoding/binary"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
)

// maxChunk bounds what is written in one call, unless it is a single frame.
const maxChunk = 64 << 10

// maxIdle bounds the buffer that is kept for the next chunk: most sets are
// silent most of the time.
const maxIdle = 16 << 10

// The subprotocols: what a message is.
const (
	protocolJSON = "rs.json"
	protocolXML  = "rs.xml"
)

// appendFrame appends a whole message as one frame of a server (RFC 6455
// section 5.2): final and not masked. gorilla/websocket makes a frame for a
// connection; these bytes are the same for all.
func appendFrame(dst []byte, opcode byte, body []byte) []byte {
	dst = append(dst, 0x80|opcode)
	switch n := len(body); {
	case n < 126:
		dst = append(dst, byte(n))
	case n < 1<<16:
		dst = append(dst, 126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	default:
		dst = append(dst, 127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return append(dst, body...)
}

// A chunk is what is written to connections in one call: the frames of
// consecutive batches.
type chunk struct {
	after    changelog.Cursor // before the first batch
	diverged bool             // after is not where the connections are
	frames   []frame
	buf      []byte
	all      tally // what is in it
}

// A frame is a batch in a chunk.
type frame struct {
	cursor changelog.Cursor // of the batch
	body   []byte           // its message, shared by all; nil: only in buf
	end    int              // in buf
	tally  tally
}

func (c *chunk) reset(after changelog.Cursor) {
	clear(c.frames) // their bodies may go
	c.after, c.diverged, c.frames, c.buf, c.all = after, false, c.frames[:0], c.buf[:0], tally{}
}

// add adds the message of a batch.
func (c *chunk) add(body []byte, b *changelog.Batch) {
	begin := len(c.buf)
	c.buf = appendFrame(c.buf, websocket.TextMessage, body)
	f := frame{cursor: b.Cursor, body: body, end: len(c.buf)}
	f.tally.add(len(b.Entries), len(c.buf)-begin)
	c.all.plus(f.tally)
	c.frames = append(c.frames, f)
	c.diverged = c.diverged || b.Diverged
}

// addCopy adds a message that need not be kept besides.
func (c *chunk) addCopy(body []byte, b *changelog.Batch) {
	c.add(body, b)
	c.frames[len(c.frames)-1].body = nil
}

// end returns the cursor behind the chunk.
func (c *chunk) end() changelog.Cursor { return c.frames[len(c.frames)-1].cursor }

// full reports whether a message of n bytes belongs into the next chunk.
func (c *chunk) full(n int) bool {
	return len(c.frames) > 0 && (len(c.buf)+n > maxChunk || c.diverged)
}

// from returns where the bytes behind a cursor begin, which must be the end of
// one of the batches or the beginning.
func (c *chunk) from(cur changelog.Cursor) (offset int, ok bool) {
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

// tally adds to t the frames that are begun in buf[from:to], where from is where
// one begins.
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

// cut says where a write stands that stopped after buf[:offset]: the cursor of
// the last batch that is whole or begun, and what of that one is missing. What
// is missing of its body is not copied: it is shared.
func (c *chunk) cut(offset int) (cur changelog.Cursor, head, rest []byte) {
	cur = c.after
	begin := 0
	for _, f := range c.frames {
		switch {
		case offset == begin:
			return cur, nil, nil
		case offset < f.end:
			body := f.end - len(f.body)
			if offset < body {
				return f.cursor, append(head, c.buf[offset:body]...), f.body
			}
			return f.cursor, nil, f.body[offset-body:]
		}
		begin, cur = f.end, f.cursor
	}
	return cur, nil, nil
}

// chunks cuts batches into chunks and gives each to write. The scratch chunk is
// used again for each; it does not keep a large buffer.
func chunks(scratch *chunk, protocol string, batches []*changelog.Batch, write func(*chunk)) {
	scratch.reset(batches[0].After)
	for _, b := range batches {
		body := message(protocol, b)
		if scratch.full(len(body)) {
			write(scratch)
			scratch.reset(b.After)
		}
		scratch.add(body, b)
	}
	write(scratch)
	scratch.reset(scratch.end())
	if cap(scratch.buf) > maxIdle {
		scratch.buf = nil
	}
}

// message returns what a batch is in a subprotocol.
func message(protocol string, b *changelog.Batch) []byte {
	if protocol == protocolXML {
		return b.XML()
	}
	return b.JSON()
}
