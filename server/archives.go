package server

import (
	"context"
	"errors"

	"github.com/rshub/rshub/archive"
	"github.com/rshub/rshub/feed"
)

// wireArchive returns what keeps archives, or nil if the hub has no place for content.
func (s *Server) wireArchive(base feed.Base, store *store, p *parts) *archive.Archive {
	if store.content == nil {
		return nil
	}
	return archive.New(p.memory, store.content, base, archive.Options{
		Write: p.documents.WriteClosed, Resources: s.archivedResources(p), Every: s.config.ArchiveInterval,
		Mine: p.live.Mine, Scarce: store.inventories.scarce, Logger: s.log, Metrics: s.metrics,
	})
}

// archivedResources returns what gives Resource Lists to the archive; nil: the operator wants none.
func (s *Server) archivedResources(p *parts) func(context.Context, feed.State) (*archive.ResourceList, error) {
	if s.config.ArchiveInterval < 0 {
		return nil
	}
	return func(ctx context.Context, st feed.State) (*archive.ResourceList, error) {
		l, err := p.documents.KeepResourceList(ctx, st)
		if l == nil || err != nil {
			return nil, err
		}
		return &archive.ResourceList{At: l.Cursor(), Completed: l.Completed, Documents: l.Documents(), Write: l.Write}, nil
	}
}

// hold returns the cursor that retention must not pass in a set: its inventory, or its archive,
// has not got further.
func (p *parts) hold(ctx context.Context, set string) (at feed.Cursor, ok bool) {
	at, ok = p.live.Hold(ctx, set)
	if p.archive == nil {
		return at, ok
	}
	archived, waits := p.archive.Hold(ctx, set)
	if waits && (!ok || archived.Position < at.Position) {
		return archived, true
	}
	return at, ok
}

// hasArchive lets package documents name the archives of a set.
func (p *parts) hasArchive(ctx context.Context, set string) (changes, resources bool, err error) {
	if p.archive == nil {
		return false, false, nil
	}
	changes, resources, err = p.archive.Has(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return false, false, nil
	}
	return changes, resources, err
}
