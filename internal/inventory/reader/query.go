package reader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
)

// A query is a call of a Reader for a state or a baseline.
type query struct {
	set   string
	gate  *gate
	until time.Time // end of the wait after errEarly
	exact bool      // whether the caller needs one certain result: if it cannot be made, it is gone

	// plan decides how to get the result. It may return errEarly unless last is set.
	plan func(v *view, rec *record, last bool) (plan, error)
}

// A plan is the source of a query's result: a cached state, the root, or the root with the changes up to a cursor.
type plan struct {
	cached *cachedState   // with a reference for the reader, or nil
	root   inventory.Root // if cached is nil
	to     feed.Cursor    // zero means the root itself
	retain bool           // whether the view retains the overlay, to extend it for later states
}

// Internal errors of a query. The caller gets an error of package feed or ErrBehind instead.
var (
	errMoved = errors.New("the log or the roots have changed") // try again
	errEarly = errors.New("not reached yet")                   // wait
)

const (
	earlyInterval = 50 * time.Millisecond // between two tries after errEarly
	maxMoves      = 4                     // maximum number of tries that end with errMoved
)

// read executes a query unless too many are in progress.
func (r *Reader) read(ctx context.Context, q query) (*inventory.Pinned, error) {
	leave, err := q.gate.enter(limit.FromContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", q.set, err)
	}
	p, err := r.retry(ctx, q)
	if err != nil {
		leave()
		if errors.Is(err, ErrBehind) {
			r.opts.Request(strings.Clone(q.set), false)
		}
		return nil, fmt.Errorf("set %q: %w", q.set, err)
	}
	release := p.Release
	p.Release = sync.OnceFunc(func() {
		release()
		leave()
	})
	return p, nil
}

// retry tries a query until it gets a result, and replaces internal errors.
func (r *Reader) retry(ctx context.Context, q query) (*inventory.Pinned, error) {
	var seen *record // of the last try that ended with errMoved
	for moves := 1; ; {
		last := !time.Now().Before(q.until)
		p, rec, err := r.try(ctx, q, last)
		switch {
		case errors.Is(err, errMoved) && moves < maxMoves && !(q.exact && rec.equal(seen)): // else nothing has moved
			moves++
			seen = rec
		case errors.Is(err, errEarly) && !last:
			if err := backoff.Sleep(ctx, earlyInterval); err != nil {
				return nil, err
			}
		case errors.Is(err, errEarly), // the log has most likely lost the cursor: waiting would never end
			q.exact && (errors.Is(err, errMoved) || errors.Is(err, ErrBehind)):
			return nil, fmt.Errorf("%v: %w", err, feed.ErrGone)
		case errors.Is(err, errMoved):
			return nil, fmt.Errorf("%v: %w", err, ErrBehind)
		default:
			return p, err
		}
	}
}

// try plans a query and executes the plan, while it has the view of the set for itself. It also returns the record that
// it has read, or nil.
func (r *Reader) try(ctx context.Context, q query, last bool) (*inventory.Pinned, *record, error) {
	v, err := r.lockView(ctx, q.set)
	if err != nil {
		return nil, nil, err
	}
	defer v.unlock()
	rec, err := v.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := q.plan(v, rec, last)
	if err != nil {
		return nil, rec, err
	}
	result, err := v.execute(ctx, rec, p)
	return result, rec, err
}

// execute executes a plan.
func (v *view) execute(ctx context.Context, rec *record, p plan) (*inventory.Pinned, error) {
	s := p.cached
	if s == nil && p.to.IsZero() {
		return v.pinRoot(ctx, rec, p.root)
	}
	if s == nil {
		var err error
		if s, err = v.makeState(ctx, rec, p); err != nil {
			return nil, err
		}
	}
	return v.pinState(ctx, rec, s)
}
