package server

import (
	"context"
	"iter"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect/rdm"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
)

// An rdmHub implements rdm.Hub.
type rdmHub struct {
	*site
	changelog.Log
	streams *limit.Budget
}

var _ rdm.Hub = rdmHub{}

func (c rdmHub) Sets(ctx context.Context) ([]feed.State, error) { return c.site.sets.Visible(ctx) }

func (c rdmHub) Snapshot(ctx context.Context, set string) (*rdm.Snapshot, error) {
	p, err := c.inventories.State(ctx, set, feed.Cursor{}, 0)
	if err != nil {
		return nil, err
	}
	return &rdm.Snapshot{
		Cursor: p.Cursor(), Release: p.Release, Find: p.Find,
		All: func(ctx context.Context) iter.Seq2[*feed.Entry, error] { return p.Walk(ctx, inventory.Range{}) },
	}, nil
}

func (c rdmHub) ReserveMemory(ctx context.Context, bytes int64) (release func(), err error) {
	share, err := c.streams.Acquire(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return share.Release, nil
}
