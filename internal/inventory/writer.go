package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
)

// A Writer changes the tree of an inventory. A set has one Writer at a time. The store enforces that by terms:
// once a Writer with a higher term has written, writes of the others fail with ErrFenced. So do the writes of a
// Writer after a restart of Redis that may have lost its pages. After ErrFenced a Writer may be used again, with
// the newest root that Load then returns; if there is a writer with a higher term, its next write fails, too.
//
// The methods of a Writer must not be called concurrently. Those of its Inventory may be.
type Writer struct {
	*Inventory
	term uint64

	opens int    // how often the term was begun in the store
	open  bool   // whether the term was begun, and has not ended as far as the Writer knows
	begin int64  // when the log began, as of the begin of the term
	next  uint64 // number of the next page
	swept bool   // whether pages that other writers or failed commits left were removed

	buf   []byte // bytes of pages
	pages []Page // pages that were not put yet
}

// Writer returns the writer with a term, which must be from 1 to feed.MaxNumber. Two Writers with the same term
// must not be used at the same time. Writer does not access the store, and there is nothing to close.
func (v *Inventory) Writer(term uint64) *Writer { return &Writer{Inventory: v, term: term} }

// update changes the record under the term of the writer. It begins the term if necessary.
func (w *Writer) update(ctx context.Context, u Update, change func(*Record, *Head) error) error {
	var begin int64
	var next uint64
	err := w.Inventory.update(ctx, u, func(rec *Record, head *Head) error {
		if err := w.enterTerm(rec, head); err != nil {
			return err
		}
		begin, next = rec.Log.Begin, max(w.next, head.Next)
		err := change(rec, head)
		if err == errUnchanged && !w.open {
			err = nil // the term has to be written
		}
		return err
	})
	if err != nil {
		w.fail(err)
		return err
	}
	if !w.open {
		w.open, w.swept, w.begin, w.next = true, false, begin, next
		w.opens++
	}
	return nil
}

// enterTerm begins the term unless it was begun. It returns ErrFenced or ErrLog if the term has ended.
//
// Page numbers start at the store's clock in microseconds, or at Head.Next if that is greater. So no number is
// used twice, not even after a failover that lost the newest records: caches, and writes that arrive late, rely
// on that. All pages that other writers have left have lower numbers.
func (w *Writer) enterTerm(rec *Record, head *Head) error {
	switch {
	case w.open && rec.Log.Begin != w.begin:
		return fmt.Errorf("set %q: %w", w.set, ErrLog)
	case head.Term > w.term, w.open && rec.Term != w.term:
		return fmt.Errorf("set %q: %w", w.set, ErrFenced)
	case !w.open:
		rec.Term, head.Term = w.term, w.term
		head.Next = max(head.Next, w.next, uint64(max(rec.Now, 0)))
	}
	return nil
}

// fail notes that a write has failed.
func (w *Writer) fail(err error) {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrLog) || errors.Is(err, feed.ErrNoSet) {
		w.open = false
	}
}

// start prepares the writing of pages.
func (w *Writer) start(ctx context.Context) error {
	w.pages, w.buf = w.pages[:0], w.buf[:0]
	if w.open {
		return nil
	}
	return w.update(ctx, Update{}, func(*Record, *Head) error { return nil })
}

// number returns the next number.
func (w *Writer) number() uint64 {
	w.next++
	return w.next - 1
}

// pageWriter returns a pageWriter that adds pages to those that the next put writes.
func (w *Writer) pageWriter(ctx context.Context) pageWriter {
	return func(form byte, count int, rows []byte) (number uint64, size int, err error) {
		if len(w.pages) == MaxNumbers || len(w.pages) > 0 && len(w.buf)+len(rows)+page.Frame > MaxPut {
			if err := w.put(ctx); err != nil {
				return 0, 0, err
			}
		}
		number = w.number()
		start := len(w.buf)
		w.buf = page.Append(w.buf, number, form, count, rows)
		made := w.buf[start:]
		w.pages = append(w.pages, Page{number, made})
		return number, len(made), nil
	}
}

// put writes pages to the store.
func (w *Writer) put(ctx context.Context) error {
	if len(w.pages) == 0 {
		return nil
	}
	err := w.store.Put(ctx, w.set, w.begin, w.term, w.pages)
	w.pages, w.buf = w.pages[:0], w.buf[:0]
	if err != nil {
		w.fail(err)
		return fmt.Errorf("write pages of set %q: %w", w.set, err)
	}
	return nil
}

// finish makes root, whose pages were written, the newest root in place of base, changes the head, and drops the
// roots that are no longer needed. freed are the pages of base that root does not have, and pages of no root.
func (w *Writer) finish(ctx context.Context, base Root, root *Root, freed []uint64, change func(*Head)) error {
	if err := w.put(ctx); err != nil {
		return err
	}
	var free []uint64 // pages of freed that no other root has
	due := false
	err := w.update(ctx, Update{At: root.Cursor}, func(rec *Record, head *Head) error {
		if head.Newest().Upto != base.Upto {
			return w.staleBase()
		}
		change(head)
		root.Made = rec.Now
		head.Roots = append(head.Roots, Kept{Root: *root})
		head.dropRoots(rec.Now)
		free = head.unusedPages(freed)
		if n := len(freed) - len(free); n > 0 {
			head.Roots[len(head.Roots)-2].Lost += uint64(n)
		}
		head.Next = w.next
		due = head.sweepDue(rec.Now)
		return nil
	})
	if err != nil {
		return err
	}
	if w.remove(ctx, free) != nil || due || !w.swept {
		_ = w.Sweep(ctx) // after an error, the next commit does it
	}
	return nil
}

func (w *Writer) staleBase() error {
	return fmt.Errorf("set %q: the base is not the newest root: %w", w.set, ErrFenced)
}

// unusedPages returns the pages that no root but the newest may have. Pages that were written after the
// other roots are in none of them.
func (h *Head) unusedPages(pages []uint64) []uint64 {
	last := uint64(0)
	if n := len(h.Roots); n > 1 {
		last = h.Roots[n-2].Upto
	}
	return slices.DeleteFunc(slices.Clone(pages), func(n uint64) bool { return n <= last })
}
