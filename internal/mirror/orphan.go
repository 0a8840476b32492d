package mirror

import (
	"context"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// deletion returns an entry that deletes a resource at a cursor.
func deletion(loc string, at feed.Cursor) feed.Entry {
	return feed.Entry{Cursor: at, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}}
}

// orphans returns deletions for the resources in the ledger that isOrphan reports: neither the
// hub nor the list names them. This happens if the process is killed after it wrote a file and
// before it recorded the resource, and the resource is then deleted. Resources newer than the
// cursor at are left out, because they will be named again. A resource may be returned twice.
func (m *Mirror) orphans(ctx context.Context, at feed.Cursor, isOrphan func(loc string) (bool, error)) ([]feed.Entry, error) {
	var deleted []feed.Entry
	for loc, err := range m.home.Ledger.Locs(ctx) {
		if err != nil {
			return nil, err
		}
		orphan, err := isOrphan(loc)
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
			deleted = append(deleted, deletion(loc, at))
		}
	}
	return deleted, nil
}

// removeOrphans removes the resources that neither the replica nor the source's list names, at
// the end of a baseline. It spares those newer than the cursor at: up to at, replica and list
// name everything.
func (m *Mirror) removeOrphans(ctx context.Context, r *client.Replica, at feed.Cursor) error {
	state, release, err := r.State(ctx)
	if err != nil {
		return err
	}
	defer release()
	deleted, err := m.orphans(ctx, at, func(loc string) (bool, error) {
		if _, listed, err := m.home.Ledger.ListedResource(loc); err != nil || listed {
			return false, err
		}
		e, held, err := state.Get(ctx, loc)
		return !held || !m.matches(&e.Change), err
	})
	if err != nil {
		return err
	}
	return m.applyEntries(ctx, deleted)
}
