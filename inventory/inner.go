package inventory

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/inventory/digest"
)

// A ref is a page as its parent knows it. The page holds the resources from first on, up
// to the first of the next page; the first page of a parent also those before. A row of an
// inner page is
//
//	first    bytes shared with the first before uvarint, the others as a string
//	page     varint: from the number before
//	count    uvarint
//	weak     uvarint
//	newest   varint: from the newest before
//	position 32 bytes
//	content  32 bytes
type ref struct {
	first  string // the shortest text that separates the page from the one before
	page   uint64
	newest uint64 // the highest position of a change in it
	digest.Tally
}

// separator returns the shortest text that is greater than a and at most b.
func separator(a, b string) string { return b[:min(sharedPrefix(a, b)+1, len(b))] }

// An innerCoder appends the rows of one inner page.
type innerCoder struct {
	first  string
	page   uint64
	newest uint64
}

func (c *innerCoder) begin() { *c = innerCoder{} }

func (c *innerCoder) append(dst []byte, r *ref) []byte {
	shared := sharedPrefix(c.first, r.first)
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = packed.AppendString(dst, r.first[shared:])
	dst = binary.AppendVarint(dst, int64(r.page-c.page))
	dst = binary.AppendUvarint(dst, r.Count)
	dst = binary.AppendUvarint(dst, r.Weak)
	dst = binary.AppendVarint(dst, int64(r.newest-c.newest))
	dst = append(dst, r.Position[:]...)
	dst = append(dst, r.Content[:]...)
	c.first, c.page, c.newest = r.first, r.page, r.newest
	return dst
}

// decodeInner reads an inner page. It has at least one child, and its children are in
// order.
func decodeInner(number uint64, b []byte) ([]ref, error) {
	count, rows, err := openPage(number, innerForm, b)
	if err != nil {
		return nil, err
	}
	refs := make([]ref, count)
	d := packed.NewReader(rows)
	var before ref
	var first []byte
	for i := range refs {
		r := &refs[i]
		shared, suffix := d.Number(), d.String()
		if shared > uint64(len(first)) {
			return nil, fmt.Errorf("its rows cannot be read")
		}
		first = append(first[:shared], suffix...)
		r.first = string(first)
		r.page = before.page + uint64(d.Signed())
		r.Count, r.Weak = d.Number(), d.Number()
		r.newest = before.newest + uint64(d.Signed())
		copy(r.Position[:], d.Bytes(32))
		copy(r.Content[:], d.Bytes(32))
		if d.Bad() || i > 0 && r.first <= before.first || r.page == 0 {
			return nil, fmt.Errorf("its rows cannot be read")
		}
		before = *r
	}
	if count == 0 || !d.Done() {
		return nil, fmt.Errorf("its rows cannot be read")
	}
	return refs, nil
}

// child returns the index of the page that holds a loc, if any does.
func child(refs []ref, loc string) int {
	i := sort.Search(len(refs), func(i int) bool { return refs[i].first > loc })
	return max(i-1, 0)
}
