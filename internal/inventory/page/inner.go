package page

import (
	"encoding/binary"
	"sort"

	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/packed"
)

// A Ref is a page as its parent describes it. The page holds the resources from First up to the
// First of the next page. The first page of a parent also holds those before its First. A row of an
// inner page is
//
//	first    length of the prefix shared with the previous first uvarint, the rest as a string
//	page     varint: difference from the previous number
//	count    uvarint
//	weak     uvarint
//	newest   varint: difference from the previous newest
//	position 32 bytes
//	content  32 bytes
type Ref struct {
	First  string // shortest string that separates the page from the previous one
	Number uint64
	Newest uint64 // highest position of a change in the page
	digest.Tally
}

// Separator returns the shortest string that is greater than a and at most b.
func Separator(a, b string) string { return b[:min(sharedPrefix(a, b)+1, len(b))] }

// An innerEncoder appends the rows of one inner page.
type innerEncoder struct{ previous Ref }

func (c *innerEncoder) reset() { *c = innerEncoder{} }

func (c *innerEncoder) appendRow(dst []byte, r *Ref) []byte {
	dst = appendShared(dst, c.previous.First, r.First)
	dst = binary.AppendVarint(dst, int64(r.Number-c.previous.Number))
	dst = binary.AppendUvarint(dst, r.Count)
	dst = binary.AppendUvarint(dst, r.Weak)
	dst = binary.AppendVarint(dst, int64(r.Newest-c.previous.Newest))
	dst = append(dst, r.Position[:]...)
	dst = append(dst, r.Content[:]...)
	c.previous = *r
	return dst
}

// OpenInner decodes an inner page. It has at least one child, and its children are in order.
func OpenInner(number uint64, b []byte) ([]Ref, error) {
	count, rows, err := open(number, InnerForm, b)
	if err != nil {
		return nil, err
	}
	refs := make([]Ref, count)
	d := packed.NewReader(rows)
	var previous Ref
	var first []byte
	for i := range refs {
		var ok bool
		if first, ok = readShared(d, first); !ok {
			return nil, errRows
		}
		r := &refs[i]
		r.First = string(first)
		r.Number = previous.Number + uint64(d.Signed())
		r.Count, r.Weak = d.Number(), d.Number()
		r.Newest = previous.Newest + uint64(d.Signed())
		copy(r.Position[:], d.Bytes(32))
		copy(r.Content[:], d.Bytes(32))
		if d.Bad() || i > 0 && r.First <= previous.First || r.Number == 0 {
			return nil, errRows
		}
		previous = *r
	}
	if count == 0 || !d.Done() {
		return nil, errRows
	}
	return refs, nil
}

// Child returns the index of the page that holds a loc, if any page does.
func Child(refs []Ref, loc string) int {
	i := sort.Search(len(refs), func(i int) bool { return refs[i].First > loc })
	return max(i-1, 0)
}
