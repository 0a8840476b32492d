package client

import (
	"context"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// inCollection reports whether a resource is in the Replica's collection after change c, and
// therefore at the destination.
func (r *Replica) inCollection(c *resourcesync.Change) bool {
	return c.Change != resourcesync.Deleted && feed.Filter{Collection: r.opts.Collection}.Match(c)
}

// selectEntries returns the entries that the destination must apply, in the same order. With a
// collection, an entry after which its resource is not in the collection becomes a deletion if the
// destination has the resource, and is otherwise omitted.
func (r *Replica) selectEntries(ctx context.Context, entries []feed.Entry) ([]feed.Entry, error) {
	if r.opts.Collection == "" {
		return entries, nil
	}
	held, err := r.findHeld(ctx, entries)
	if err != nil {
		return nil, err
	}
	var selected []feed.Entry
	for _, e := range entries {
		loc, in := e.Change.Loc, r.inCollection(&e.Change)
		if !in && !held[loc] {
			continue
		}
		if held[loc] = in; !in && e.Change.Change != resourcesync.Deleted {
			e.Change = resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}
		}
		selected = append(selected, e)
	}
	return selected, nil
}

// findHeld returns, for each resource that an entry leaves outside of the collection, whether the
// destination has it before the entries are applied.
func (r *Replica) findHeld(ctx context.Context, entries []feed.Entry) (map[string]bool, error) {
	var locs []string
	for i := range entries {
		if c := &entries[i].Change; !r.inCollection(c) {
			locs = append(locs, c.Loc)
		}
	}
	slices.Sort(locs)
	locs = slices.Compact(locs)
	held := map[string]bool{}
	r.mu.Lock() // otherwise a Flush could drop pages while they are read
	err := r.overlay.State(r.cursor).Find(ctx, locs, func(i int, e *feed.Entry) { held[locs[i]] = r.inCollection(&e.Change) })
	r.mu.Unlock()
	for _, loc := range locs {
		if err == nil && !held[loc] && r.opts.Holds != nil {
			held[loc], err = r.opts.Holds(loc)
		}
	}
	return held, err
}
