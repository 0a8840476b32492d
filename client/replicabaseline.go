package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Replica takes a baseline in two steps. First it reads the baseline, and the later
// changes of the log, into a second inventory. Then it compares both inventories, and
// yields the differences. So a baseline that begins anew disturbs nothing. An
// interrupted one continues in both steps, because applied differences are gone.

// takeBaseline brings the destination to the state of a baseline.
func (r *Replica) takeBaseline(ctx context.Context, yield func(*Update) bool) error {
	end, root, err := r.readBaseline(ctx)
	if err != nil {
		return err
	}
	theirs, gone, err := r.newest(ctx, root)
	if err != nil {
		return err
	}
	if end.Complete {
		if err := r.allows(ctx, theirs, gone); err != nil {
			return err
		}
	}
	if r.opts.Begins != nil {
		if err := r.opts.Begins(); err != nil {
			return err
		}
	}
	at := theirs.Cursor()
	if err := r.half(ctx); err != nil {
		return err
	}
	if err := r.apply(ctx, theirs, newer, yield); err != nil {
		return err
	}
	for some := range slices.Chunk(gone, updateSize) {
		if err := r.bring(ctx, some, yield); err != nil {
			return err
		}
	}
	if end.Complete {
		if err := r.apply(ctx, theirs, leftover(at), yield); err != nil {
			return err
		}
	}
	all, err := theirs.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	if err = r.arrive(ctx, at, r.root.Tally.Count > all.Count); err != nil {
		return err
	}
	if err = r.baseline.Reset(ctx, "it was applied"); err == nil && !yield(&Update{Cursor: at, Baseline: true, Complete: end.Complete}) {
		err = errEnough
	}
	return err
}

