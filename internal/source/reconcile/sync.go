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

// Sync lists the source and publishes every change that the hub does not know yet: first created
// and updated resources, then deleted ones, each in the order of loc. If nothing has changed, Sync
// needs one small request.
//
// After an error, the hub and the source may still differ. The changes published until then are
// right; the next Sync publishes the rest. A *TooManyDeletions means that nothing was published. If
// the list cannot be read to its end, nothing is published either.
func (s *Source) Sync(ctx context.Context) (Result, error) {
	if err := s.Close(); err != nil {
		return Result{}, err
	}
	h, err := newLocalList(&s.opts)
	if err != nil {
		return Result{}, err
	}
	r := &syncRun{Source: s, newList: h, gaps: map[string]bool{}}
	if err := r.sync(ctx); err != nil {
		_ = h.close() // the first error is more useful
		return r.result, err
	}
	s.list, s.changes = h, r.changes
	s.head, s.hubCount = r.result.Cursor, max(s.hubCount, r.result.Listed)
	return r.result, nil
}

type syncRun struct {
	*Source
	newList *localList // the list

	gaps     map[string]bool // locs of the gaps
	openGap  bool            // whether there is a gap without a loc
	lastLook audit.Summary   // newest examined state of the hub
	noSet    bool            // whether the set does not exist
	cause    error           // why the list or the hub could not be read
	result   Result

	changes *inventory.State // changes to publish, see toDelete, or nil

	keepMissing func(loc string) bool // see Options.KeepMissing; nil if it was not called
	keptMissing int                   // number of resources that keepMissing keeps
	partial     bool                  // whether the list may lack some resources
}

// The changes of a run are stored in an inventory, in the order of loc. The position of an entry
// gives its kind: a change to publish; a deletion, because an inventory cannot store one; or a
// resource that the hub keeps, because it is in a gap of the list or must not be deleted yet.
const (
	toPublish = 1
	toDelete  = 2
	toKeep    = 3
)

func (r *syncRun) sync(ctx context.Context) (err error) {
	if r.changes, err = r.collect(ctx, r.differences(ctx)); err != nil {
		return cmp.Or(r.cause, err)
	}
	r.callKeepMissing()
	res := &r.result
	if r.lastLook.Set != "" && r.opts.Deletions.settle(r.lastLook.Cursor) && r.opts.DryRun == nil {
		if err := r.opts.SaveDeletions(); err != nil {
			return fmt.Errorf("store the number of deletions: %w", err)
		}
	}
	if err := r.opts.Deletions.Check(r.opts.MaxDelete, uint64(res.Deleted), res.Held, res.Listed, r.opts.Now()); err != nil {
		return err
	}
	r.Source.hubCount = res.Held
	r.opts.OnPlan(*res)
	if r.opts.DryRun == nil && r.noSet && res.Changes() == 0 { // otherwise the first publish creates the set
		if err := r.hub.Create(ctx); err != nil {
			return fmt.Errorf("create set: %w", err)
		}
	}
	if err := r.publish(ctx); err != nil || r.opts.DryRun != nil {
		return err
	}
	whole := res.Gaps == 0 && r.keptMissing == 0 && !r.partial && r.opts.Prefix == ""
	if whole && !res.Complete {
		if err := r.hub.SetComplete(ctx); err != nil {
			return fmt.Errorf("mark the set as complete: %w", err)
		}
		res.Complete = true
	}
	return nil
}

// callKeepMissing calls Options.KeepMissing once, after the list was read.
func (r *syncRun) callKeepMissing() {
	if r.opts.KeepMissing == nil || r.keepMissing != nil || r.result.Gaps > 0 {
		return // after a gap, it is unknown what is missing
	}
	keep, whole := r.opts.KeepMissing()
	r.keepMissing, r.partial = keep, !whole
}

// collect sorts changes, if there are any.
func (r *syncRun) collect(ctx context.Context, changes iter.Seq2[*feed.Entry, error]) (*inventory.State, error) {
	next, stop := iter.Pull2(changes)
	defer stop()
	e, err, more := next()
	if err != nil || !more {
		return nil, err
	}
	var line []byte
	return r.newList.sort(ctx, "changes", func(yield func(*feed.Entry, error) bool) {
		for ; more; e, err, more = next() {
			if err == nil {
				line = resourcesync.AppendJSONMembers(line[:0], &e.Change)
				if err = r.newList.space.grow(spaceFactor * int64(len(line))); err != nil {
					err = fmt.Errorf("store the changes: %w", err)
				}
			}
			if !yield(e, err) {
				return
			}
		}
	})
}

