package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
)

// MaxRoots is how many roots of a set live. If more are needed, the oldest that is
// pinned dies.
const MaxRoots = 4

// needed says which roots are needed: the newest, the two newest of a Resource List, and,
// from the newest on and as long as there are no more than MaxRoots, those that are
// pinned.
func (h *Head) needed(now int64) []bool {
	needed := make([]bool, len(h.Roots))
	count, listed := 0, 0
	need := func(i int) {
		if !needed[i] {
			needed[i] = true
			count++
		}
	}
	for i, k := range slices.Backward(h.Roots) {
		if i == len(h.Roots)-1 {
			need(i)
		}
		if k.Listed != 0 && listed < 2 {
			need(i)
			listed++
		}
	}
	for i, k := range slices.Backward(h.Roots) {
		if count < MaxRoots && k.pinned(now) {
			need(i)
		}
	}
	return needed
}

func (k *Kept) pinned(now int64) bool {
	return slices.ContainsFunc(k.Pins, func(p Pin) bool { return p.Until > now })
}

// Pin keeps a root for a holder, for as long as lasts, and returns the root. It prolongs a
// pin that the holder has, and never shortens it. upto identifies the root, 0 is the
// newest. If the root lives no more, Pin returns feed.ErrGone. An inventory without a root
// has nothing to pin: Pin returns the zero Root, which can be read.
func (v *Inventory) Pin(ctx context.Context, upto uint64, holder string, lasts time.Duration) (root Root, err error) {
	err = v.update(ctx, Swap{}, func(rec *Record, head *Head) error {
		if upto == 0 && len(head.Roots) == 0 {
			root = Root{}
			return errSame
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

// Unpin takes a holder's pin away. No pin is no error.
func (v *Inventory) Unpin(ctx context.Context, upto uint64, holder string) error {
	return v.update(ctx, Swap{}, func(_ *Record, head *Head) error {
		k := head.find(upto)
		if k == nil {
			return errSame
		}
		before := len(k.Pins)
		k.Pins = slices.DeleteFunc(k.Pins, func(p Pin) bool { return p.Holder == holder })
		if len(k.Pins) == before {
			return errSame
		}
		return nil
	})
}

// List marks a root as that of a Resource List, of a time in microseconds since 1970. It
// lives until two newer ones are marked. feed.ErrGone if the root lives no more.
func (v *Inventory) List(ctx context.Context, upto uint64, at int64) error {
	return v.update(ctx, Swap{}, func(_ *Record, head *Head) error {
		k := head.find(upto)
		if k == nil {
			return v.gone(upto)
		}
		k.Listed = at
		return nil
	})
}

// SetComplete says as of which cursor the hub knows all resources; the zero Cursor: it
// does not, because of why. The log has to hold the cursor, else it is ErrLog. When
// SetComplete returns nil, a crash of the machine does not undo it.
func (v *Inventory) SetComplete(ctx context.Context, at feed.Cursor, why string) error {
	return v.update(ctx, Swap{At: at, Durable: true}, func(_ *Record, head *Head) error {
		head.Complete, head.Why = at, why
		return nil
	})
}

// Shrink drops the roots that nobody needs: that are not the newest, not pinned, and not
// one of the two newest of a Resource List; and the oldest pinned ones beyond MaxRoots.
// It removes the pages that died with them, and what a commit that failed has left.
// Commit does the same.
func (v *Inventory) Shrink(ctx context.Context) error {
	a, err := v.begin(ctx, func(rec *Record, head *Head) error {
		if !slices.Contains(head.needed(rec.Now), false) && rec.Attempt == 0 && len(head.Reserved) == 0 && head.Trash == 0 && head.Sweep == 0 {
			return errSame
		}
		return nil
	})
	if err == errSame {
		return nil
	}
	if err != nil {
		return err
	}
	return a.finish(nil, nil, Swap{}, nil)
}
