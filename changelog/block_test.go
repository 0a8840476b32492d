package changelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// plain returns n short changes.
func plain(n int) []resourcesync.Change {
	c := make([]resourcesync.Change, n)
	for i := range c {
		c[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d", i), Change: resourcesync.Updated}
	}
	return c
}

// decode returns the changes of blocks that follow position first-1.
func decode(t testing.TB, blocks []CutBlock, first uint64) []resourcesync.Change {
	t.Helper()
	var changes []resourcesync.Change
	last := feed.Cursor{Position: first - 1, Micros: 1_000_000}
	for _, b := range blocks {
		last.Position += uint64(b.Count)
		last.Micros += int64(b.Count)
		entries, err := b.Block.Entries(last)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != b.Count {
			t.Fatalf("got %d entries, want %d", len(entries), b.Count)
		}
		for i := range entries {
			back := len(entries) - 1 - i
			if want := (feed.Cursor{Position: last.Position - uint64(back), Micros: last.Micros - int64(back)}); entries[i].Cursor != want {
				t.Fatalf("Cursor = %v, want %v", entries[i].Cursor, want)
			}
			changes = append(changes, entries[i].Change)
		}
	}
	return changes
}

func TestCutBlocks(t *testing.T) {
	big := plain(20)
	for i := range big {
		big[i].Hash = strings.Repeat("x", 60_000)
	}
	huge := plain(5)
	huge[0].Hash = strings.Repeat("x", MaxBlockBytes)
	huge[2].Hash = strings.Repeat("y", 3*MaxBlockBytes)
	huge[4].Hash = strings.Repeat("z", MaxBlockBytes)
	for _, test := range []struct {
		name     string
		changes  []resourcesync.Change
		first    uint64
		listSize int
		want     []int
	}{
		{"one", plain(1), 1, 10, []int{1}},
		{"within a list", plain(10), 1, 10, []int{10}},
		{"over a boundary", plain(10), 2, 10, []int{9, 1}},
		{"over many", plain(25), 18, 10, []int{3, 10, 10, 2}},
		{"lists of one", plain(3), 7, 1, []int{1, 1, 1}},
		{"far on", plain(5), 1<<40 + 1, 1 << 10, []int{5}},
		{"at most 1,000", plain(2500), 1, 10_000, []int{1000, 1000, 500}},
		{"at most 1,000 and a boundary", plain(2500), 9501, 10_000, []int{500, 1000, 1000}},
		{"at most 256 kB", big, 1, 100, []int{4, 4, 4, 4, 4}},
		{"a single entry may be larger", huge, 1, 100, []int{1, 1, 1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			blocks := CutBlocks(test.changes, test.first, test.listSize)
			var got []int
			position := test.first - 1
			for _, b := range blocks {
				got = append(got, b.Count)
				if (position+uint64(b.Count)-1)/uint64(test.listSize) != position/uint64(test.listSize) {
					t.Errorf("block of %d entries after position %d crosses a boundary", b.Count, position)
				}
				position += uint64(b.Count)
				if b.Count > 1 && b.Block.Size() > MaxBlockBytes {
					t.Errorf("Size() = %d, want at most MaxBlockBytes", b.Block.Size())
				}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got blocks of %v entries, want %v", got, test.want)
			}
			if !reflect.DeepEqual(decode(t, blocks, test.first), test.changes) {
				t.Error("decoded changes differ")
			}

			// Entries with gaps between them are cut the same way.
			entries := make([]feed.Entry, len(test.changes))
			for i := range entries {
				n := uint64(i)
				entries[i] = feed.Entry{Cursor: feed.Cursor{Position: test.first + n, Micros: int64(1000 + n + n/3*(n%5))}, Change: test.changes[i]}
				if i > 0 {
					entries[i].Micros = max(entries[i].Micros, entries[i-1].Micros+1)
				}
			}
			got = nil
			for rest := entries; len(rest) > 0; {
				b, n := FillBlock(rest, test.listSize)
				got = append(got, n)
				if back, err := b.Entries(rest[n-1].Cursor); err != nil || !reflect.DeepEqual(back, rest[:n]) {
					t.Errorf("decoded entries of a block of %d differ: %v", n, err)
				}
				rest = rest[n:]
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got blocks of %v entries, want %v", got, test.want)
			}
		})
	}
}

func TestBlockSize(t *testing.T) {
	for _, n := range []int{1, 3, 4, 100, 1000} {
		changes := plain(n)
		var body []byte
		for i := range changes {
			body = packed.AppendChange(body, &changes[i])
		}
		block := seal(body, n)
		if block.Count() != uint64(n) {
			t.Errorf("Count() of %d entries = %d, want all", n, block.Count())
		}
		size := block.Size()
		if len(body) < 256 && n >= compressFrom { // zstd does not store the size of a small body
			body = body[:0]
		}
		if size < len(body) || size > len(body)+256 {
			t.Errorf("Size() of %d entries = %d, want about %d", n, size, len(body))
		}
	}
}

// A block has the same bytes everywhere, because it is compared and cached by its bytes.
func TestBlockIsDeterministic(t *testing.T) {
	for _, n := range []int{1, 3, 4, 1000} {
		a, b := CutBlocks(plain(n), 1, 10_000), CutBlocks(plain(n), 7001, 10_000)
		if !bytes.Equal(a[0].Block, b[0].Block) {
			t.Errorf("blocks of the same %d changes differ", n)
		}
	}
}

func TestDamagedBlock(t *testing.T) {
	for _, n := range []int{1, 50} {
		b := CutBlocks(plain(n), 1, 100)[0].Block
		last := feed.Cursor{Position: uint64(n), Micros: 1000}
		for i := range b {
			for bit := range 8 {
				bad := slices.Clone(b)
				bad[i] ^= 1 << bit
				if _, err := bad.Entries(last); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("Entries() with bit %[2]d of byte %[1]d flipped: error = %[3]v, want ErrCorrupt", i, bit, err)
				}
			}
			if _, err := b[:i].Entries(last); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("Entries() of the first %d bytes: error = %v, want ErrCorrupt", i, err)
			}
		}
		if _, err := append(slices.Clone(b), 0).Entries(last); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Entries() with an extra byte: error = %v, want ErrCorrupt", err)
		}
		if n > 1 {
			if _, err := b.Entries(feed.Cursor{Position: uint64(n) - 1, Micros: 1000}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Entries() with more entries than positions: error = %v, want ErrCorrupt", err)
			}
		}
	}
}

