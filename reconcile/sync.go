package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
)

// Sync lists what the source has, and publishes every change that the hub does not know
// yet: first what was created and updated, then what was deleted, each in the order of
// loc. If nothing has changed this takes one small request.
//
// An error means that the hub and the source may still differ. What was published until
// then is right; the next Sync publishes the rest. A *TooMany means that nothing was
// published. If the list cannot be read to its end, nothing is published either.
func (s *Source) Sync(ctx context.Context) (Result, error) {
	if err := s.Close(); err != nil {
		return Result{}, err
	}
	p, err := openPages(s.opts.Dir)
	if err != nil {
		return Result{}, err
	}
	r := &run{Source: s, pages: p, gaps: map[string]bool{}}
	if err := r.sync(ctx); err != nil {
		_ = p.close() // the first error is worth more
		return r.result, err
	}
	known := r.own.Overlay()
	for i := range r.kept {
		r.kept[i].Position = uint64(i) + 1
	}
	if err := known.Add(ctx, r.kept); err != nil {
		_ = p.close()
		return r.result, err
	}
	s.pages, s.known, s.position = p, known, uint64(len(r.kept))
	s.head, s.held, s.deleted = r.result.Cursor, max(r.result.Held, r.result.Listed), uint64(r.result.Deleted)
	return r.result, nil
}

// A run is one Sync.
type run struct {
	*Source
	pages *pages

	own    *inventory.State // what the list has; nil until it is read
	gaps   map[string]bool  // locs
	open   bool             // there is a gap of which no loc is known
	kept   []feed.Entry     // what the hub has in the gaps
	look   audit.Look       // the newest at the hub
	anew   bool             // there is no such set
	failed error            // why the list or the hub could not be read
	result Result

	changes *inventory.State // what differs: see toDelete
}

// The changes of a run are kept in the order of loc. One of them is a deletion if its
// position is toDelete; what is deleted is no resource, so it could not be kept as it is.
const (
	toPublish = 1
	toDelete  = 2
)

func (r *run) sync(ctx context.Context) error {
	var err error
	if r.changes, err = inventory.Collect(ctx, r.pages, "changes", r.differences(ctx)); err != nil {
		return cmp.Or(r.failed, err)
	}
	res := &r.result
	if !r.opts.MaxDelete.Allows(uint64(res.Deleted), res.Held, res.Listed) {
		return &TooMany{Deleted: uint64(res.Deleted), Held: res.Held, Listed: res.Listed}
	}
	r.opts.Planned(*res)
	if r.opts.Dry != nil {
		return r.dry(ctx)
	}
	if r.anew && res.Changes() == 0 { // else the first publish makes it
		if err := r.hub.Make(ctx); err != nil {
			return fmt.Errorf("make the set: %w", err)
		}
	}
	if err := r.publish(ctx); err != nil {
		return err
	}
	whole := res.Gaps == 0 && r.opts.Prefix == ""
	if whole && !res.Complete {
		if err := r.hub.Complete(ctx); err != nil {
			return fmt.Errorf("say that the hub knows all resources: %w", err)
		}
		res.Complete = true
	}
	return nil
}

// differences yields the changes that make the hub equal to the source.
func (r *run) differences(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		look := func(l audit.Look) {
			if r.look.Set == "" { // the newest would count what others publish meanwhile
				r.result.Held, r.result.Complete = l.Count, l.Complete
			}
			r.look, r.result.Cursor = l, l.Cursor
		}
		for d, err := range r.hub.Differences(ctx, r.list, look) {
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
		own, err := r.list(ctx)
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

// judge returns the change for a difference; nil if there is none.
func (r *run) judge(d *audit.Difference) *feed.Entry {
	switch d.Kind {
	case audit.Extra:
		r.result.Created++
		return change(d.Own, resourcesync.Created)
	case audit.Unknown:
		if !r.opts.Unknown {
			r.result.Unknown++
			return nil
		}
		fallthrough
	case audit.Stale:
		r.result.Updated++
		return change(d.Own, resourcesync.Updated)
	}
	if r.open || r.gaps[d.Loc] {
		r.result.Kept++
		r.kept = append(r.kept, *d.Theirs)
		return nil
	}
	r.result.Deleted++
	return &feed.Entry{Cursor: feed.Cursor{Position: toDelete}, Change: resourcesync.Change{Loc: d.Loc, Change: resourcesync.Updated}}
}

func change(own *feed.Entry, t resourcesync.ChangeType) *feed.Entry {
	e := &feed.Entry{Cursor: feed.Cursor{Position: toPublish}, Change: own.Change}
	e.Change.Change = t
	return e
}

// list reads the list, once.
func (r *run) list(ctx context.Context) (*inventory.State, error) {
	if r.own != nil {
		return r.own, nil
	}
	collect := inventory.Collect
	if r.opts.Doubles {
		collect = inventory.CollectLast
	}
	own, err := collect(ctx, r.pages, "own", func(yield func(*feed.Entry, error) bool) {
		for e, err := range r.listing(ctx) {
			if gap, ok := errors.AsType[*Gap](err); ok {
				r.gap(gap)
				continue
			}
			var checked feed.Entry
			if err == nil {
				checked = *e
				err = r.check(&checked.Change)
			}
			if err != nil {
				r.failed = err
				yield(nil, err)
				return
			}
			if !yield(&checked, nil) {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	t, err := own.Tally(ctx, inventory.Range{})
	if err != nil {
		return nil, err
	}
	r.own, r.result.Listed = own, t.Count
	return own, nil
}

// check checks a resource of the list.
func (r *run) check(c *resourcesync.Change) error {
	c.Change = resourcesync.Updated
	if err := c.Validate(); err != nil {
		return err
	}
	if !strings.HasPrefix(c.Loc, r.opts.Prefix) {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Rule: "the loc does not begin with the prefix " + r.opts.Prefix}
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
			if kind == toDelete && r.result.Deleted == 0 {
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

func (r *run) dry(ctx context.Context) error {
	for c, err := range r.all(ctx) {
		if err == nil {
			err = r.opts.Dry(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publish publishes the changes.
func (r *run) publish(ctx context.Context) error {
	b := batch{hub: r.hub, head: r.result.Cursor, each: r.opts.Published}
	for c, err := range r.all(ctx) {
		if err == nil {
			err = b.add(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	err := b.send(ctx)
	r.result.Cursor = b.head
	return err
}
