package subscribe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/rshub/rshub/feed"
)

// testChunk returns a chunk of frames with all three lengths of a WebSocket header.
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

// TestSplitAtAnyOffset checks that the written bytes and the rest that split returns are whole
// frames together, up to the cursor that split returns, and that from accepts this cursor.
func TestSplitAtAnyOffset(t *testing.T) {
	t.Parallel()
	for _, w := range []framing{webSocketFrames, httpChunks, unframed} {
		c := testChunk(w)
		for offset := 0; offset <= len(c.buf); offset++ {
			cursor, rest := c.split(offset)
			next, ok := c.from(cursor)
			if !ok {
				t.Fatalf("offset %d: from(%v) = false, want true", offset, cursor)
			}
			at := offset
			for _, piece := range rest {
				n := min(len(piece), 20) // comparing all bytes at all offsets would take long
				if !bytes.HasPrefix(c.buf[at:], piece[:n]) {
					t.Fatalf("offset %d: got other bytes than those after %d", offset, at)
				}
				if n > 0 && &piece[0] == &c.buf[at] {
					t.Fatalf("offset %d: got a piece of the scratch buffer, want a copy", offset)
				}
				at += len(piece)
			}
			if at != next {
				t.Fatalf("offset %d: got %d bytes, want those up to %d", offset, at-offset, next)
			}
		}
	}
}

func TestChunkFrom(t *testing.T) {
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
			t.Errorf("from(%d with another datetime) = true, want false", p)
		}
	}
	c.diverged = true
	if got, ok := c.from(feed.Cursor{Position: 999}); got != 0 || !ok {
		t.Errorf("from of a diverged chunk = %d, %v, want 0, true", got, ok)
	}
}

// TestChunkSizes checks that chunks have a size limit and contain each batch once, and that no large
// buffer is retained.
func TestChunkSizes(t *testing.T) {
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
			t.Fatalf("got a chunk after %v, want %v", c.after, batches[n].After)
		}
		for i, f := range c.frames {
			if f.cursor != batches[n+i].Cursor || !bytes.HasSuffix(c.buf[:f.end], batches[n+i].JSON()) {
				t.Fatalf("frame %d: got another batch, want batch %d", i, n+i)
			}
		}
		n += len(c.frames)
		sizes = append(sizes, len(c.buf))
	})
	if n != len(batches) || len(sizes) < 3 {
		t.Errorf("got %d batches in chunks of %v bytes, want %d", n, sizes, len(batches))
	}
	for _, size := range sizes {
		if size > maxChunk+100 {
			t.Errorf("got a chunk of %d bytes, want at most %d", size, maxChunk+100)
		}
	}
	if cap(scratch.buf) > maxIdle {
		t.Errorf("got a buffer of %d bytes, want at most %d", cap(scratch.buf), maxIdle)
	}
}

func TestAppendFrame(t *testing.T) {
	for _, tt := range []struct {
		n      int
		header string
	}{
		{0, "\x81\x00"}, {125, "\x81\x7d"}, {126, "\x81\x7e\x00\x7e"}, {65535, "\x81\x7e\xff\xff"},
		{65536, "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"},
	} {
		body := bytes.Repeat([]byte("x"), tt.n)
		if got := appendFrame(nil, websocket.TextMessage, body); string(got) != tt.header+string(body) {
			t.Errorf("appendFrame of %d bytes: got header % x, want % x", tt.n, got[:len(tt.header)], tt.header)
		}
	}
}