// newest returns the state of a baseline with the later changes of the log, and the
// entries that the log deleted, in the order of loc. The hub's root may be minutes old;
// with the later changes, the destination does not fetch a resource twice or in vain.
// Changes that do not fit into memory are left to follow. So is everything if the log is
// gone.
func (r *Replica) newest(ctx context.Context, root inventory.Root) (_ *inventory.State, gone []feed.Entry, err error) {
	o, at := inventory.NewOverlay(r.baseline.Tree(root)), root.Cursor
	deleted := map[string]feed.Entry{} // also resources that the baseline does not name: the destination may hold them
	options := FollowOptions{Filter: feed.Filter{Prefix: r.opts.Prefix}, once: true, gather: gathered}
	for b, err := range r.client.Follow(ctx, r.set, at.String(), options) {
		if errors.Is(err, feed.ErrGone) || err == nil && b.Diverged {
			break
		}
		if err == nil {
			err = o.Add(ctx, b.Entries)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, e := range b.Entries {
			if delete(deleted, e.Change.Loc); e.Change.Change == resourcesync.Deleted {
				e = e.Clone()
				deleted[e.Change.Loc] = e
			}
		}
		if at = b.Cursor; len(b.Entries) < gathered || o.Bytes() > commitBytes {
			break
		}
	}
	for _, loc := range slices.Sorted(maps.Keys(deleted)) {
		gone = append(gone, deleted[loc])
	}
	return o.State(at), gone, ctx.Err()
}

// allows returns an error if a baseline would delete more resources than allowed. It is
// called before anything is applied or stored. So a refused baseline changes nothing, and
// resources that a baseline adds do not raise the limit. Deletions from the log do not
// count. No change may wait in memory.
func (r *Replica) allows(ctx context.Context, theirs *inventory.State, gone []feed.Entry) error {
	n, held := uint64(0), uint64(0)
	count := func(own, theirs *feed.Entry) (e feed.Entry, ok bool) {
		if own == nil || !r.in(&own.Change) {
			return e, false
		}
		if held++; theirs != nil && r.in(&theirs.Change) {
			return e, false
		}
		if _, deleted := slices.BinarySearchFunc(gone, own.Change.Loc, func(e feed.Entry, loc string) int { return strings.Compare(e.Change.Loc, loc) }); !deleted {
			n++
		}
		return e, false
	}
	if _, err := steps(ctx, r.own.Tree(r.root), theirs, inventory.Range{}, count); err != nil || n == 0 {
		return err
	}
	if r.opts.MayDelete != nil {
		return r.opts.MayDelete(n, held)
	}
	most := max(10, held/10)
	if r.opts.MaxDelete != 0 {
		most = uint64(max(r.opts.MaxDelete, 0))
	}
	if r.opts.MaxDelete < 0 || n <= most {
		return nil
	}
	return &TooManyDeleted{Delete: n, Held: held, Most: most}
}

// arrive notes that the destination has reached the cursor of a baseline. more means
// that it also holds resources that the baseline did not name.
func (r *Replica) arrive(ctx context.Context, at feed.Cursor, more bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete, why := at, ""
	if more {
		complete, why = feed.Cursor{}, "the hub did not know all resources"
	}
	if err := r.own.SetComplete(ctx, complete, why); err != nil {
		return err
	}
	if err := r.commit(ctx, at); err != nil {
		return err
	}
	r.cursor, r.whole, r.more = at, true, more
	return nil
}

// readBaseline reads a baseline into the second inventory. It returns the end of the
// baseline, and the root that holds it.
func (r *Replica) readBaseline(ctx context.Context) (*feed.BaselinePage, inventory.Root, error) {
	_, head, err := r.baseline.Load(ctx)
	if err != nil {
		return nil, inventory.Root{}, err
	}
	root := head.Newest()
	o := BaselineOptions{Prefix: r.opts.Prefix, Limit: baselinePage}
	if place, err := feed.ParsePlace(head.Why); err == nil && place.Cursor == root.Cursor {
		o.After = head.Why
	}
	anew := o.After == ""
	for page, err := range r.client.Baseline(ctx, r.set, o) {
		if err != nil {
			return nil, root, err
		}
		changes := inventory.Changes{Base: root, Anew: anew || page.Restart, To: page.Place.Cursor, Sorted: each(page.Entries)}
		anew = false
		if !page.End { // the baseline is not over: Head.Why stores where to go on
			changes.Incomplete = page.Place.String()
		}
		if root, err = r.baseline.Commit(ctx, changes); err != nil {
			return nil, root, err
		}
		if !page.End {
			continue
		}
		if got := root.Tally.Digest(digest.ByPosition).String(); got != page.Position || root.Tally.Count != page.Count {
			err := fmt.Errorf("the baseline has the digest %s, and not %s as its end says", got, resourcesync.Shorten(page.Position))
			if rerr := r.baseline.Reset(ctx, "it did not fit its digest"); rerr != nil {
				err = rerr
			}
			return nil, root, err
		}
		return page, root, nil
	}
	return nil, root, ctx.Err()
}

// each yields entries.
func each(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// half notes that the replica is between two cursors from now on.
func (r *Replica) half(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole, r.cursor = false, feed.Cursor{}
	return r.commit(ctx, r.cursor)
}

// A step compares a resource at the destination (own) with the baseline (theirs); one of
// them may be nil. It returns what the destination has to do, and false if that is
// nothing.
type step func(own, theirs *feed.Entry) (feed.Entry, bool)

// newer is the step for resources of the baseline that the destination does not hold
// in that version.
func newer(own, theirs *feed.Entry) (feed.Entry, bool) {
	if theirs == nil || own != nil && own.Cursor == theirs.Cursor {
		return feed.Entry{}, false
	}
	return *theirs, true
}

// leftover returns the step that deletes, as of a cursor, resources that the
// baseline does not name.
func leftover(at feed.Cursor) step {
	return func(own, theirs *feed.Entry) (feed.Entry, bool) {
		if theirs != nil {
			return feed.Entry{}, false
		}
		return feed.Entry{Cursor: at, Change: resourcesync.Change{Loc: own.Change.Loc, Change: resourcesync.Deleted}}, true
	}
}

// apply yields what the destination has to do by one step, and records it.
func (r *Replica) apply(ctx context.Context, theirs *inventory.State, s step, yield func(*Update) bool) error {
	rest := inventory.Range{}
	for {
		entries, err := steps(ctx, r.own.Tree(r.root), theirs, rest, s)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := r.bring(ctx, entries, yield); err != nil || len(entries) < updateSize {
			return err
		}
		rest.From = entries[len(entries)-1].Change.Loc + "\x00"
	}
}

// bring yields what the destination has to do for entries in the order of loc, and records
// that they were applied, even if ctx is done.
func (r *Replica) bring(ctx context.Context, entries []feed.Entry, yield func(*Update) bool) error {
	chosen, err := r.chosen(ctx, slices.Clone(entries))
	if err != nil {
		return err
	}
	if len(chosen) > 0 && !yield(&Update{Entries: chosen, Baseline: true}) {
		return errEnough
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := last(ctx)
	defer cancel()
	return r.add(ctx, feed.Cursor{}, each(entries))
}

// steps applies a step to two trees in a range. It returns the first resulting entries,
// at most updateSize.
func steps(ctx context.Context, own *inventory.Tree, theirs *inventory.State, within inventory.Range, s step) (entries []feed.Entry, err error) {
	next, stop := iter.Pull2(theirs.Walk(ctx, within))
	defer stop()
	b, err, more := next()
	take := func(own, theirs *feed.Entry) bool {
		if e, ok := s(own, theirs); ok {
			entries = append(entries, e)
		}
		return len(entries) < updateSize
	}
	for a, aerr := range own.Walk(ctx, within) {
		if aerr != nil {
			return nil, aerr
		}
		for ; err == nil && more && b.Change.Loc < a.Change.Loc; b, err, more = next() {
			if !take(nil, b) {
				return entries, nil
			}
		}
		if err != nil {
			return nil, err
		}
		var same *feed.Entry
		if more && b.Change.Loc == a.Change.Loc {
			same = b
		}
		if !take(a, same) {
			return entries, nil
		}
		if same != nil {
			b, err, more = next()
		}
	}
	for ; err == nil && more; b, err, more = next() {
		if !take(nil, b) {
			return entries, nil
		}
	}
	return entries, err
}
