package subscribe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
)

// testChunk has frames with all three lengths of header.
func testChunk() *chunk {
	c := &chunk{}
	c.reset(feed.Cursor{Position: 10, Micros: 10})
	for i, n := range []int{1, 125, 126, 300, 0, 65535, 65536, 7} {
		p := 11 + 3*i
		b := &feed.Batch{Cursor: feed.Cursor{Position: uint64(p), Micros: int64(p)}}
		c.add(feed.JSON, []byte(strings.Repeat(string(rune('a'+i)), n)), b)
	}
	return c
}

// Wherever a write stops, what was written and what cut says is missing are
// together whole frames, up to the cursor that cut returns. from knows that cursor.
func TestCut(t *testing.T) {
	c := testChunk()
	for offset := 0; offset <= len(c.buf); offset++ {
		cursor, head, rest := c.cut(offset)
		next, ok := c.from(cursor)
		if !ok {
			t.Fatalf("offset %d: from does not know the cursor %v", offset, cursor)
		}
		if next < offset || next-offset != len(head)+len(rest) {
			t.Fatalf("offset %d: %d + %d bytes are missing before %d", offset, len(head), len(rest), next)
		}
		for _, part := range [][2][]byte{{head, c.buf[offset:]}, {rest, c.buf[next-len(rest):]}} {
			n := min(len(part[0]), 20) // all of it for all offsets takes long
			if !bytes.HasPrefix(part[1], part[0][:n]) {
				t.Fatalf("offset %d: the wrong bytes are missing", offset)
			}
		}
		if len(head) > 0 && &head[0] == &c.buf[offset] {
			t.Fatalf("offset %d: the head is in the scratch buffer, which is written again", offset)
		}
	}
}

func TestFrom(t *testing.T) {
	c := testChunk()
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
	chunks(&scratch, groupKey{format: feed.JSON}, batches, func(c *chunk) {
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

// A message that is made where it is to be has the same bytes as one that is made first
// and then copied, whatever the length of its head.
func TestAddCopy(t *testing.T) {
	for _, private := range []bool{false, true} {
		for _, kind := range []feed.Format{{}, {MediaType: eventStream}, {Pack: func(dst, text []byte) []byte { return append(dst, text...) }}} {
			got, want := &chunk{}, &chunk{}
			got.buf = append(make([]byte, 0, 100), "old bytes in the room of the chunk"...) // as left by a chunk before
			got.reset(feed.Cursor{})
			want.reset(feed.Cursor{})
			for _, n := range []int{0, 1, 125, 126, 300, 65535, 65536, 3, 100_000} {
				f := &feed.Format{MediaType: kind.MediaType, Pack: kind.Pack, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
					return append(dst, strings.Repeat("x", n)...)
				}}
				b := &feed.Batch{Cursor: feed.Cursor{Position: uint64(n)}, Private: private}
				got.addCopy(f, b)
				want.add(f, b.In(f), b)
				if !bytes.Equal(got.buf, want.buf) || got.end() != want.end() || got.all != want.all || len(got.frames) != len(want.frames) {
					t.Fatalf("%q, packed %t, private %t: wrong after a message of %d bytes", f.MediaType, f.Pack != nil, private, n)
				}
			}
		}
	}
}
