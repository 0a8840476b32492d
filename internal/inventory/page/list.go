package page

import (
	"encoding/binary"

	"github.com/rshub/rshub/internal/packed"
)

// A list of page numbers is a chain of pages. The first page was written last. The rows of a page are
// the number of the next page (zero at the end), and then the listed numbers, ascending, each as
// a uvarint of the difference from the previous one.

// AppendList appends the rows of a page of a list, in front of the page next: as many of the numbers
// as fit in a page of limit bytes, but at least one. It returns how many.
func AppendList(dst []byte, next uint64, numbers []uint64, limit int) (rows []byte, n int) {
	start, previous := len(dst), uint64(0)
	rows = binary.AppendUvarint(dst, next)
	for n < len(numbers) && (n == 0 || len(rows)-start < limit-Frame-binary.MaxVarintLen64) {
		rows = binary.AppendUvarint(rows, numbers[n]-previous)
		previous = numbers[n]
		n++
	}
	return rows, n
}

// OpenList decodes a page of a list.
func OpenList(number uint64, b []byte) (next uint64, numbers []uint64, err error) {
	count, rows, err := open(number, ListForm, b)
	if err != nil {
		return 0, nil, err
	}
	d := packed.NewReader(rows)
	next = d.Number()
	previous := uint64(0)
	for range count {
		previous += d.Number()
		numbers = append(numbers, previous)
	}
	if !d.Done() || next >= number {
		return 0, nil, errRows
	}
	return next, numbers, nil
}