// differences yields the changes that make the hub equal to the source.
func (r *syncRun) differences(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		look := func(l audit.Summary) {
			if r.lastLook.Set == "" { // only the first: later ones would count what others have published since
				r.result.Held, r.result.Complete = l.Count, l.Complete
				r.opts.OnAudit(l)
			}
			r.lastLook, r.result.Cursor = l, l.Cursor
		}
		for d, err := range r.hub.Differences(ctx, r.listTally, r.listState, look) {
			if errors.Is(err, feed.ErrNoSet) {
				r.noSet = true
				break
			}
			if err != nil {
				r.cause = cmp.Or(r.cause, err)
				yield(nil, err)
				return
			}
			if e := r.changeFor(&d); e != nil && !yield(e, nil) {
				return
			}
		}
		if !r.noSet {
			return
		}
		own, err := r.listState(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for e, err := range own.Walk(ctx, inventory.Range{}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.changeFor(&audit.Difference{Kind: audit.Extra, Loc: e.Change.Loc, Own: e}), nil) {
				return
			}
		}
	}
}

// changeFor returns the change that resolves a difference, or the resource that the hub keeps. It
// returns nil if there is nothing to publish.
func (r *syncRun) changeFor(d *audit.Difference) *feed.Entry {
	switch d.Kind {
	case audit.Extra:
		r.result.Created++
		return newEntry(d.Own, resourcesync.Created, toPublish)
	case audit.Unknown:
		if !r.opts.PublishUnknown {
			r.result.Unknown++
			return nil
		}
		fallthrough
	case audit.Stale:
		r.result.Updated++
		return newEntry(d.Own, resourcesync.Updated, toPublish)
	}
	if r.openGap || r.gaps[d.Loc] {
		r.result.Kept++
		return newEntry(d.Theirs, resourcesync.Updated, toKeep)
	}
	if r.callKeepMissing(); r.keepMissing != nil && r.keepMissing(d.Loc) {
		r.keptMissing++
		r.result.Kept++
		return newEntry(d.Theirs, resourcesync.Updated, toKeep)
	}
	r.result.Deleted++
	return &feed.Entry{Cursor: feed.Cursor{Position: toDelete}, Change: resourcesync.Change{Loc: d.Loc, Change: resourcesync.Updated}}
}

func newEntry(of *feed.Entry, t resourcesync.ChangeType, kind uint64) *feed.Entry {
	e := &feed.Entry{Cursor: feed.Cursor{Position: kind}, Change: of.Change}
	e.Change.Change = t
	return e
}

// listTally returns the tally of the list. The first call reads the list.
func (r *syncRun) listTally(ctx context.Context) (digest.Tally, error) {
	if r.newList.spool == nil {
		list, err := newSpool(r.newList.dir, &r.newList.space, func(add func(*feed.Entry) error) error { return r.readListing(ctx, add) })
		if err != nil {
			r.cause = err
			return digest.Tally{}, err
		}
		r.newList.spool, r.result.Listed = list, list.tally.Count
	}
	return r.newList.spool.tally, nil
}

func (r *syncRun) listState(ctx context.Context) (*inventory.State, error) {
	if _, err := r.listTally(ctx); err != nil {
		return nil, err
	}
	own, err := r.newList.sortedState(ctx)
	if err != nil {
		return nil, err
	}
	t, err := own.Tally(ctx, inventory.Range{})
	r.result.Listed = t.Count
	return own, err
}

func (r *syncRun) readListing(ctx context.Context, add func(*feed.Entry) error) error {
	var checked feed.Entry
	for e, err := range r.listing(ctx) {
		if gap, ok := errors.AsType[*Gap](err); ok {
			r.addGap(gap)
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

func (r *syncRun) check(c *resourcesync.Change) error {
	if !r.opts.AllowDuplicates || c.Change != resourcesync.Deleted {
		c.Change = resourcesync.Updated
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if !strings.HasPrefix(c.Loc, r.opts.Prefix) {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Msg: "loc lacks the prefix " + r.opts.Prefix}
	}
	return nil
}

func (r *syncRun) addGap(g *Gap) {
	r.result.Gaps++
	if g.Loc == "" {
		r.openGap = true
	} else {
		r.gaps[g.Loc] = true
	}
	r.opts.Gap(g)
}

// orderedChanges yields the changes in the order in which they are published.
func (r *syncRun) orderedChanges(ctx context.Context) iter.Seq2[*resourcesync.Change, error] {
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

func (r *syncRun) publish(ctx context.Context) error {
	b := r.batch(r.result.Cursor)
	for c, err := range r.orderedChanges(ctx) {
		switch {
		case err != nil:
		case r.opts.DryRun != nil:
			err = r.opts.DryRun(c)
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
