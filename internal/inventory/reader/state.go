package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

const (
	largeOverlay = 32 << 20        // bytes from which on the overlay moves to a newer root
	recentPeriod = 2 * time.Second // for which a state is new enough for State with a cursor
)

// State returns a state of a set at a cursor that is not before from. It waits for such a state, but no longer than
// patience. With the zero cursor it returns the newest state, at the head of the log, immediately.
//
// Its errors are ErrBehind, ErrTooMany, feed.ErrNoInventory, feed.ErrNoSet, and feed.ErrGone if the log does not know
// from, or does not reach it in time: then it has most likely lost its newest entries.
func (r *Reader) State(ctx context.Context, set string, from feed.Cursor, patience time.Duration) (*inventory.Pinned, error) {
	return r.read(ctx, query{set: set, gate: r.states, until: time.Now().Add(patience), plan: func(v *view, rec *record, _ bool) (plan, error) {
		return v.planFrom(ctx, rec, from)
	}})
}

// At returns the state of a set at exactly the cursor at: a cached state, or one made from the log and a root that is
// not newer. It returns feed.ErrGone if neither is possible; the caller should call State. Its other errors are those
// of State, except ErrBehind.
func (r *Reader) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	return r.read(ctx, query{set: set, gate: r.states, exact: true, plan: func(v *view, rec *record, _ bool) (plan, error) {
		return v.planAt(ctx, rec, at)
	}})
}

// planFrom plans a cached state if one at or after from was made a moment ago, or else the state at the head of the
// log, for which it extends the overlay. But the overlay moves to
//   - the root that chooseRoot prefers, if its own root was dropped, or if there is no overlay;
//   - the newest root, if it is large or its root is old.
func (v *view) planFrom(ctx context.Context, rec *record, from feed.Cursor) (plan, error) {
	if !from.IsZero() {
		if err := v.verify(ctx, rec, from); err != nil {
			return plan{}, err
		}
		if s, err := v.usable(ctx, rec, v.recentState(from)); s != nil || err != nil {
			return plan{cached: s}, err
		}
	}
	var err error
	o, root := v.overlay, rec.head.Newest()
	switch {
	case o == nil || !rec.has(o.root):
		root, err = v.chooseRoot(ctx, rec)
	case o.changes.Bytes() <= largeOverlay && !old(&o.root, rec.Now):
		root = o.root
	}
	return plan{root: root, to: rec.Log.Head, retain: true}, err
}

// planAt plans the state at exactly a cursor. If it is before the overlay's cursor, it is made from the last root
// before it. The overlay remains, because the next states are most likely newer ones:
//
//	root A ───────────── root B ─────────────────────── head of the log
//	                     overlay ══════════════════▶
//	temporary overlay ═▶ at
func (v *view) planAt(ctx context.Context, rec *record, at feed.Cursor) (plan, error) {
	if at.IsZero() {
		at = rec.Log.Floor
	}
	if s, err := v.usable(ctx, rec, v.stateAt(at)); s != nil || err != nil {
		return plan{cached: s}, err
	}
	root, o := rec.before(at.Position), v.overlay
	if o != nil && rec.has(o.root) && o.reaches(at) {
		root = o.root
	}
	return plan{root: root, to: at}, v.verify(ctx, rec, at)
}

// verify returns nil if the log knows a cursor, errEarly if it may reach the cursor, and feed.ErrGone otherwise.
func (v *view) verify(ctx context.Context, rec *record, at feed.Cursor) error {
	if head := rec.Log.Head; at.Position > head.Position && at.Micros > head.Micros {
		return fmt.Errorf("log at %v, want %v: %w", head, at, errEarly)
	}
	known, err := v.knows(ctx, at)
	if err == nil && !known {
		err = fmt.Errorf("cursor %v is not in the log: %w", at, feed.ErrGone)
	}
	return err
}

// usable returns a cached state, which may be nil, if it is still a state of the set: its root exists, and the log
// knows its cursor or has removed it because of retention. Otherwise usable releases the state and returns nil.
func (v *view) usable(ctx context.Context, rec *record, s *cachedState) (*cachedState, error) {
	if s == nil {
		return nil, nil
	}
	ok, err := rec.has(s.overlay.root), error(nil)
	if at := s.Cursor(); ok && at.Position >= rec.Log.Floor.Position {
		ok, err = v.knows(ctx, at)
	}
	if !ok {
		s.release()
		return nil, err
	}
	return s, nil
}

// makeState makes the state of a plan, and caches it. If the view's overlay cannot be extended to it, a new one
// replaces the overlay if the plan says so, or is discarded in the end.
func (v *view) makeState(ctx context.Context, rec *record, p plan) (s *cachedState, err error) {
	o := v.overlay
	if o == nil || o.root.Upto != p.root.Upto || !o.reaches(p.to) {
		snap, err := v.snapshot(ctx, p.root)
		if err != nil {
			return nil, err
		}
		o = newOverlay(v, snap, rec)
		if p.retain {
			v.discard(v.overlay)
			v.overlay = o
		}
	}
	if err = o.extend(ctx, p.to); err == nil {
		s = v.addState(o)
	}
	if err != nil || o != v.overlay {
		v.discard(o)
	}
	if p.retain && (errors.Is(err, ErrBehind) || errors.Is(err, ErrTooMany)) && p.root.Upto != rec.head.Newest().Upto {
		v.tooOld = p.root.Upto
		err = fmt.Errorf("%v: %w", err, errMoved) // there is a newer root, with fewer changes after it
	}
	return s, err
}

// pinState returns a cached state for the reader that has a reference to it.
func (v *view) pinState(ctx context.Context, rec *record, s *cachedState) (*inventory.Pinned, error) {
	complete := rec.head.IsComplete(s.Cursor())
	if complete && rec.head.Complete.Position > s.overlay.root.Cursor.Position { // else the writer has verified it
		var err error
		if complete, err = v.knows(ctx, rec.head.Complete); err != nil {
			s.release()
			return nil, err
		}
	}
	return &inventory.Pinned{State: s.State, Tree: s.overlay.tree, Complete: complete, Release: s.release}, nil
}
