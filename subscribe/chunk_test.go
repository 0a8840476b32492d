package subscribe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/rshub/rshub/feed"
)

// testChunk has frames with all three lengths of a WebSocket's header.
func testChunk(w framing) *chunk {
	c := &chunk{}
	c.reset(feed.Cursor{Position: 10, Micros: 10})
	for i, n := range []int{1, 125, 126, 300, 0, 65535, 65536, 7} {
		p := 11 + 3*i
		b := &feed.Batch{Cursor: feed.Cursor{Position: uint64(p), Micros: int64(p)}}
		c.add(wire{feed.JSON, w}, []byte(strings.Repeat(string(rune('a'+i)), n)), b)
	}
	return c
}

// Wherever a write stops, what was written and what cut says is missing are
// together whole frames, up to the cursor that cut returns. from knows that cursor.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, w := range []framing{webSocketFrames, httpChunks, unframed} {
		c := testChunk(w)
		for offset := 0; offset <= len(c.buf); offset++ {
			cursor, rest := c.split(offset)
			next, ok := c.from(cursor)
			if !ok {
				t.Fatalf("offset %d: from does not know the cursor %v", offset, cursor)
			}
			at := offset
			for _, piece := range rest {
				n := min(len(piece), 20) // all of it for all offsets takes long
				if !bytes.HasPrefix(c.buf[at:], piece[:n]) {
					t.Fatalf("offset %d: the wrong bytes are missing", offset)
				}
				if n > 0 && &piece[0] == &c.buf[at] {
					t.Fatalf("offset %d: a piece is in the scratch buffer, which is written again", offset)
				}
				at += len(piece)
			}
			if at != next {
				t.Fatalf("offset %d: %d bytes are missing before %d", offset, at-offset, next)
			}
		}
	}
}

func TestFrom(t *testing.T) {
	c := testChunk(webSocketFrames)
	ends := map[uint64]int{10: 0}
	for _, f := range c.frames {
		ends[f.cursor.Position] = f.end
	}
	for p := range uint64(40) {
		want, known := ends[p]
		if got, ok := c.from(feed.Cursor{Position: p, Micros: int64(p)}); ok != known || got != want {
			t.Errorf("from(%d) = %d, %v, want %d, %v", p, got, ok, want, known)
		}
		if _, ok := c.from(feed.Cursor{Position: p, Micros: int64(p) + 1}); ok {
			t.Errorf("from knows position %d with another datetime", p)
		}
	}
	c.diverged = true
	if got, ok := c.from(feed.Cursor{Position: 999}); got != 0 || !ok {
		t.Errorf("a diverged chunk is for everybody from its beginning, not %d, %v", got, ok)
	}
}

// Chunks are bounded, hold everything once, and leave no large buffer.
func TestChunks(t *testing.T) {
	var batches []*feed.Batch
	after := feed.Cursor{Position: 1, Micros: 1}
	for i := range 2000 {
		cursor := feed.Cursor{Position: after.Position + 1, Micros: after.Micros + 1}
		batches = append(batches, &feed.Batch{Set: "a", After: after, Cursor: cursor, Diverged: i == 700})
		after = cursor
	}
	var scratch chunk
	var sizes []int
	n := 0
	chunks(&scratch, wire{format: feed.JSON}, batches, func(c *chunk) {
		if c.after != batches[n].After {
			t.Fatalf("chunk after %v, want %v", c.after, batches[n].After)
		}
		for i, f := range c.frames {
			if f.cursor != batches[n+i].Cursor || !bytes.HasSuffix(c.buf[:f.end], batches[n+i].JSON()) {
				t.Fatalf("frame %d is not batch %d", i, n+i)
			}
		}
		n += len(c.frames)
		sizes = append(sizes, len(c.buf))
	})
	if n != len(batches) || len(sizes) < 3 {
		t.Errorf("%d batches in chunks of %v", n, sizes)
	}
	for _, size := range sizes {
		if size > maxChunk+100 {
			t.Errorf("a chunk of %d bytes", size)
		}
	}
	if cap(scratch.buf) > maxIdle {
		t.Errorf("%d bytes are kept", cap(scratch.buf))
	}
}

func TestAppendFrame(t *testing.T) {
	for _, test := range []struct {
		n      int
		header string
	}{
		{0, "\x81\x00"}, {125, "\x81\x7d"}, {126, "\x81\x7e\x00\x7e"}, {65535, "\x81\x7e\xff\xff"},
		{65536, "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"},
	} {
		body := bytes.Repeat([]byte("x"), test.n)
		if got := appendFrame(nil, websocket.TextMessage, body); string(got) != test.header+string(body) {
			t.Errorf("%d bytes: header % x, want % x", test.n, got[:len(test.header)], test.header)
		}
	}
}
