package inventory

import (
	"context"
	"sort"

	"github.com/rshub/rshub/internal/inventory/page"
)

// cuts returns the first locs of pages that divide a range into parts of about equal
// counts, n at most. It reads inner pages only, and few of them. The tally of a part that
// begins with a page costs nothing.
func (t *Tree) cuts(ctx context.Context, r Range, n int) ([]string, error) {
	top, level := t.top()
	refs := []page.Ref{top}
	for ; level > 0 && len(refs) < 4*n; level-- {
		var below []page.Ref
		for i, p := range refs {
			if i%readTogether == 0 {
				if err := t.load(ctx, pageNumbers(refs[i:min(i+readTogether, len(refs))])); err != nil {
					return nil, err
				}
			}
			in, err := t.inner(ctx, p.Number)
			if err != nil {
				return nil, err
			}
			below = append(below, in.refs...)
		}
		refs = refsWithin(below, r)
	}
	total, sum := uint64(0), uint64(0)
	for i := range refs {
		total += refs[i].Count
	}
	var cuts []string
	parts := uint64(0)
	for i := range refs {
		if p := sum * uint64(n) / max(total, 1); p > parts {
			cuts, parts = append(cuts, refs[i].First), p
		}
		sum += refs[i].Count
	}
	return cuts, nil
}

// refsWithin returns the pages that may hold resources of a range.
func refsWithin(refs []page.Ref, r Range) []page.Ref {
	end := len(refs)
	if r.To != "" {
		end = sort.Search(len(refs), func(i int) bool { return refs[i].First >= r.To })
	}
	return refs[min(page.Child(refs, r.From), end):end]
}

func pageNumbers(refs []page.Ref) []uint64 {
	numbers := make([]uint64, len(refs))
	for i := range refs {
		numbers[i] = refs[i].Number
	}
	return numbers
}
