package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/inventory"
)

var (
	errEarly = errors.New("the log is not there yet") // it has not got to a cursor
	errBare  = errors.New("no root is made yet")
)

const (
	earlyEvery = 50 * time.Millisecond // between two looks for a state that is not there yet
	moveTries  = 4                     // how often something is begun anew that moved meanwhile
)

// State returns a state of a set at a cursor S that is not before from. It waits for
// such a state, but no longer than patience. With the zero cursor it returns the newest
// state, at the head of the log, at once.
//
// ErrBehind, ErrTooMany, feed.ErrNoInventory, feed.ErrNoSet, feed.ErrGone when the log does not
// know from, or does not get there in time: then it has most likely lost its tail.
func (l *Live) State(ctx context.Context, set string, from feed.Cursor, patience time.Duration) (*Held, error) {
	until := time.Now().Add(patience)
	return l.read(ctx, states, func(v *view) (*Held, error) { return v.from(ctx, from) }, set, until)
}

// At returns the state of a set at exactly the cursor at: one that is kept, or one that
// is made of a root that is not newer, and the log. feed.ErrGone when neither is
// possible: then the caller looks anew, see State. The other errors are those of State.
func (l *Live) At(ctx context.Context, set string, at feed.Cursor) (*Held, error) {
	return l.read(ctx, states, func(v *view) (*Held, error) { return v.exactly(ctx, at) }, set, time.Time{})
}

// read does something for a reader, in the turn of a set. It does it again if something
// moved meanwhile, and until a time also if it was too early.
func (l *Live) read(ctx context.Context, kind reader, do func(*view) (*Held, error), set string, until time.Time) (*Held, error) {
	if !l.admit(kind) {
		return nil, fmt.Errorf("set %q: %w", set, ErrTooMany)
	}
	for try := 1; ; {
		v, err := l.enter(ctx, set)
		if err != nil {
			l.dismiss(kind)
			return nil, err
		}
		h, err := do(v)
		v.leave()
		switch {
		case err == nil:
			release := h.release
			h.release = sync.OnceFunc(func() {
				release()
				l.dismiss(kind)
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
			err = fmt.Errorf("%w: %w", err, ErrBehind)
		case errors.Is(err, errEarly): // the log has lost the cursor: to ask again would never end
			err = fmt.Errorf("%w: %w", err, feed.ErrGone)
		}
		l.dismiss(kind)
		return nil, err
	}
}

// from returns a state that is not before a cursor. The caller has v's turn.
func (v *view) from(ctx context.Context, from feed.Cursor) (*Held, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	upto := rec.Log.Head.Position
	if !from.IsZero() {
		if from.Position > upto {
			if from.Micros <= rec.Log.Head.Micros { // it is of a log that was lost, or of an earlier one
				return nil, fmt.Errorf("set %q: the log does not know %v: %w", v.set, from, feed.ErrGone)
			}
			return nil, fmt.Errorf("set %q: %v: %w", v.set, from, errEarly)
		}
		if err := v.verify(ctx, from); err != nil {
			return nil, err
		}
		if k := v.newest(); k != nil {
			if k.state.Cursor().Position >= from.Position && alive(head, k.snap.root) && v.verify(ctx, k.state.Cursor()) == nil {
				return v.held(ctx, head, k)
			}
			k.released()
		}
	}
	if err := v.settle(ctx, &rec, head); err != nil {
		return nil, err
	}
	err = v.read(ctx, upto)
	if err == nil && v.at != rec.Log.Head { // reading has found nothing that could tell
		err = v.known(ctx)
	}
	if err != nil {
		v.drop()
		if errors.Is(err, ErrBehind) {
			v.live.maker.ask(v.set, false)
		}
		return nil, err
	}
	return v.held(ctx, head, v.keep(v.overlay.State(v.at), v.base, 0))
}

// verify returns nil if the log knows a cursor, and feed.ErrGone if not.
func (v *view) verify(ctx context.Context, at feed.Cursor) error {
	known, err := v.live.knows(ctx, v.set, at)
	if err == nil && !known {
		err = fmt.Errorf("set %q: the log does not know %v: %w", v.set, at, feed.ErrGone)
	}
	return err
}

// known returns errMoved if the log does not know the cursor that the overlay is at: it has
// lost its tail, and may have got as far again since.
func (v *view) known(ctx context.Context) error {
	known, err := v.live.knows(ctx, v.set, v.at)
	if err == nil && !known {
		err = fmt.Errorf("set %q: %v: %w", v.set, v.at, errMoved)
	}
	return err
}

// held returns a state for a reader, who is counted in k already.
func (v *view) held(ctx context.Context, head *inventory.Head, k *kept) (*Held, error) {
	complete, err := v.live.complete(ctx, v.set, head, k.snap.root, k.state.Cursor())
	if err != nil {
		k.released()
		return nil, err
	}
	return &Held{State: k.state, Begin: v.begin, Complete: complete, tree: k.snap.tree, release: k.released}, nil
}

// exactly returns the state at a cursor. The caller has v's turn.
func (v *view) exactly(ctx context.Context, at feed.Cursor) (*Held, error) {
	rec, head, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	k := v.take(at)
	if k != nil && alive(head, k.snap.root) && (rec.Log.Floor.Position > at.Position || v.verify(ctx, at) == nil) {
		return v.held(ctx, head, k)
	}
	if k != nil {
		k.released()
	}
	if at.IsZero() {
		at = rec.Log.Floor
	}
	if err := v.verify(ctx, at); err != nil {
		return nil, err
	}
	if v.overlay == nil || v.at.Position > at.Position || v.at.Position == at.Position && v.at != at || !alive(head, v.base.root) {
		return v.back(ctx, &rec, head, at)
	}
	if err := v.read(ctx, at.Position); err != nil {
		v.drop()
		return nil, gone(err)
	}
	return v.held(ctx, head, v.keep(v.overlay.State(v.at), v.base, 0))
}

// back returns the state at a cursor that lies before the overlay's, of a root that
// is not newer.
func (v *view) back(ctx context.Context, rec *inventory.Record, head *inventory.Head, at feed.Cursor) (*Held, error) {
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
	v.live.bytes -= charged // keep charges it
	v.live.mu.Unlock()
	if err == nil && to != at {
		err = fmt.Errorf("set %q: %v: %w", v.set, to, errMoved) // the root is of what the log has lost
	}
	if err != nil {
		return nil, gone(err)
	}
	return v.held(ctx, head, v.keep(o.State(to), s, charged))
}

// gone makes an error in which a state cannot be made of the log any more feed.ErrGone.
func gone(err error) error {
	if errors.Is(err, errMoved) || errors.Is(err, ErrBehind) {
		return fmt.Errorf("%w: %w", err, feed.ErrGone)
	}
	return err
}

// A reader is a kind of readers.
type reader int

const (
	states reader = iota
	baselines
)

// admit lets a reader in, if there are not too many of its kind.
func (l *Live) admit(kind reader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading[kind] >= [...]int{l.opts.States, l.opts.Baselines}[kind] {
		l.metrics.refused[kind].Inc()
		return false
	}
	l.reading[kind]++
	l.metrics.reads[kind].Inc()
	return true
}

// dismiss says that a reader has finished.
func (l *Live) dismiss(kind reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading[kind]--
}
