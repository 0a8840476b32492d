package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// firstRootTimeout is how long Baseline waits for the first root of a set.
const firstRootTimeout = 5 * time.Second

// Baseline returns a root of a set, to be read as a baseline: the newest root, or one that is hardly older and that
// others already read. The log reaches back to its cursor. If the set has no root yet, Baseline waits for up to 5
// seconds. If there is still no root, Baseline returns the empty state before the first change, provided that the log
// reaches back to it, and otherwise ErrBehind.
//
// Its other errors are ErrTooMany, feed.ErrNoInventory and feed.ErrNoSet.
func (r *Reader) Baseline(ctx context.Context, set string) (*inventory.Pinned, error) {
	var requested sync.Once
	return r.read(ctx, query{set: set, gate: r.baselines, until: time.Now().Add(firstRootTimeout), plan: func(v *view, rec *record, last bool) (plan, error) {
		if len(rec.head.Roots) == 0 && rec.Log.Head != rec.Log.Floor && !last {
			requested.Do(func() { r.opts.Request(v.set, false) })
			return plan{}, fmt.Errorf("no root: %w", errEarly)
		}
		root, err := v.chooseRoot(ctx, rec)
		if err != nil {
			return plan{}, err
		}
		b, err := r.log.Since(ctx, v.set, root.Cursor, 1)
		if errors.Is(err, feed.ErrGone) || err == nil && b.Diverged {
			err = errMoved // until the writer commits another root
		}
		if err != nil {
			return plan{}, fmt.Errorf("read log after root at %v: %w", root.Cursor, err)
		}
		return plan{root: root}, nil
	}})
}

// BaselineAt returns the root of a set at exactly the cursor at, to continue a baseline. It returns feed.ErrGone if
// that root was dropped; the caller must start over. Its other errors are as for Baseline, except ErrBehind.
func (r *Reader) BaselineAt(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	return r.read(ctx, query{set: set, gate: r.baselines, exact: true, plan: func(_ *view, rec *record, _ bool) (plan, error) {
		i := slices.IndexFunc(rec.head.Roots, func(k inventory.Kept) bool { return k.Cursor == at })
		switch {
		case i >= 0:
			return plan{root: rec.head.Roots[i].Root}, nil
		case at.IsZero() && rec.Log.Floor.Position == 0:
			return plan{}, nil
		}
		return plan{}, fmt.Errorf("root at %v: %w", at, feed.ErrGone)
	}})
}

// pinRoot returns a root for a reader.
func (v *view) pinRoot(ctx context.Context, rec *record, root inventory.Root) (*inventory.Pinned, error) {
	s, err := v.snapshot(ctx, root)
	if err != nil {
		return nil, err
	}
	return &inventory.Pinned{State: s.tree.State(), Tree: s.tree, Complete: rec.head.IsComplete(root.Cursor), Release: func() {
		v.reader.mu.Lock()
		defer v.reader.mu.Unlock()
		s.unuseLocked()
	}}, nil
}
