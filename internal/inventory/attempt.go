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

// tries is how often a step is tried while other committers keep changing the
// record.
const tries = 50

// An attempt is one try to change the roots. There is at most one at a time. A new
// attempt ends the one before, so that the store takes no more of its pages, and then
// removes the pages that it left.
type attempt struct {
	v     *Inventory
	ctx   context.Context
	begin int64  // when the log began
	id    uint64 // in Record.Attempt
	free  Span   // numbers that are reserved and not used
	grow  uint64 // how many numbers to reserve the next time

	buf   []byte   // bytes of the pages that are not put yet
	pages []Page   // the pages that are not put yet
	lists []uint64 // new pages of lists that no head names
}

// begin begins an attempt if check allows it.
func (v *Inventory) begin(ctx context.Context, check func(*Record, *Head) error) (*attempt, error) {
	a := &attempt{v: v, ctx: ctx, id: rand.Uint64N(feed.MaxNumber) + 1, grow: 64}
	for range tries {
		rec, head, err := v.Load(ctx)
		if err != nil {
			return nil, err
		}
		if err := check(&rec, head); err != nil {
			return nil, err
		}
		a.begin = rec.Log.Begin
		over := rec.Attempt == 0
		if over {
			if err := v.tidy(ctx, a.begin, head); err != nil {
				return nil, err
			}
			head.Reserved, head.Trash, head.Sweep = nil, 0, 0
			a.reserve(&rec, head)
			rec.Attempt = a.id
		} else {
			rec.Attempt = 0
		}
		err = v.swap(ctx, &rec, head, Swap{})
		if err == nil && over {
			return a, nil
		}
		if err != nil && !errors.Is(err, ErrRaced) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("set %q: %w", v.set, ErrRaced)
}

// swap replaces the record that was loaded by rec and head. s may set further
// fields of the Swap.
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

// errSame says that there is nothing to change.
var errSame = errors.New("no changes")

// update changes the record. It tries again while others change it, too.
func (v *Inventory) update(ctx context.Context, s Swap, change func(*Record, *Head) error) error {
	for range tries {
		rec, head, err := v.Load(ctx)
		if err != nil {
			return err
		}
		if err := change(&rec, head); err != nil {
			if err == errSame {
				return nil
			}
			return err
		}
		if err := v.swap(ctx, &rec, head, s); !errors.Is(err, ErrRaced) {
			return err
		}
	}
	return fmt.Errorf("set %q: %w", v.set, ErrRaced)
}

// reserve reserves numbers. They are not less than the store's clock in microseconds. So
// no number is used twice, even if the store lost its newest records. Otherwise a cache
// or a late removal could take a new page for an old one.
func (a *attempt) reserve(rec *Record, head *Head) {
	from := max(head.Next, uint64(max(rec.Now, 0)))
	a.free = Span{from, from + a.grow}
	a.grow = min(2*a.grow, 16_000)
	head.Next = a.free.To
	head.Reserved = append(head.Reserved, a.free)
}

// number returns the next number.
func (a *attempt) number() (uint64, error) {
	if a.free.From == a.free.To {
		err := a.v.update(a.ctx, Swap{}, func(rec *Record, head *Head) error {
			if err := a.lives(rec); err != nil {
				return err
			}
			a.reserve(rec, head)
			return nil
		})
		if err != nil {
			a.free = Span{}
			return 0, err
		}
	}
	a.free.From++
	return a.free.From - 1, nil
}

// lives returns ErrRaced or ErrLog if the attempt has ended.
func (a *attempt) lives(rec *Record) error {
	if rec.Log.Begin != a.begin {
		return fmt.Errorf("set %q: %w", a.v.set, ErrLog)
	}
	if rec.Attempt != a.id {
		return fmt.Errorf("set %q: %w", a.v.set, ErrRaced)
	}
	return nil
}

// write adds a page to those that the next put writes.
func (a *attempt) write(form byte, count int, rows []byte) (number uint64, size int, err error) {
	if len(a.pages) == MaxNumbers || len(a.pages) > 0 && len(a.buf)+len(rows)+page.Frame > MaxPut {
		if err := a.put(); err != nil {
			return 0, 0, err
		}
	}
	number, err = a.number()
	if err != nil {
		return 0, 0, err
	}
	start := len(a.buf)
	a.buf = page.Append(a.buf, number, form, count, rows)
	made := a.buf[start:]
	a.pages = append(a.pages, Page{number, made})
	return number, len(made), nil
}

// put puts the pages that write has added into the store.
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

// finish ends the attempt with a change of the head. If there is a new root, freed are
// the pages of the newest root that the new one does not have. Roots that nobody needs
// are dropped, and the pages that only they have are removed.
func (a *attempt) finish(root *Root, freed []uint64, s Swap, change func(*Head)) error {
	var trash []uint64
	err := a.v.update(a.ctx, s, func(rec *Record, head *Head) (err error) {
		if err := a.lives(rec); err != nil {
			return err
		}
		if change != nil {
			change(head)
		}
		if root != nil {
			root.Made = rec.Now
			head.Roots = append(head.Roots, Kept{Root: *root})
		}
		if trash, err = a.bury(head, rec.Now, freed); err != nil {
			return err
		}
		head.Reserved, rec.Attempt = nil, 0
		return a.put()
	})
	if err == nil {
		_ = a.v.remove(a.ctx, a.begin, trash) // if this fails, the next attempt removes them
	}
	return err
}

// bury drops the roots that nobody needs from a head. A page that an older, remaining
// root still has goes to the list of the newest such root. The other pages go to the list
// Head.Trash. bury returns them in the order in which they have to be removed.
func (a *attempt) bury(head *Head, now int64, freed []uint64) (trash []uint64, err error) {
	roots, needed := head.Roots, head.needed(now)
	died := make([][]uint64, len(roots)) // for each needed root, the pages that die with it
	trash = append(trash, a.lists...)
	die := func(owner int, numbers []uint64) {
		for _, n := range numbers {
			i := owner
			for i >= 0 && (!needed[i] || roots[i].Upto < n) {
				i--
			}
			if i >= 0 {
				died[i] = append(died[i], n)
			} else {
				trash = append(trash, n)
			}
		}
	}
	if len(freed) > 0 {
		die(len(roots)-2, freed)
	}
	head.Roots = nil
	for i := range roots {
		if !needed[i] {
			dead, err := a.v.readList(a.ctx, a.begin, roots[i].Dead)
			if err != nil {
				return nil, err
			}
			die(i, dead.numbers)
			trash = append(trash, dead.pages...)
		}
	}
	for i, k := range roots {
		if !needed[i] {
			continue
		}
		if len(died[i]) > 0 {
			first, written, replaced, err := a.writeList(died[i], k.Dead)
			a.lists = append(a.lists, written...)
			if err != nil {
				return nil, err
			}
			k.Dead = first
			trash = append(trash, replaced...)
		}
		head.Roots = append(head.Roots, k)
	}
	if len(trash) == 0 {
		return nil, nil
	}
	first, written, _, err := a.writeList(slices.Clone(trash), 0)
	a.lists = append(a.lists, written...)
	head.Trash = first
	return append(trash, written...), err
}
