package mirror

import (
	"context"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// deleted returns the entry for a resource that is deleted as of a cursor.
func deleted(loc string, at feed.Cursor) feed.Entry {
	return feed.Entry{Cursor: at, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}}
}

// orphans returns deletions for resources in the ledger that neither the hub nor the list
// names. That happens if the process was killed after it made a file and before it
// recorded the resource, and the resource was then deleted. Resources newer than the
// cursor at are left out, because they will be named again. A resource may come twice.
func (m *Mirror) orphans(ctx context.Context, at feed.Cursor, unnamed func(loc string) (bool, error)) ([]feed.Entry, error) {
	var gone []feed.Entry
	for loc, err := range m.home.Ledger.Known(ctx) {
		if err != nil {
			return nil, err
		}
		orphan, err := unnamed(loc)
		if err != nil {
			return nil, err
		}
		if !orphan {
			continue
		}
		f, ok, err := m.home.Ledger.File(loc)
		if err != nil {
			return nil, err
		}
		if !ok || f.Entry.Micros <= at.Micros {
			gone = append(gone, deleted(loc, at))
		}
	}
	return gone, nil
}

// adrift removes resources that neither the replica nor the source's list has in the mirror, at
// the end of a baseline: what is not newer than the cursor at, up to which both name all.
func (m *Mirror) adrift(ctx context.Context, r *client.Replica, at feed.Cursor) error {
	state, release, err := r.State(ctx)
	if err != nil {
		return err
	}
	defer release()
	gone, err := m.orphans(ctx, at, func(loc string) (bool, error) {
		if _, listed, err := m.home.Ledger.Seen(loc); err != nil || listed {
			return false, err
		}
		e, held, err := state.Get(ctx, loc)
		return !held || !m.wants(&e.Change), err
	})
	if err != nil {
		return err
	}
	return m.pass(ctx, gone)
}
