package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
)

// errSame means that the record need not be changed.
var errSame = errors.New("no changes")

// tries is the maximum number of tries of a change of the record while others change it, too.
const tries = 50

// An attempt writes the pages of a new root, which finish adds to the head. There is at most one at a time:
// when another begins, the store refuses the pages of the former one.
type attempt struct {
	v     *Inventory
	ctx   context.Context
	begin int64  // when the log began
	id    uint64 // Record.Attempt
	next  uint64 // number of the next page

	buf   []byte // bytes of pages
	pages []Page // pages that were not put yet
}

// begin begins an attempt if check allows it. Page numbers start at the store's clock in microseconds, or
// at Head.Next if that is greater. So no number is used twice, not even after a failed attempt or a failover
// that lost the newest records: caches, and removals that arrive late, rely on that.
func (v *Inventory) begin(ctx context.Context, check func(*Record, *Head) error) (*attempt, error) {
	a := &attempt{v: v, ctx: ctx, id: rand.Uint64N(feed.MaxNumber) + 1}
	err := v.update(ctx, Swap{}, func(rec *Record, head *Head) error {
		if err := check(rec, head); err != nil {
			return err
		}
		if rec.Attempt != 0 { // it has left pages
			v.swept.Store(false)
		}
		a.begin, a.next, rec.Attempt = rec.Log.Begin, max(head.Next, uint64(max(rec.Now, 0))), a.id
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// update changes the record, unless change returns an error. It tries again while others change it, too.
func (v *Inventory) update(ctx context.Context, s Swap, change func(*Record, *Head) error) error {
	for range tries {
		rec, head, err := v.Load(ctx)
		if err == nil {
			err = change(&rec, head)
		}
		if err == errSame {
			return nil
		}
		if err != nil {
			return err
		}
		if err := v.swap(ctx, &rec, head, s); !errors.Is(err, ErrRaced) {
			return err
		}
	}
	return fmt.Errorf("set %q: %w", v.set, ErrRaced)
}

// swap replaces the record that was loaded by rec and head. s may have further fields of the Swap.
func (v *Inventory) swap(ctx context.Context, rec *Record, head *Head, s Swap) error {
	s.Begin, s.Version, s.Attempt, s.Head = rec.Log.Begin, rec.Version, rec.Attempt, head.encode()
	if len(s.Head) > MaxHead {
		return fmt.Errorf("head of set %q: too many pins (%d bytes): %w", v.set, len(s.Head), feed.ErrOverloaded)
	}
	if err := v.store.Swap(ctx, v.set, s); err != nil {
		return fmt.Errorf("update inventory of set %q: %w", v.set, err)
	}
	return nil
}

// number returns the next number.
func (a *attempt) number() uint64 {
	a.next++
	return a.next - 1
}

// write adds a page to those that the next put writes.
func (a *attempt) write(form byte, count int, rows []byte) (number uint64, size int, err error) {
	if len(a.pages) == MaxNumbers || len(a.pages) > 0 && len(a.buf)+len(rows)+page.Frame > MaxPut {
		if err := a.put(); err != nil {
			return 0, 0, err
		}
	}
	number = a.number()
	start := len(a.buf)
	a.buf = page.Append(a.buf, number, form, count, rows)
	made := a.buf[start:]
	a.pages = append(a.pages, Page{number, made})
	return number, len(made), nil
}

// put writes pages to the store.
func (a *attempt) put() error {
	if len(a.pages) == 0 {
		return nil
	}
	err := a.v.store.Put(a.ctx, a.v.set, a.begin, a.id, a.pages)
	a.pages, a.buf = a.pages[:0], a.buf[:0]
	if err != nil {
		return fmt.Errorf("write pages of set %q: %w", a.v.set, err)
	}
	return nil
}

// finish ends the attempt with a change of the head, and drops the roots that are not needed. If there is a
// new root, freed are the pages of the newest root that the new one does not have, and pages of no root.
func (a *attempt) finish(root *Root, freed []uint64, s Swap, change func(*Head)) error {
	if err := a.put(); err != nil {
		return err
	}
	var free []uint64 // pages of freed that no other root has
	due := false
	err := a.v.update(a.ctx, s, func(rec *Record, head *Head) error {
		switch {
		case rec.Log.Begin != a.begin:
			return fmt.Errorf("set %q: %w", a.v.set, ErrLog)
		case rec.Attempt != a.id:
			return fmt.Errorf("set %q: %w", a.v.set, ErrRaced)
		}
		if change != nil {
			change(head)
		}
		if root != nil {
			root.Made = rec.Now
			head.Roots = append(head.Roots, Kept{Root: *root})
		}
		head.dropRoots(rec.Now)
		free = head.unusedPages(freed)
		if n := len(freed) - len(free); n > 0 {
			head.Roots[len(head.Roots)-2].Lost += uint64(n)
		}
		head.Next, rec.Attempt = a.next, 0
		due = head.sweepDue(rec.Now)
		return nil
	})
	if err != nil {
		return err
	}
	if a.v.remove(a.ctx, a.begin, free) != nil || due || !a.v.swept.Load() {
		_ = a.v.Sweep(a.ctx) // after an error, the next attempt does it
	}
	return nil
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
