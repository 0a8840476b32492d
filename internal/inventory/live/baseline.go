package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// firstRoot is how long Baseline waits for the first root of a set.
const firstRoot = 5 * time.Second

// Baseline returns a root of a set, to read it as a baseline. It is the newest root, or
// one that others already read and that is hardly older. The log reaches back to its
// cursor. If the set has no root yet, Baseline waits up to firstRoot. If there is still
// none, Baseline returns the empty state before the first change, provided the log
// reaches back to it, and otherwise ErrBehind.
//
// Further errors are ErrTooMany, feed.ErrNoInventory and feed.ErrNoSet.
func (l *Live) Baseline(ctx context.Context, set string) (*inventory.Pinned, error) {
	until := time.Now().Add(firstRoot)
	return l.read(ctx, baselines, func(v *view) (*inventory.Pinned, error) {
		return v.baseline(ctx, !time.Now().Before(until))
	}, set, until)
}

// BaselineAt returns the root of a set at exactly the cursor at, to go on reading a
// baseline. It returns feed.ErrGone if that root was dropped; the reader must then begin
// a new baseline. The other errors are those of Baseline.
func (l *Live) BaselineAt(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	return l.read(ctx, baselines, func(v *view) (*inventory.Pinned, error) { return v.baselineAt(ctx, at) }, set, time.Time{})
}

func (v *view) baseline(ctx context.Context, late bool) (*inventory.Pinned, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	if head.Newest().Upto == 0 && rec.Log.Head != rec.Log.Floor && !late {
		v.live.maker.ask(v.set, false)
		return nil, fmt.Errorf("set %q: %w", v.set, errBare)
	}
	s, err := v.choose(ctx, &rec, head)
	if err != nil {
		return nil, err
	}
	b, err := v.live.log.Since(ctx, v.set, s.root.Cursor, 1)
	if errors.Is(err, feed.ErrGone) || err == nil && b.Diverged {
		err = fmt.Errorf("the log does not reach back to the root: %w", errMoved) // true until the maker makes another root
	}
	if err != nil {
		v.live.unuse(s)
		return nil, fmt.Errorf("set %q: %w", v.set, err)
	}
	return v.root(head, s), nil
}

func (v *view) baselineAt(ctx context.Context, at feed.Cursor) (*inventory.Pinned, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range head.Roots {
		if k.Cursor != at {
			continue
		}
		s, err := v.snapshot(ctx, k.Root)
		if err != nil {
			return nil, gone(err)
		}
		return v.root(head, s), nil
	}
	if at.IsZero() && rec.Log.Floor.Position == 0 {
		s, err := v.snapshot(ctx, inventory.Root{Begin: rec.Log.Begin})
		if err != nil {
			return nil, err
		}
		return v.root(head, s), nil
	}
	return nil, fmt.Errorf("set %q: the root at %v: %w", v.set, at, feed.ErrGone)
}

// root returns a Pinned of a snapshot's root. It takes over the caller's use of
// the snapshot.
func (v *view) root(head *inventory.Head, s *snapshot) *inventory.Pinned {
	return &inventory.Pinned{State: s.tree.State(), Tree: s.tree, Complete: head.IsComplete(s.root.Cursor), Release: func() { v.live.unuse(s) }}
}
