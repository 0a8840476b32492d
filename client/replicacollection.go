package client

import (
	"context"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// in reports whether a change leaves its resource in the Replica's collection, and so at
// the destination.
func (r *Replica) in(c *resourcesync.Change) bool {
	return c.Change != resourcesync.Deleted && feed.Filter{Collection: r.opts.Collection}.Match(c)
}

// chosen returns what the destination has to do for entries, which keep their order. With a
// collection, a change that leaves its resource outside is a deletion if the destination
// holds the resource, and else is left out.
func (r *Replica) chosen(ctx context.Context, entries []feed.Entry) ([]feed.Entry, error) {
	if r.opts.Collection == "" {
		return entries, nil
	}
	held, err := r.held(ctx, entries)
	if err != nil {
		return nil, err
	}
	var chosen []feed.Entry
	for _, e := range entries {
		loc, in := e.Change.Loc, r.in(&e.Change)
		if !in && !held[loc] {
			continue
		}
		if held[loc] = in; !in && e.Change.Change != resourcesync.Deleted {
			e.Change = resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

// held reports, of each resource that an entry leaves outside of the collection, whether
// the destination holds it before the entries are applied.
func (r *Replica) held(ctx context.Context, entries []feed.Entry) (map[string]bool, error) {
	var locs []string
	for i := range entries {
		if c := &entries[i].Change; !r.in(c) {
			locs = append(locs, c.Loc)
		}
	}
	slices.Sort(locs)
	locs = slices.Compact(locs)
	held := map[string]bool{}
	r.mu.Lock() // else a Flush could drop the pages that are read
	err := r.overlay.State(r.cursor).Find(ctx, locs, func(i int, e *feed.Entry) { held[locs[i]] = r.in(&e.Change) })
	r.mu.Unlock()
	for _, loc := range locs {
		if err == nil && !held[loc] && r.opts.Holds != nil {
			held[loc], err = r.opts.Holds(loc)
		}
	}
	return held, err
}
