package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
)

var (
	errEarly = errors.New("the log has not reached the cursor") // the log has not reached the cursor
	errBare  = errors.New("the inventory has no root yet")
)

const (
	earlyEvery = 50 * time.Millisecond // between two looks for a state that is not there yet
	moveTries  = 4                     // how often a read is tried if the log or the roots change meanwhile
)

// State returns a state of a set at a cursor S that is not before from. It waits for
// such a state, but no longer than patience. With the zero cursor it returns the newest
// state, at the head of the log, at once.
//
// Its errors are ErrBehind, ErrTooMany, feed.ErrNoInventory, feed.ErrNoSet, and
// feed.ErrGone when the log does not know from, or does not reach it in time: then it
// has most likely lost its newest entries.
func (l *Live) State(ctx context.Context, set string, from feed.Cursor, patience time.Duration) (*inventory.Pinned, error) {
	until := time.Now().Add(patience)
	return l.read(ctx, states, func(v *view) (*inventory.Pinned, error) { return v.from(ctx, from) }, set, until)
}

// At returns the state of a set at exactly the cursor at: a kept state, or one made
// from the log and a root that is not newer. It returns feed.ErrGone when neither is
// possible; the caller then has to call State. The other errors are those of State.
func (l *Live) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	return l.read(ctx, states, func(v *view) (*inventory.Pinned, error) { return v.exactly(ctx, at) }, set, time.Time{})
}

// read calls do for a reader, with the turn of a set. It tries again if the log or the
// roots changed meanwhile. Until the time until, it also tries again if the log has not
// reached the cursor.
func (l *Live) read(ctx context.Context, kind reader, do func(*view) (*inventory.Pinned, error), set string, until time.Time) (*inventory.Pinned, error) {
	user := limit.FromContext(ctx)
	if !l.admit(user, kind) {
		return nil, fmt.Errorf("set %q: %w", set, ErrTooMany)
	}
	for try := 1; ; {
		v, err := l.enter(ctx, set)
		if err != nil {
			l.dismiss(user, kind)
			return nil, err
		}
		h, err := do(v)
		v.leave()
		switch {
		case err == nil:
			release := h.Release
			h.Release = sync.OnceFunc(func() {
				release()
				l.dismiss(user, kind)
			})
			return h, nil
		case errors.Is(err, errMoved) && try < moveTries:
			try++
			continue
		case (errors.Is(err, errEarly) || errors.Is(err, errBare)) && time.Now().Before(until):
			if backoff.Sleep(ctx, earlyEvery) == nil {
				continue
			}
			err = fmt.Errorf("set %q: %w", set, ctx.Err())
		case errors.Is(err, errMoved), errors.Is(err, errBare):
			l.maker.ask(set, false) // with another root there is a state
			err = fmt.Errorf("%w: %w", err, ErrBehind)
		case errors.Is(err, errEarly): // the log has most likely lost the cursor: waiting would never end
			err = fmt.Errorf("%w: %w", err, feed.ErrGone)
		}
		l.dismiss(user, kind)
		return nil, err
	}
}

// from returns a state that is not before a cursor. The caller has v's turn.
func (v *view) from(ctx context.Context, from feed.Cursor) (*inventory.Pinned, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	upto := rec.Log.Head.Position
	if !from.IsZero() {
		if from.Position > upto {
			if from.Micros <= rec.Log.Head.Micros { // the cursor is from lost entries, or from an earlier log
				return nil, fmt.Errorf("set %q: cursor %v is not in the log: %w", v.set, from, feed.ErrGone)
			}
			return nil, fmt.Errorf("set %q: %v: %w", v.set, from, errEarly)
		}
		if err := v.verify(ctx, from, feed.ErrGone); err != nil {
			return nil, err
		}
		if k := v.newest(); k != nil {
			if k.state.Cursor().Position >= from.Position && alive(head, k.snap.root) && v.verify(ctx, k.state.Cursor(), feed.ErrGone) == nil {
				return v.pinned(ctx, head, k)
			}
			k.released()
		}
	}
	if err := v.settle(ctx, &rec, head); err != nil {
		return nil, err
	}
	err = v.read(ctx, upto)
	if err == nil && v.at != rec.Log.Head { // the read found no change, so it did not verify the cursor
		err = v.verify(ctx, v.at, errMoved)
	}
	if err != nil {
		v.drop()
		if errors.Is(err, ErrBehind) {
			v.live.maker.ask(v.set, false)
		}
		return nil, err
	}
	return v.pinned(ctx, head, v.keep(v.overlay.State(v.at), v.base, 0))
}

