package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A List is the root of a Resource List.
type List struct {
	*inventory.Pinned
	Completed time.Time // when a Resource List was made of the root, to the microsecond, in UTC
}

// ResourceList returns the root of the Resource List of a set at the cursor at, or of the newest one for the zero
// cursor. The one before the newest exists, too. All hubs return the same.
//
// It returns ErrIncomplete if there is no list, feed.ErrGone if the list at that cursor was dropped,
// feed.ErrNoInventory or feed.ErrNoSet.
func (r *Reader) ResourceList(ctx context.Context, set string, at feed.Cursor) (*List, error) {
	inv := r.inventory(set)
	rec, err := load(ctx, inv)
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", set, err)
	}
	lists := 0
	for _, k := range slices.Backward(rec.head.Roots) {
		if k.Listed == 0 || !rec.head.IsComplete(k.Cursor) {
			continue
		}
		if lists++; lists <= 2 && (at.IsZero() || at == k.Cursor) {
			t := inv.Tree(k.Root) // without a pin: the record retains the root
			p := &inventory.Pinned{State: t.State(), Tree: t, Complete: true, Release: func() {}}
			return &List{Pinned: p, Completed: time.UnixMicro(k.Listed).UTC()}, nil
		}
	}
	if lists == 0 {
		return nil, fmt.Errorf("set %q: %w", set, ErrIncomplete)
	}
	return nil, fmt.Errorf("set %q: Resource List at %v: %w", set, at, feed.ErrGone)
}

// maxLogChanges is the maximum number of tries of SetComplete while the log changes.
const maxLogChanges = 5

// SetComplete sets whether the hub knows all resources of a set, as of the head of its log. When it returns nil,
// this is durable. Its errors are feed.ErrNoInventory and feed.ErrNoSet.
func (r *Reader) SetComplete(ctx context.Context, set string, complete bool) error {
	inv := r.inventory(set)
	for try := 1; ; try++ {
		rec, err := load(ctx, inv)
		if err != nil {
			return fmt.Errorf("set %q: %w", set, err)
		}
		at, why := rec.Log.Head, ""
		if !complete {
			at, why = feed.Cursor{}, "declared by a publisher"
		}
		err = inv.SetComplete(ctx, at, why)
		if errors.Is(err, inventory.ErrLog) && try < maxLogChanges {
			continue // the set was created again, or its log lost entries
		}
		if err != nil {
			return fmt.Errorf("set %q: set complete: %w", set, err)
		}
		r.opts.Request(inv.Set(), false) // for a Resource List soon
		return nil
	}
}