// sum appends the checksum to b.
func sum(b []byte) Block {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, castagnoli))
}

// TestRuns reads datetimes with gaps, as a packer writes them.
func TestRuns(t *testing.T) {
	changes := plain(6)
	head := []byte{plainForm, 6, 3, 2, 0, 1, 100, 3, 0xe8, 0x07} // runs of 2, 1 and 3; gaps 0, 100, 1000
	b := head
	for i := range changes {
		b = packed.AppendChange(b, &changes[i])
	}
	entries, err := sum(b).Entries(feed.Cursor{Position: 20, Micros: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []feed.Cursor{{Position: 15, Micros: 3897}, {Position: 16, Micros: 3898}, {Position: 17, Micros: 3998}, {Position: 18, Micros: 4998}, {Position: 19, Micros: 4999}, {Position: 20, Micros: 5000}} {
		if entries[i].Cursor != want || !reflect.DeepEqual(entries[i].Change, changes[i]) {
			t.Errorf("entry %d is %+v, want %v", i, entries[i], want)
		}
	}
	for name, head := range map[string][]byte{
		"no runs":           {plainForm, 6, 0},
		"a run of none":     {plainForm, 6, 2, 0, 0, 6, 1},
		"too few entries":   {plainForm, 6, 2, 2, 0, 3, 1},
		"too many entries":  {plainForm, 6, 2, 2, 0, 5, 1},
		"more runs than it": {plainForm, 6, 7, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"runs cut":          {plainForm, 6, 2, 2},
		"no gap between":    {plainForm, 6, 2, 2, 0, 4, 0},
		"a gap before":      {plainForm, 6, 2, 2, 1, 4, 1},
		"endless gaps":      {plainForm, 6, 3, 2, 0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 1},
		"unknown form":      {9, 6, 1, 6, 0},
		"no entries":        {plainForm, 0, 0},
	} {
		b := head
		for i := range changes {
			b = packed.AppendChange(b, &changes[i])
		}
		if _, err := sum(b).Entries(feed.Cursor{Position: 20, Micros: 5000}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error is %v, want ErrCorrupt", name, err)
		}
	}
}

func FuzzBlockEntries(f *testing.F) {
	f.Add([]byte{}, uint64(1), uint8(0))
	f.Add([]byte(CutBlocks(plain(2), 1, 10)[0].Block), uint64(2), uint8(0))
	f.Add([]byte(CutBlocks(plain(9), 1, 10)[0].Block), uint64(9), uint8(0))
	f.Add([]byte{zstdForm, 4, 1, 4, 0, 0x28, 0xb5, 0x2f, 0xfd}, uint64(9), uint8(1))
	f.Add([]byte{0xff, 0x0f, 1, 'a', 0, 0, 0, 0, 0, 0}, uint64(9), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, position uint64, how uint8) {
		block := Block(b)
		switch {
		case how == 0: // as it is
		case how == 1: // with a good checksum
			block = sum(b)
		default: // the body of a good block
			block = seal(b, int(how))
		}
		_ = block.Size()
		count := block.Count()
		entries, err := block.Entries(feed.Cursor{Position: position, Micros: 1_000_000})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || entries != nil {
				t.Errorf("%d entries, %v, want none and ErrCorrupt", len(entries), err)
			}
			return
		}
		if n := len(entries); n == 0 || count != uint64(n) || entries[n-1].Cursor != (feed.Cursor{Position: position, Micros: 1_000_000}) {
			t.Errorf("%d entries, and %d are said", n, count)
		}
		for i := 1; i < len(entries); i++ {
			if a, b := entries[i-1], entries[i]; a.Position+1 != b.Position || a.Micros >= b.Micros {
				t.Errorf("%v follows %v", b.Cursor, a.Cursor)
			}
		}
	})
}

func FuzzBlockRoundTrip(f *testing.F) {
	f.Add(uint64(1), "a", "b", int64(0), int64(1))
	f.Add(uint64(2), "", "\x00\xff ü", int64(-62135596800), int64(1<<53))
	f.Fuzz(func(t *testing.T, seed uint64, a, b string, x, y int64) {
		r := rand.New(rand.NewPCG(seed, 0))
		texts := []string{"", a, b, a + b, strings.Repeat(a, 20)}
		text := func() string { return texts[r.IntN(len(texts))] }
		moment := func() (m time.Time) {
			switch r.IntN(4) {
			case 0:
				m = time.Unix(x%253402300800, y).UTC()
			case 1:
				m = time.Date(1+r.IntN(9999), 1, 1, 0, 0, 0, r.IntN(1e9), time.UTC)
			}
			return m
		}
		length := func() *int64 {
			n := []int64{0, x, y, r.Int64()}[r.IntN(4)]
			if r.IntN(2) == 0 {
				return nil
			}
			return &n
		}
		attrs := func() (attrs []resourcesync.Attr) {
			for range max(0, r.IntN(5)-2) {
				attrs = append(attrs, resourcesync.Attr{Namespace: text(), Name: text(), Value: text()})
			}
			return attrs
		}
		types := [...]resourcesync.ChangeType{"", resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
		changes := make([]resourcesync.Change, 1+r.IntN(12))
		for i := range changes {
			changes[i] = resourcesync.Change{
				Loc: text(), Change: types[r.IntN(4)], Datetime: moment(), Lastmod: moment(), Changefreq: text(),
				Hash: text(), Length: length(), Type: text(), Encoding: text(), Path: text(), Attrs: attrs(),
			}
			for range max(0, r.IntN(5)-2) {
				changes[i].Links = append(changes[i].Links, resourcesync.Link{
					Rel: text(), Href: text(), Pri: r.IntN(1_000_000), Modified: moment(), Hash: text(), Length: length(),
					Type: text(), Encoding: text(), Path: text(), Profile: text(), Attrs: attrs(),
				})
			}
		}
		first, listSize := 1+seed>>20, 1+r.IntN(20)
		if got := decode(t, CutBlocks(changes, first, listSize), first); !reflect.DeepEqual(got, changes) {
			t.Errorf("got\n%+v, want\n%+v", got, changes)
		}
	})
}
