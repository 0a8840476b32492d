package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// Sync lists the source, and publishes every change that the hub does not know yet:
// first created and updated resources, then deleted ones, each in the order of loc. If
// nothing has changed, Sync needs one small request.
//
// An error means that the hub and the source may still differ. The changes published
// until then are right; the next Sync publishes the rest. A *TooMany means that nothing
// was published. If the list cannot be read to its end, nothing is published either.
func (s *Source) Sync(ctx context.Context) (Result, error) {
	if err := s.Close(); err != nil {
		return Result{}, err
	}
	h, err := newHolding(&s.opts)
	if err != nil {
		return Result{}, err
	}
	r := &run{Source: s, holding: h, gaps: map[string]bool{}}
	if err := r.sync(ctx); err != nil {
		_ = h.close() // the first error is more useful
		return r.result, err
	}
	s.holding, s.changes = h, r.changes
	s.head, s.held = r.result.Cursor, max(s.held, r.result.Listed)
	return r.result, nil
}

type run struct {
	*Source
	holding *holding // the list

	gaps   map[string]bool // locs
	open   bool            // there is a gap without a loc
	look   audit.Look      // the newest look at the hub
	anew   bool            // there is no such set
	failed error           // why the list or the hub could not be read
	result Result

	changes *inventory.State // the changes to publish, see toDelete; nil: none

	spare  func(loc string) bool // see Options.Missing; nil if it was not called
	spared int                   // resources that it keeps
	parts  bool                  // the list may lack some resources
}

// The changes of a run are kept in an inventory, in the order of loc. The position of an entry
// says what it is: a change to publish; a deletion, because an inventory cannot hold one; or a
// resource of the hub that is kept, because it is in a gap of the list or must not be deleted yet.
const (
	toPublish = 1
	toDelete  = 2
	toKeep    = 3
)

func (r *run) sync(ctx context.Context) (err error) {
	if r.changes, err = r.collect(ctx, r.differences(ctx)); err != nil {
		return cmp.Or(r.failed, err)
	}
	r.missing()
	res := &r.result
	if r.look.Set != "" && r.opts.Toll.settle(r.look.Cursor) && r.opts.Dry == nil {
		if err := r.opts.Counted(); err != nil {
			return fmt.Errorf("keep how many resources were deleted: %w", err)
		}
	}
	if err := r.opts.Toll.Check(r.opts.MaxDelete, uint64(res.Deleted), res.Held, res.Listed, r.opts.Now()); err != nil {
		return err
	}
	r.Source.held = res.Held
	r.opts.Planned(*res)
	if r.opts.Dry == nil && r.anew && res.Changes() == 0 { // otherwise the first publish makes the set
		if err := r.hub.Make(ctx); err != nil {
			return fmt.Errorf("make the set: %w", err)
		}
	}
	if err := r.publish(ctx); err != nil || r.opts.Dry != nil {
		return err
	}
	whole := res.Gaps == 0 && r.spared == 0 && !r.parts && r.opts.Prefix == ""
	if whole && !res.Complete {
		if err := r.hub.Complete(ctx); err != nil {
			return fmt.Errorf("say that the hub knows all resources: %w", err)
		}
		res.Complete = true
	}
	return nil
}

// missing calls Options.Missing once, after the list was read.
func (r *run) missing() {
	if r.opts.Missing == nil || r.spare != nil || r.result.Gaps > 0 {
		return // after a gap, it is unknown what is missing
	}
	keep, whole := r.opts.Missing()
	r.spare, r.parts = keep, !whole
}

// collect sorts changes, if there are any.
func (r *run) collect(ctx context.Context, changes iter.Seq2[*feed.Entry, error]) (*inventory.State, error) {
	next, stop := iter.Pull2(changes)
	defer stop()
	e, err, more := next()
	if err != nil || !more {
		return nil, err
	}
	var line []byte
	return r.holding.sorted(ctx, "changes", func(yield func(*feed.Entry, error) bool) {
		for ; more; e, err, more = next() {
			if err == nil {
				line = resourcesync.AppendJSONMembers(line[:0], &e.Change)
				if err = r.holding.room.take(roomFactor * int64(len(line))); err != nil {
					err = fmt.Errorf("keep the changes: %w", err)
				}
			}
			if !yield(e, err) {
				return
			}
		}
	})
}

