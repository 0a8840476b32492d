package page

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// FuzzLeaf encodes and decodes resources.
func FuzzLeaf(f *testing.F) {
	f.Add("https://example.org/a", "md5:00ff sha-256:abcd", "text/plain", "", uint64(7), int64(1_700_000_000_000_000), int64(12), int64(5), 3)
	f.Add("urn:a", "MD5:00FF", "", "gzip", uint64(1<<53), int64(0), int64(-1), int64(0), 2)
	f.Add("urn:b", "sha-256:abc  md5:", "x", "daily", uint64(0), int64(-1), int64(0), int64(1), 70)
	f.Fuzz(func(t *testing.T, loc, hash, media, other string, position uint64, micros, length, nanos int64, n int) {
		var entries []feed.Entry
		for i := range n & 0x7f {
			e := feed.Entry{Cursor: feed.Cursor{Position: position * uint64(i), Micros: micros + int64(i%3)}, Change: resourcesync.Change{
				Loc: fmt.Sprintf("%s/%03d", loc, i), Change: changeTypes[1+i%2], Hash: hash, Type: media}}
			if i%2 == 1 {
				e.Change.Hash, e.Change.Type, e.Change.Length = other, other, &length
				e.Change.Lastmod = time.Unix(length, nanos&0xfffffff).UTC()
			}
			if i%5 == 4 {
				e.Change.Hash = fmt.Sprintf("md5:%032x %s", i, hash)
				e.Change.Datetime, e.Change.Encoding, e.Change.Changefreq, e.Change.Path = time.Unix(nanos&0xfffffff, 0).UTC(), other, media, hash
				e.Change.Links = []resourcesync.Link{{Rel: other, Href: loc}}
				e.Change.Attrs = []resourcesync.Attr{{Namespace: other, Name: loc, Value: hash}}
			}
			entries = append(entries, e)
		}
		var c leafEncoder
		c.reset()
		var rows []byte
		for i := range entries {
			rows = c.appendRow(rows, &entries[i])
		}
		l, err := OpenLeaf(9, Append(nil, 9, LeafForm, len(entries), rows))
		if err != nil {
			t.Fatal(err)
		}
		var d Decoder
		got, err := d.Decode(nil, l)
		if err != nil || !reflect.DeepEqual(got, entries) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, entries)
		}
		r := l.Read()
		for i := 0; r.Next(); i++ {
			if e := r.Entry(); !reflect.DeepEqual(e, entries[i]) {
				t.Fatalf("got %+v\nwant %+v", e, entries[i])
			}
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPages decodes any bytes as the rows of each kind of page. Encoding the result again takes no more
// bytes.
func FuzzPages(f *testing.F) {
	var leaf leafEncoder
	leaf.reset()
	var rows []byte
	for _, e := range sourcetest.PEPs(5) {
		rows = leaf.appendRow(rows, &e)
	}
	f.Add(5, rows)
	var in innerEncoder
	rows = nil
	for i := range uint64(5) {
		rows = in.appendRow(rows, &Ref{First: fmt.Sprint("page ", i), Number: i + 1, Newest: 100 - i, Tally: digest.Tally{Count: i, Weak: i / 2}})
	}
	f.Add(5, rows)
	f.Add(3, []byte{0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, count int, rows []byte) {
		if count < 0 {
			return
		}
		if refs, err := OpenInner(9, Append(nil, 9, InnerForm, count, rows)); err == nil {
			var c innerEncoder
			var again []byte
			for i := range refs {
				again = c.appendRow(again, &refs[i])
			}
			if len(again) > len(rows) {
				t.Fatalf("%d bytes became %d", len(rows), len(again))
			}
			if got, err := OpenInner(9, Append(nil, 9, InnerForm, count, again)); err != nil || !reflect.DeepEqual(got, refs) {
				t.Fatalf("got %+v, %v\nwant %+v", got, err, refs)
			}
		}
		l, err := OpenLeaf(9, Append(nil, 9, LeafForm, count, rows))
		if err != nil {
			return
		}
		var d Decoder
		entries, err := d.Decode(nil, l)
		if err != nil {
			return
		}
		if len(entries) != count {
			t.Fatalf("%d resources of %d", len(entries), count)
		}
		_ = l.Find([]string{"a", "b"}, func(int, *feed.Entry) {})
	})
}

// TestDamage changes each byte of a page, and removes bytes from its end.
func TestDamage(t *testing.T) {
	var c leafEncoder
	c.reset()
	var rows []byte
	for _, e := range sourcetest.PEPs(3) {
		rows = c.appendRow(rows, &e)
	}
	page := Append(nil, 9, LeafForm, 3, rows)
	if _, err := OpenLeaf(9, page); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLeaf(8, page); err == nil {
		t.Error("OpenLeaf() with another number = nil, want an error")
	}
	if _, err := OpenInner(9, page); err == nil {
		t.Error("OpenInner() of a leaf = nil, want an error")
	}
	for i := range page {
		page[i] ^= 4
		if _, err := OpenLeaf(9, page); err == nil {
			t.Errorf("OpenLeaf() with byte %d changed = nil, want an error", i)
		}
		page[i] ^= 4
	}
	for n := range page {
		if _, err := OpenLeaf(9, page[:n]); err == nil {
			t.Errorf("OpenLeaf() of the first %d bytes = nil, want an error", n)
		}
	}
}

// TestLeafHashOverflow reads a leaf whose kind has two parts of a hash: their sizes overflow when
// they are added.
func TestLeafHashOverflow(t *testing.T) {
	rows := []byte{0, 0, 1, 'a', 2, 2, 0, 0, 2} // flags, loc, position, datetime, and a new kind with two parts
	rows = binary.AppendUvarint(packed.AppendString(rows, "md5:"), 5)
	rows = binary.AppendUvarint(packed.AppendString(rows, " x:"), 1<<64-3)
	rows = append(rows, 1, 2)
	l, err := OpenLeaf(9, Append(nil, 9, LeafForm, 1, rows))
	if err != nil {
		t.Fatal(err)
	}
	var d Decoder
	if entries, err := d.Decode(nil, l); err == nil {
		t.Errorf("Decode() = %+v, want an error", entries)
	}
}

func TestSeparator(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"a", "b", "b"},
		{"abc", "abd", "abd"},
		{"abc", "abdef", "abd"},
		{"abc", "abcdef", "abcd"},
		{"", "x", "x"},
		{"item-0099", "item-01", "item-01"},
	} {
		if got := Separator(test.a, test.b); got != test.want || got <= test.a || got > test.b {
			t.Errorf("Separator(%q, %q) = %q, want %q", test.a, test.b, got, test.want)
		}
	}
}
