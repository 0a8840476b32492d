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

// A Replica processes a baseline in two steps. First it reads the baseline, and the later changes of
// the log, into a second inventory. Then it compares both inventories and yields the differences. So
// a baseline that starts over has no side effects. An interrupted baseline continues in both steps,
// because applied differences no longer exist.

// applyBaseline reads a baseline and brings the destination to its state.
func (r *Replica) applyBaseline(ctx context.Context, yield func(*Update) bool) error {
	end, root, err := r.readBaseline(ctx)
	if err != nil {
		return err
	}
	theirs, gone, err := r.newestState(ctx, root)
	if err != nil {
		return err
	}
	if end.Complete {
		if err := r.checkDeletions(ctx, theirs, gone); err != nil {
			return err
		}
	}
	if r.opts.BeforeBaseline != nil {
		if err := r.opts.BeforeBaseline(); err != nil {
			return err
		}
	}
	at := theirs.Cursor()
	if err := r.leaveCursor(ctx); err != nil {
		return err
	}
	if err := r.applyDiff(ctx, theirs, diffNewer, yield); err != nil {
		return err
	}
	for some := range slices.Chunk(gone, maxUpdateEntries) {
		if err := r.applyEntries(ctx, some, yield); err != nil {
			return err
		}
	}
	if end.Complete {
		if err := r.applyDiff(ctx, theirs, diffLeftovers(at), yield); err != nil {
			return err
		}
	}
	all, err := theirs.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	if err = r.finishBaseline(ctx, at, r.root.Tally.Count > all.Count); err != nil {
		return err
	}
	if err = r.baseline.Reset(ctx, "the baseline was applied"); err == nil && !yield(&Update{Cursor: at, Baseline: true, Complete: end.Complete}) {
		err = errStopped
	}
	return err
}

// newestState returns the state of a baseline including the later changes of the log, and the
// entries of resources that the log has deleted, in the order of loc. The root of the hub may be
// minutes old. With the later changes, the destination does not fetch a resource twice or
// unnecessarily. Changes that do not fit into memory are left to followLog, and so are all changes
// if the log is gone.
func (r *Replica) newestState(ctx context.Context, root inventory.Root) (_ *inventory.State, gone []feed.Entry, err error) {
	o, at := inventory.NewOverlay(r.baseline.Tree(root)), root.Cursor
	deleted := map[string]feed.Entry{} // includes resources that the baseline does not name, since the destination may have them
	options := FollowOptions{Filter: feed.Filter{Prefix: r.opts.Prefix}, once: true, mergeLimit: maxMergedEntries}
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
		if at = b.Cursor; len(b.Entries) < maxMergedEntries || o.Bytes() > maxPendingBytes {
			break
		}
	}
	for _, loc := range slices.Sorted(maps.Keys(deleted)) {
		gone = append(gone, deleted[loc])
	}
	return o.State(at), gone, ctx.Err()
}

