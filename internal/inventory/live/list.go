package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A List is the root of a Resource List. Its at is the datetime of its cursor.
type List struct {
	*inventory.Pinned
	Completed time.Time // when the root was marked for a Resource List, to the microsecond, in UTC
}

// listed returns the roots of the two newest Resource Lists, oldest first. It returns
// none if the inventory is not complete.
func listed(h *inventory.Head) []inventory.Kept {
	var lists []inventory.Kept
	for _, k := range h.Roots {
		if k.Listed > 0 && h.IsComplete(k.Cursor) {
			lists = append(lists, k)
		}
	}
	return lists[max(0, len(lists)-2):]
}

// listDue reports whether a Resource List is due, with a root at the cursor up to
// which the log is read.
func (j *job) listDue(now time.Time) bool {
	to := j.to
	if to.IsZero() {
		to = j.state.Floor
	}
	if j.head == nil || !j.head.IsComplete(to) {
		return false
	}
	lists := listed(j.head)
	if len(lists) == 0 {
		return true
	}
	last := lists[len(lists)-1]
	age := now.Add(j.ahead).Sub(time.UnixMicro(last.Listed))
	return last.Cursor != to && (age >= j.maker.live.opts.List || age < 0) // below 0: the clock was set back
}

// list marks the newest root as that of a Resource List.
func (j *job) list(ctx context.Context) error {
	if err := j.inv.List(ctx, j.root.Upto); err != nil {
		return fmt.Errorf("set %q: make Resource List: %w", j.set, err)
	}
	j.maker.live.metrics.lists.Inc()
	if err := j.inv.Shrink(ctx); err != nil { // drops the root of the list before the last
		return err
	}
	return j.load(ctx)
}

// ResourceList returns the root of the Resource List of a set at the cursor at; with the
// zero cursor, of the newest one. The one before the newest is kept, too. All hubs
// return the same.
//
// It returns ErrIncomplete while there is no list, feed.ErrGone if the list at that
// cursor was dropped, feed.ErrNoInventory or feed.ErrNoSet.
func (l *Live) ResourceList(ctx context.Context, set string, at feed.Cursor) (*List, error) {
	v := l.inventory(set)
	_, head, err := load(ctx, v)
	if err != nil {
		return nil, err
	}
	lists := listed(head)
	if len(lists) == 0 {
		return nil, fmt.Errorf("set %q: %w", set, ErrIncomplete)
	}
	for _, k := range slices.Backward(lists) {
		if at.IsZero() || k.Cursor == at {
			t := v.Tree(k.Root)
			p := &inventory.Pinned{State: t.State(), Tree: t, Complete: true, Release: func() {}}
			return &List{Pinned: p, Completed: time.UnixMicro(k.Listed).UTC()}, nil
		}
	}
	return nil, fmt.Errorf("set %q: the Resource List at %v: %w", set, at, feed.ErrGone)
}

// load reads the record of a set that has an inventory.
func load(ctx context.Context, v *inventory.Inventory) (inventory.Record, *inventory.Head, error) {
	rec, head, err := v.Load(ctx)
	if err == nil && rec.Log.NoInventory {
		err = fmt.Errorf("set %q: %w", v.Set(), errOff)
	}
	return rec, head, err
}
