package page

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/packed"
)

// A Ref is a page as its parent knows it. The page holds the resources from First up to
// the First of the next page, excluded. The first page of a parent also holds those
// before its First. A row of an inner page is
//
//	first    bytes shared with the first before uvarint, the others as a string
//	page     varint: from the number before
//	count    uvarint
//	weak     uvarint
//	newest   varint: from the newest before
//	position 32 bytes
//	content  32 bytes
type Ref struct {
	First  string // the shortest text that separates the page from the one before
	Number uint64
	Newest uint64 // the highest position of a change in it
	digest.Tally
}

// Separator returns the shortest text that is greater than a and at most b.
func Separator(a, b string) string { return b[:min(sharedPrefix(a, b)+1, len(b))] }

// An innerCoder appends the rows of one inner page.
type innerCoder struct {
	first  string
	page   uint64
	newest uint64
}

func (c *innerCoder) begin() { *c = innerCoder{} }

func (c *innerCoder) append(dst []byte, r *Ref) []byte {
	shared := sharedPrefix(c.first, r.First)
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = packed.AppendString(dst, r.First[shared:])
	dst = binary.AppendVarint(dst, int64(r.Number-c.page))
	dst = binary.AppendUvarint(dst, r.Count)
	dst = binary.AppendUvarint(dst, r.Weak)
	dst = binary.AppendVarint(dst, int64(r.Newest-c.newest))
	dst = append(dst, r.Position[:]...)
	dst = append(dst, r.Content[:]...)
	c.first, c.page, c.newest = r.First, r.Number, r.Newest
	return dst
}

// OpenInner reads an inner page. It has at least one child, and its children are in
// order.
func OpenInner(number uint64, b []byte) ([]Ref, error) {
	count, rows, err := open(number, InnerForm, b)
	if err != nil {
		return nil, err
	}
	refs := make([]Ref, count)
	d := packed.NewReader(rows)
	var before Ref
	var first []byte
	for i := range refs {
		r := &refs[i]
		shared, suffix := d.Number(), d.String()
		if shared > uint64(len(first)) {
			return nil, fmt.Errorf("invalid rows")
		}
		first = append(first[:shared], suffix...)
		r.First = string(first)
		r.Number = before.Number + uint64(d.Signed())
		r.Count, r.Weak = d.Number(), d.Number()
		r.Newest = before.Newest + uint64(d.Signed())
		copy(r.Position[:], d.Bytes(32))
		copy(r.Content[:], d.Bytes(32))
		if d.Bad() || i > 0 && r.First <= before.First || r.Number == 0 {
			return nil, fmt.Errorf("invalid rows")
		}
		before = *r
	}
	if count == 0 || !d.Done() {
		return nil, fmt.Errorf("invalid rows")
	}
	return refs, nil
}

// Child returns the index of the page that holds a loc, if any does.
func Child(refs []Ref, loc string) int {
	i := sort.Search(len(refs), func(i int) bool { return refs[i].First > loc })
	return max(i-1, 0)
}