// differences yields the changes that make the hub equal to the source.
func (r *run) differences(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		look := func(l audit.Look) {
			if r.look.Set == "" { // the first look: later ones would count what others publish meanwhile
				r.result.Held, r.result.Complete = l.Count, l.Complete
				r.opts.Looked(l)
			}
			r.look, r.result.Cursor = l, l.Cursor
		}
		for d, err := range r.hub.Differences(ctx, r.tally, r.own, look) {
			if errors.Is(err, feed.ErrNoSet) {
				r.anew = true
				break
			}
			if err != nil {
				r.failed = cmp.Or(r.failed, err)
				yield(nil, err)
				return
			}
			if e := r.judge(&d); e != nil && !yield(e, nil) {
				return
			}
		}
		if !r.anew {
			return
		}
		own, err := r.own(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for e, err := range own.Walk(ctx, inventory.Range{}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.judge(&audit.Difference{Kind: audit.Extra, Loc: e.Change.Loc, Own: e}), nil) {
				return
			}
		}
	}
}

// judge returns the change that ends a difference, or the resource that is kept; nil if
// there is nothing to publish.
func (r *run) judge(d *audit.Difference) *feed.Entry {
	switch d.Kind {
	case audit.Extra:
		r.result.Created++
		return change(d.Own, resourcesync.Created, toPublish)
	case audit.Unknown:
		if !r.opts.Unknown {
			r.result.Unknown++
			return nil
		}
		fallthrough
	case audit.Stale:
		r.result.Updated++
		return change(d.Own, resourcesync.Updated, toPublish)
	}
	if r.open || r.gaps[d.Loc] {
		r.result.Kept++
		return change(d.Theirs, resourcesync.Updated, toKeep)
	}
	if r.missing(); r.spare != nil && r.spare(d.Loc) {
		r.spared++
		r.result.Kept++
		return change(d.Theirs, resourcesync.Updated, toKeep)
	}
	r.result.Deleted++
	return &feed.Entry{Cursor: feed.Cursor{Position: toDelete}, Change: resourcesync.Change{Loc: d.Loc, Change: resourcesync.Updated}}
}

func change(of *feed.Entry, t resourcesync.ChangeType, kind uint64) *feed.Entry {
	e := &feed.Entry{Cursor: feed.Cursor{Position: kind}, Change: of.Change}
	e.Change.Change = t
	return e
}

// tally returns the tally of the list. The first call reads the list.
func (r *run) tally(ctx context.Context) (digest.Tally, error) {
	if r.holding.list == nil {
		list, err := newSpool(r.holding.dir, &r.holding.room, func(add func(*feed.Entry) error) error { return r.read(ctx, add) })
		if err != nil {
			r.failed = err
			return digest.Tally{}, err
		}
		r.holding.list, r.result.Listed = list, list.tally.Count
	}
	return r.holding.list.tally, nil
}

func (r *run) own(ctx context.Context) (*inventory.State, error) {
	if _, err := r.tally(ctx); err != nil {
		return nil, err
	}
	own, err := r.holding.own(ctx)
	if err != nil {
		return nil, err
	}
	t, err := own.Tally(ctx, inventory.Range{})
	r.result.Listed = t.Count
	return own, err
}

func (r *run) read(ctx context.Context, add func(*feed.Entry) error) error {
	var checked feed.Entry
	for e, err := range r.listing(ctx) {
		if gap, ok := errors.AsType[*Gap](err); ok {
			r.gap(gap)
			continue
		}
		if err == nil {
			checked = *e
			err = r.check(&checked.Change)
		}
		if err == nil {
			err = add(&checked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) check(c *resourcesync.Change) error {
	if !r.opts.Doubles || c.Change != resourcesync.Deleted {
		c.Change = resourcesync.Updated
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if !strings.HasPrefix(c.Loc, r.opts.Prefix) {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Msg: "the loc does not begin with the prefix " + r.opts.Prefix}
	}
	return nil
}

func (r *run) gap(g *Gap) {
	r.result.Gaps++
	if g.Loc == "" {
		r.open = true
	} else {
		r.gaps[g.Loc] = true
	}
	r.opts.Gap(g)
}

// all yields the changes in the order in which they are published.
func (r *run) all(ctx context.Context) iter.Seq2[*resourcesync.Change, error] {
	return func(yield func(*resourcesync.Change, error) bool) {
		for _, kind := range []uint64{toPublish, toDelete} {
			if r.changes == nil || kind == toDelete && r.result.Deleted == 0 {
				continue
			}
			for e, err := range r.changes.Walk(ctx, inventory.Range{}) {
				if err != nil {
					yield(nil, err)
					return
				}
				if e.Position != kind {
					continue
				}
				c := e.Change
				if kind == toDelete {
					c = resourcesync.Change{Loc: c.Loc, Change: resourcesync.Deleted}
				}
				if !yield(&c, nil) {
					return
				}
			}
		}
	}
}

func (r *run) publish(ctx context.Context) error {
	b := r.batch(r.result.Cursor)
	for c, err := range r.all(ctx) {
		switch {
		case err != nil:
		case r.opts.Dry != nil:
			err = r.opts.Dry(c)
		default:
			err = b.Add(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	err := b.Send(ctx)
	r.result.Cursor = b.head
	return err
}
