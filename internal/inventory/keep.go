package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
)

// MaxRoots is how many roots of a set are kept. If more are pinned, the oldest of them are dropped.
const MaxRoots = 4

// neededRoots returns for each root whether it is needed. That is the newest root, the roots of the two newest
// Resource Lists, and then the pinned roots, the newest first, up to MaxRoots in all.
func (h *Head) neededRoots(now int64) []bool {
	needed := make([]bool, len(h.Roots))
	count, listed := 0, 0
	for i, k := range slices.Backward(h.Roots) {
		if i == len(h.Roots)-1 || k.Listed != 0 && listed < 2 {
			needed[i] = true
			count++
		}
		if k.Listed != 0 {
			listed++
		}
	}
	for i, k := range slices.Backward(h.Roots) {
		if !needed[i] && count < MaxRoots && k.Pinned(now) {
			needed[i] = true
			count++
		}
	}
	return needed
}

// dropRoots drops the roots that are not needed.
func (h *Head) dropRoots(now int64) {
	var roots []Kept
	for i, needed := range h.neededRoots(now) {
		if needed {
			roots = append(roots, h.Roots[i])
		} else {
			h.Garbage += h.Roots[i].Lost
		}
	}
	h.Roots = roots
}

// Pinned reports whether a root has readers at a time of the store's clock.
func (k *Kept) Pinned(now int64) bool {
	return slices.ContainsFunc(k.Pins, func(p Pin) bool { return p.Until > now })
}

// Pin keeps a root for a holder and for the time lasts, and returns the root. If the holder has already pinned
// the root, Pin may prolong the pin, but never shortens it. upto identifies the root; zero means the newest.
// If the root was dropped, Pin returns feed.ErrGone. If the inventory has no root, Pin returns the zero Root,
// which can be read.
func (v *Inventory) Pin(ctx context.Context, upto uint64, holder string, lasts time.Duration) (root Root, err error) {
	err = v.update(ctx, Update{}, func(rec *Record, head *Head) error {
		if upto == 0 && len(head.Roots) == 0 {
			root = Root{}
			return errUnchanged
		}
		k := head.find(cmp.Or(upto, head.Newest().Upto))
		if k == nil {
			return v.gone(upto)
		}
		root = k.Root
		until := rec.Now + lasts.Microseconds()
		k.Pins = slices.DeleteFunc(k.Pins, func(p Pin) bool {
			if p.Holder == holder {
				until = max(until, p.Until)
			}
			return p.Holder == holder || p.Until <= rec.Now
		})
		k.Pins = append(k.Pins, Pin{holder, until})
		return nil
	})
	return root, err
}

func (v *Inventory) gone(upto uint64) error {
	return fmt.Errorf("set %q: snapshot %d: %w", v.set, upto, feed.ErrGone)
}

// Unpin removes the pin of a holder, if there is one.
func (v *Inventory) Unpin(ctx context.Context, upto uint64, holder string) error {
	return v.update(ctx, Update{}, func(_ *Record, head *Head) error {
		k := head.find(upto)
		if k == nil {
			return errUnchanged
		}
		before := len(k.Pins)
		k.Pins = slices.DeleteFunc(k.Pins, func(p Pin) bool { return p.Holder == holder })
		if len(k.Pins) == before {
			return errUnchanged
		}
		return nil
	})
}

// List marks a root as the root of a Resource List that is made now, by the store's clock. The root is kept
// until two newer ones are marked. List returns feed.ErrGone if the root was dropped.
func (w *Writer) List(ctx context.Context, upto uint64) error {
	return w.update(ctx, Update{}, func(rec *Record, head *Head) error {
		k := head.find(upto)
		if k == nil {
			return w.gone(upto)
		}
		k.Listed = rec.Now
		return nil
	})
}

// SetComplete sets the cursor from which on the hub knows all resources. The zero Cursor means that it does
// not, for the reason why. SetComplete returns ErrLog if the log does not hold the cursor. When it returns
// nil, a crash of the machine does not undo it.
func (v *Inventory) SetComplete(ctx context.Context, at feed.Cursor, why string) error {
	return v.update(ctx, Update{At: at, Durable: true}, func(_ *Record, head *Head) error {
		head.Complete, head.Why = at, why
		return nil
	})
}

// Shrink drops the roots that are not needed: it keeps the newest root, the roots of the two newest Resource
// Lists, and pinned roots up to MaxRoots in all. It calls Sweep if that is worthwhile. Commit does the same.
func (w *Writer) Shrink(ctx context.Context) error {
	due := false
	err := w.update(ctx, Update{}, func(rec *Record, head *Head) error {
		before := len(head.Roots)
		head.dropRoots(rec.Now)
		if due = head.sweepDue(rec.Now); len(head.Roots) == before {
			return errUnchanged
		}
		return nil
	})
	if err != nil || !due {
		return err
	}
	return w.Sweep(ctx)
}