// verify returns nil if the log knows a cursor, and the error lost if not. The log has then
// lost its newest entries, and may have reached the same position again.
func (v *view) verify(ctx context.Context, at feed.Cursor, lost error) error {
	known, err := v.live.knows(ctx, v.set, at)
	if err == nil && !known {
		err = fmt.Errorf("set %q: cursor %v is not in the log: %w", v.set, at, lost)
	}
	return err
}

// pinned returns a state for a reader that k already counts.
func (v *view) pinned(ctx context.Context, head *inventory.Head, k *kept) (*inventory.Pinned, error) {
	complete, err := v.live.complete(ctx, v.set, head, k.snap.root, k.state.Cursor())
	if err != nil {
		k.released()
		return nil, err
	}
	return &inventory.Pinned{State: k.state, Tree: k.snap.tree, Complete: complete, Release: k.released}, nil
}

// exactly returns the state at a cursor. The caller has v's turn.
func (v *view) exactly(ctx context.Context, at feed.Cursor) (*inventory.Pinned, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	k := v.take(at)
	if k != nil && alive(head, k.snap.root) && (rec.Log.Floor.Position > at.Position || v.verify(ctx, at, feed.ErrGone) == nil) {
		return v.pinned(ctx, head, k)
	}
	if k != nil {
		k.released()
	}
	if at.IsZero() {
		at = rec.Log.Floor
	}
	if err := v.verify(ctx, at, feed.ErrGone); err != nil {
		return nil, err
	}
	if v.overlay == nil || v.at.Position > at.Position || v.at.Position == at.Position && v.at != at || !alive(head, v.base.root) {
		return v.back(ctx, &rec, head, at)
	}
	if err := v.read(ctx, at.Position); err != nil {
		v.drop()
		return nil, gone(err)
	}
	return v.pinned(ctx, head, v.keep(v.overlay.State(v.at), v.base, 0))
}

// back returns the state at a cursor that lies before the overlay's. It makes the
// state from a root that is not newer.
func (v *view) back(ctx context.Context, rec *inventory.Record, head *inventory.Head, at feed.Cursor) (*inventory.Pinned, error) {
	var root inventory.Root
	for i := range head.Roots {
		if r := head.Roots[i].Root; r.Cursor.Position <= at.Position {
			root = r
		}
	}
	s, err := v.snapshot(ctx, root)
	if err != nil {
		return nil, err
	}
	defer v.live.unuse(s)
	o, charged := inventory.NewOverlay(s.tree), 0
	charge := func(int) {
		v.live.mu.Lock()
		defer v.live.mu.Unlock()
		v.live.bytes += o.Bytes() - charged
		charged = o.Bytes()
	}
	to, err := v.live.fill(ctx, v.set, o, start(root, rec.Log), at.Position, charge)
	v.live.mu.Lock()
	v.live.bytes -= charged // keep charges this memory
	v.live.mu.Unlock()
	if err == nil && to != at {
		err = fmt.Errorf("set %q: %v: %w", v.set, to, errMoved) // the root has entries that the log has lost
	}
	if err != nil {
		return nil, gone(err)
	}
	return v.pinned(ctx, head, v.keep(o.State(to), s, charged))
}

// gone adds feed.ErrGone to an error that means that the state cannot be made from the
// log any more.
func gone(err error) error {
	if errors.Is(err, errMoved) || errors.Is(err, ErrBehind) {
		return fmt.Errorf("%w: %w", err, feed.ErrGone)
	}
	return err
}

// A reader is a kind of reader.
type reader int

const (
	states reader = iota
	baselines
)

// A reads is who reads, and how.
type reads struct {
	user *limit.User // nil: the hub itself, and whoever has no limits
	kind reader
}

// admit counts a reader, unless there are too many of its kind. One user has half of the places
// at most: it may read as slowly as it likes, and others must not wait for that. admit reports
// whether it did.
func (l *Live) admit(user *limit.User, kind reader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := [...]int{l.opts.States, l.opts.Baselines}[kind]
	if l.reading[kind] >= most || user != nil && l.of[reads{user, kind}] >= (most+1)/2 {
		l.metrics.refused[kind].Inc()
		return false
	}
	l.reading[kind]++
	l.of[reads{user, kind}]++
	l.metrics.reads[kind].Inc()
	return true
}

// dismiss counts a reader less.
func (l *Live) dismiss(user *limit.User, kind reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading[kind]--
	if l.of[reads{user, kind}]--; l.of[reads{user, kind}] == 0 {
		delete(l.of, reads{user, kind})
	}
}
