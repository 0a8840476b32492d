package inventory

import (
	"context"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
)

// walkAhead is how many leaves a walk reads at a time, when it has read the first few.
const walkAhead = 32

// Walk yields the resources in a range in the order of loc. It reads some pages ahead,
// and holds no more than these. An entry is valid only until the next one is asked for; a
// copy of it stays valid. An error ends the walk.
func (t *Tree) Walk(ctx context.Context, r Range) iter.Seq2[*feed.Entry, error] {
	return t.walk(ctx, r, 0)
}

// Newer yields the resources whose newest change comes after a position, in the order of
// loc, as Walk does. It reads only pages with such resources.
func (t *Tree) Newer(ctx context.Context, position uint64) iter.Seq2[*feed.Entry, error] {
	return t.walk(ctx, Range{}, position+1)
}

// walk yields the resources in a range whose newest change is at or after the
// position since.
func (t *Tree) walk(ctx context.Context, r Range, since uint64) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		top, level := t.top()
		if level < 0 || r.To != "" && r.To <= r.From {
			return
		}
		w := &walker{t: t, ctx: ctx, r: r, since: since, yield: yield, ahead: 2}
		if err := w.pages([]page.Ref{top}, level); err != nil {
			yield(nil, err)
		}
	}
}

// A walker is one walk.
type walker struct {
	t      *Tree
	ctx    context.Context
	r      Range
	since  uint64 // position
	yield  func(*feed.Entry, error) bool
	ahead  int // leaves to read at a time
	decode page.Decoder
	space  []feed.Entry
	over   bool
}

// pages walks neighbouring pages of a level.
func (w *walker) pages(refs []page.Ref, level int) error {
	first, end := page.Child(refs, w.r.From), len(refs)
	if w.r.To != "" {
		end = page.Child(refs, w.r.To) + 1
	}
	var numbers []uint64
	for _, p := range refs[first:end] {
		if p.Newest >= w.since {
			numbers = append(numbers, p.Number)
		}
	}
	for len(numbers) > 0 && !w.over {
		n := min(w.ahead, len(numbers))
		var err error
		if level == 0 {
			w.ahead = min(2*w.ahead, walkAhead)
			err = w.leaves(numbers[:n])
		} else {
			n = 1
			err = w.below(numbers[0], level)
		}
		if err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

func (w *walker) below(number uint64, level int) error {
	in, err := w.t.inner(w.ctx, number)
	if err != nil {
		return err
	}
	return w.pages(in.refs, level-1)
}

func (w *walker) leaves(numbers []uint64) error {
	pages, err := w.t.read(w.ctx, numbers)
	if err != nil {
		return err
	}
	for i, p := range pages {
		l, err := page.OpenLeaf(numbers[i], p)
		if err == nil {
			w.space, err = w.decode.Decode(w.space[:0], l)
		}
		if err != nil {
			return w.t.damaged(numbers[i], err)
		}
		for i := range w.space {
			e := &w.space[i]
			if e.Position >= w.since && w.r.Has(e.Change.Loc) && !w.yield(e, nil) {
				w.over = true
				return nil
			}
		}
	}
	return nil
}