// checkDeletions returns an error if a baseline would delete more resources than permitted. It is
// called before anything is applied or stored, so that a rejected baseline changes nothing, and
// resources that the baseline adds do not raise the limit. Deletions from the log do not count. No
// changes may be pending in memory.
func (r *Replica) checkDeletions(ctx context.Context, theirs *inventory.State, gone []feed.Entry) error {
	n, held := uint64(0), uint64(0)
	count := func(own, theirs *feed.Entry) (e feed.Entry, ok bool) {
		if own == nil || !r.inCollection(&own.Change) {
			return e, false
		}
		if held++; theirs != nil && r.inCollection(&theirs.Change) {
			return e, false
		}
		if _, deleted := slices.BinarySearchFunc(gone, own.Change.Loc, func(e feed.Entry, loc string) int { return strings.Compare(e.Change.Loc, loc) }); !deleted {
			n++
		}
		return e, false
	}
	if _, err := diffStates(ctx, r.own.Tree(r.root), theirs, inventory.Range{}, count); err != nil || n == 0 {
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
	return &DeleteLimitError{Delete: n, Held: held, Limit: most}
}

// finishBaseline records that the destination has reached the cursor of a baseline. leftovers means
// that it also has resources that the baseline did not name.
func (r *Replica) finishBaseline(ctx context.Context, at feed.Cursor, leftovers bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete, why := at, ""
	if leftovers {
		complete, why = feed.Cursor{}, "the hub did not know all resources"
	}
	if err := r.own.SetComplete(ctx, complete, why); err != nil {
		return err
	}
	if err := r.commitLocked(ctx, at); err != nil {
		return err
	}
	r.cursor, r.baselineDone, r.hasLeftovers = at, true, leftovers
	return nil
}

// readBaseline reads a baseline into the second inventory. It returns the end of the baseline, and
// the root with its resources.
func (r *Replica) readBaseline(ctx context.Context) (*feed.BaselinePage, inventory.Root, error) {
	_, head, err := r.baseline.Load(ctx)
	if err != nil {
		return nil, inventory.Root{}, err
	}
	root := head.Newest()
	o := BaselineOptions{Prefix: r.opts.Prefix, Limit: baselinePageSize}
	if place, err := feed.ParseBaselineCursor(head.Why); err == nil && place.Cursor == root.Cursor {
		o.After = head.Why
	}
	anew := o.After == ""
	for page, err := range r.client.Baseline(ctx, r.set, o) {
		if err != nil {
			return nil, root, err
		}
		changes := inventory.Changes{Base: root, Anew: anew || page.Restart, To: page.Next.Cursor, Sorted: entrySeq(page.Entries)}
		anew = false
		if !page.End { // Head.Why stores where to continue
			changes.Incomplete = page.Next.String()
		}
		if root, err = r.baseline.Commit(ctx, changes); err != nil {
			return nil, root, err
		}
		if !page.End {
			continue
		}
		if got := root.Tally.Digest(digest.ByPosition).String(); got != page.PositionDigest || root.Tally.Count != page.Count {
			err := fmt.Errorf("baseline has the digest %s, want %s", got, resourcesync.Shorten(page.PositionDigest))
			if rerr := r.baseline.Reset(ctx, "the baseline did not match its digest"); rerr != nil {
				err = rerr
			}
			return nil, root, err
		}
		return page, root, nil
	}
	return nil, root, ctx.Err()
}

// entrySeq yields pointers to entries.
func entrySeq(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// leaveCursor records that the replica is between two cursors, until finishBaseline.
func (r *Replica) leaveCursor(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.baselineDone, r.cursor = false, feed.Cursor{}
	return r.commitLocked(ctx, r.cursor)
}

// A diffFunc compares a resource at the destination (own) with the same one in the baseline
// (theirs), one of which may be nil. It returns the change that the destination must apply, and
// whether there is one.
type diffFunc func(own, theirs *feed.Entry) (feed.Entry, bool)

// diffNewer is a diffFunc that returns resources of the baseline of which the destination does not
// have that version.
func diffNewer(own, theirs *feed.Entry) (feed.Entry, bool) {
	if theirs == nil || own != nil && own.Cursor == theirs.Cursor {
		return feed.Entry{}, false
	}
	return *theirs, true
}

// diffLeftovers returns a diffFunc that deletes, as of a cursor, the resources that the baseline
// does not name.
func diffLeftovers(at feed.Cursor) diffFunc {
	return func(own, theirs *feed.Entry) (feed.Entry, bool) {
		if theirs != nil {
			return feed.Entry{}, false
		}
		return feed.Entry{Cursor: at, Change: resourcesync.Change{Loc: own.Change.Loc, Change: resourcesync.Deleted}}, true
	}
}

// applyDiff yields the changes that f returns, and records that they were applied.
func (r *Replica) applyDiff(ctx context.Context, theirs *inventory.State, f diffFunc, yield func(*Update) bool) error {
	rest := inventory.Range{}
	for {
		entries, err := diffStates(ctx, r.own.Tree(r.root), theirs, rest, f)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := r.applyEntries(ctx, entries, yield); err != nil || len(entries) < maxUpdateEntries {
			return err
		}
		rest.From = entries[len(entries)-1].Change.Loc + "\x00"
	}
}

// applyEntries yields the changes that the destination must apply for entries in the order of loc.
// It records that they were applied, even if ctx is done.
func (r *Replica) applyEntries(ctx context.Context, entries []feed.Entry, yield func(*Update) bool) error {
	chosen, err := r.selectEntries(ctx, slices.Clone(entries))
	if err != nil {
		return err
	}
	if len(chosen) > 0 && !yield(&Update{Entries: chosen, Baseline: true}) {
		return errStopped
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := finalContext(ctx)
	defer cancel()
	return r.commitSortedLocked(ctx, feed.Cursor{}, entrySeq(entries))
}

// diffStates calls f for each resource of own or theirs in a range. It returns the first changes
// that f returns, at most maxUpdateEntries.
func diffStates(ctx context.Context, own *inventory.Tree, theirs *inventory.State, within inventory.Range, f diffFunc) (entries []feed.Entry, err error) {
	next, stop := iter.Pull2(theirs.Walk(ctx, within))
	defer stop()
	b, err, more := next()
	add := func(own, theirs *feed.Entry) bool {
		if e, ok := f(own, theirs); ok {
			entries = append(entries, e)
		}
		return len(entries) < maxUpdateEntries
	}
	for a, aerr := range own.Walk(ctx, within) {
		if aerr != nil {
			return nil, aerr
		}
		for ; err == nil && more && b.Change.Loc < a.Change.Loc; b, err, more = next() {
			if !add(nil, b) {
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
		if !add(a, same) {
			return entries, nil
		}
		if same != nil {
			b, err, more = next()
		}
	}
	for ; err == nil && more; b, err, more = next() {
		if !add(nil, b) {
			return entries, nil
		}
	}
	return entries, err
}
