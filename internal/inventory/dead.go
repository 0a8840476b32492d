package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/rshub/rshub/internal/inventory/page"
)

// A deadList is a list of page numbers that was read.
type deadList struct {
	numbers []uint64
	pages   []uint64 // of the list itself, the first one first
}

// readList reads a list. A missing or damaged page ends the list. The pages that the
// rest of the list named then stay in the store until a Reset, which does no harm. Check
// reports them.
func (v *Inventory) readList(ctx context.Context, begin int64, first uint64) (deadList, error) {
	var l deadList
	for first != 0 {
		pages, err := v.store.Get(ctx, v.set, begin, []uint64{first})
		if err != nil {
			return l, fmt.Errorf("read dead pages of set %q: %w", v.set, err)
		}
		next, numbers, err := page.OpenList(first, pages[0])
		if err != nil {
			return l, nil
		}
		l.numbers = append(l.numbers, numbers...)
		l.pages = append(l.pages, first)
		first = next
	}
	return l, nil
}

// writeList adds numbers at the front of a list, which may be empty. It returns the
// first page of the result, and the pages that it wrote. It also returns the pages that
// the result no longer needs: if the old first page was less than half full, its numbers
// are in a new page.
func (a *attempt) writeList(numbers []uint64, behind uint64) (first uint64, written, replaced []uint64, err error) {
	if behind != 0 {
		pages, err := a.v.store.Get(a.ctx, a.v.set, a.begin, []uint64{behind})
		if err != nil {
			return 0, nil, nil, fmt.Errorf("read dead pages of set %q: %w", a.v.set, err)
		}
		if next, more, err := page.OpenList(behind, pages[0]); err == nil && len(pages[0]) < a.v.limit/2 {
			numbers, replaced, behind = append(more, numbers...), []uint64{behind}, next
		}
	}
	slices.Sort(numbers)
	for first = behind; len(numbers) > 0; {
		rows, n := page.AppendList(nil, first, numbers, a.v.limit)
		first, _, err = a.write(page.ListForm, n, rows)
		if err != nil {
			return 0, written, nil, err
		}
		written = append(written, first)
		numbers = numbers[n:]
	}
	return first, written, replaced, nil
}

// remove removes pages from the store.
func (v *Inventory) remove(ctx context.Context, begin int64, numbers []uint64) error {
	for some := range slices.Chunk(numbers, MaxNumbers) {
		if err := v.store.Remove(ctx, v.set, begin, some); err != nil {
			return fmt.Errorf("remove pages of set %q: %w", v.set, err)
		}
	}
	return nil
}

// tidy removes the pages that an ended attempt has left, and the pages that a commit
// dropped. It may be called again.
func (v *Inventory) tidy(ctx context.Context, begin int64, head *Head) error {
	for _, s := range head.Reserved {
		for from := s.From; from < s.To; from += MaxNumbers {
			if err := v.remove(ctx, begin, Span{from, min(from+MaxNumbers, s.To)}.numbers()); err != nil {
				return err
			}
		}
	}
	if head.Trash != 0 {
		trash, err := v.readList(ctx, begin, head.Trash)
		if err != nil {
			return err
		}
		// The first page of the list goes last: without it there is nothing to do.
		slices.Reverse(trash.pages)
		if err := v.remove(ctx, begin, append(trash.numbers, trash.pages...)); err != nil {
			return err
		}
	}
	if head.Sweep != 0 {
		return v.sweep(ctx, begin, head.Sweep)
	}
	return nil
}

// sweep removes all pages with lower numbers than to.
func (v *Inventory) sweep(ctx context.Context, begin int64, to uint64) error {
	var numbers []uint64
	for n, err := range v.store.Numbers(ctx, v.set, begin) {
		if err != nil {
			return fmt.Errorf("list pages of set %q: %w", v.set, err)
		}
		if n < to {
			numbers = append(numbers, n)
		}
	}
	return v.remove(ctx, begin, numbers)
}

func (s Span) numbers() []uint64 {
	all := make([]uint64, 0, s.To-s.From)
	for n := s.From; n < s.To; n++ {
		all = append(all, n)
	}
	return all
}
