package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
)

// sweepEvery is the minimum interval of sweeps of an inventory, unless unreachable pages may be more than a
// quarter of the newest root's.
const (
	sweepEvery = 10 * time.Minute
	minGarbage = 256 // pages that are not worth an earlier sweep
)

// sweepDue reports whether a sweep is worthwhile.
func (h *Head) sweepDue(now int64) bool {
	return h.Garbage > 0 && (now-h.Swept >= sweepEvery.Microseconds() || now < h.Swept || h.Garbage > max(h.Newest().Pages/4, minGarbage))
}

// Sweep removes the pages that no root reaches: pages of dropped roots, and those that failed commits and other
// writers left. It reads the inner pages of the roots, and lists the numbers of all pages. If an inner page is
// damaged, it removes nothing, because it does not know which pages are below.
func (w *Writer) Sweep(ctx context.Context) error {
	w.swept = false
	var head *Head
	err := w.update(ctx, Update{}, func(rec *Record, h *Head) error {
		h.Garbage, h.Swept = 0, rec.Now
		head = h
		return nil
	})
	if err != nil {
		return err
	}
	reachable := map[uint64]bool{}
	for _, k := range head.Roots {
		err := w.Tree(k.Root).mark(ctx, reachable)
		if errors.Is(err, ErrDamaged) || errors.Is(err, feed.ErrGone) { // or another writer has dropped the root
			return nil
		}
		if err != nil {
			return err
		}
	}
	var unreachable []uint64
	for n, err := range w.store.Numbers(ctx, w.set, w.begin) {
		if err != nil {
			return fmt.Errorf("list pages of set %q: %w", w.set, err)
		}
		if n < head.Next && !reachable[n] {
			unreachable = append(unreachable, n)
		}
	}
	if err := w.remove(ctx, unreachable); err != nil {
		return err
	}
	w.swept = true
	return nil
}

// remove removes pages from the store.
func (w *Writer) remove(ctx context.Context, numbers []uint64) error {
	for some := range slices.Chunk(numbers, MaxNumbers) {
		if err := w.store.Remove(ctx, w.set, w.begin, w.term, some); err != nil {
			w.fail(err)
			return fmt.Errorf("remove pages of set %q: %w", w.set, err)
		}
	}
	return nil
}

// mark adds the pages of a tree to marked. It reads the inner pages that are not marked yet.
func (t *Tree) mark(ctx context.Context, marked map[uint64]bool) error {
	top, level := t.top()
	if level < 0 {
		return nil
	}
	for pages := []uint64{top.Number}; ; level-- {
		pages = slices.DeleteFunc(pages, func(n uint64) bool {
			known := marked[n]
			marked[n] = true
			return known
		})
		if level == 0 {
			return nil
		}
		var below []uint64
		for some := range slices.Chunk(pages, readTogether) {
			if err := t.load(ctx, some); err != nil {
				return err
			}
			for _, n := range some {
				in, err := t.inner(ctx, n)
				if err != nil {
					return err
				}
				below = append(below, pageNumbers(in.refs)...)
			}
		}
		pages = below
	}
}
