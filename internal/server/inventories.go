package server

import (
	"context"
	"fmt"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/reader"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/inventory/writer"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/subscribe"
)

// An inventoryStore has the inventories of sets, and the claims on updating them.
type inventoryStore struct {
	store  inventory.Store
	claims claim.Store
	writer writer.Options // what depends on the store
}

// Intervals for polling changed sets. Polling Redis is more expensive.
const (
	pollDisk  = 500 * time.Millisecond
	pollRedis = 2 * time.Second
)

// inventoryHubs is the name of the key of the hubs with inventories.
const inventoryHubs = "inventory-hubs"

// inventoriesInRedis returns the inventories in Redis. Hubs without inventories
// (RSHUB_INVENTORY=off) do not share the claims on them.
func (c *Config) inventoriesInRedis(conn *redisconn.Conn, memory *redislog.Log) inventoryStore {
	claims := claim.NewRedis(conn, c.Prefix, writer.Kind, claim.RedisOptions{Hubs: inventoryHubs})
	return inventoryStore{
		store: memory.Inventories(), claims: claims,
		writer: writer.Options{
			Poll: pollRedis, SweepDeleted: memory.SweepDeleted, ExchangeRequests: memory.ExchangeRequests,
			Scarce: func(ctx context.Context) bool {
				used, most, err := memory.Memory(ctx)
				return err == nil && most > 0 && used > most/100*85
			},
		},
	}
}

// inventoriesOnDisk returns the inventories on disk.
func inventoriesOnDisk(ctx context.Context, memory *disklog.Log) (inventoryStore, error) {
	claims, err := claim.OpenLocal(ctx, memory.Bucket(inventoryKeep), writer.Shards)
	if err != nil {
		return inventoryStore{}, fmt.Errorf("open the inventories: %w", err)
	}
	return inventoryStore{
		store: memory.Inventories(), claims: claims,
		writer: writer.Options{
			Poll: pollDisk,
			Scarce: func(context.Context) bool {
				free, reserve, err := memory.Space()
				return err == nil && free < 2*reserve
			},
		},
	}, nil
}

// inventories adapts the inventories of sets to the interfaces of the parts that read them.
type inventories struct {
	memory changelog.Log
	store  inventory.Store
	reader *reader.Reader // nil if the hub has no inventories
}

var (
	_ web.States            = inventories{}
	_ subscribe.Inventories = inventories{}
	_ documents.Inventories = inventories{}
	_ sets.Inventories      = inventories{}
)

// Keeps reports whether a set has an inventory. It is true if the set cannot be read, so that a
// request for its inventory returns the error.
func (v inventories) Keeps(ctx context.Context, set string) bool {
	if v.reader == nil {
		return false
	}
	state, err := v.memory.State(ctx, set)
	return err != nil || !state.NoInventory
}

// State returns a state for audits and lists of resources, at from or later.
func (v inventories) State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error) {
	if v.reader == nil {
		return nil, feed.ErrNoInventory
	}
	return v.reader.State(ctx, set, from, wait)
}

// At returns the state at a cursor for audits and lists of resources.
func (v inventories) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	if v.reader == nil {
		return nil, feed.ErrNoInventory
	}
	return v.reader.At(ctx, set, at)
}

// Snapshot returns a state for baselines.
func (v inventories) Snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	var p *inventory.Pinned
	var err error
	switch {
	case v.reader == nil:
		return nil, feed.ErrNoInventory
	case at.IsZero():
		p, err = v.reader.Baseline(ctx, set)
	default:
		p, err = v.reader.BaselineAt(ctx, set, at)
	}
	if err != nil {
		return nil, err
	}
	return &subscribe.Snapshot{Resources: p, Complete: p.Complete, Release: p.Release}, nil
}

// ResourceList returns the state of a Resource List.
func (v inventories) ResourceList(ctx context.Context, set string, at feed.Cursor) (*documents.List, error) {
	if v.reader == nil {
		return nil, feed.ErrNoInventory
	}
	l, err := v.reader.ResourceList(ctx, set, at)
	if err != nil {
		return nil, err
	}
	return &documents.List{Resources: l.Pinned, Completed: l.Completed}, nil
}

// Complete records whether the hub knows all resources of a set.
func (v inventories) Complete(ctx context.Context, set string, complete bool) error {
	if v.reader == nil {
		return feed.ErrNoInventory
	}
	return v.reader.SetComplete(ctx, set, complete)
}

// Count returns the number of resources in the last commit of the inventory of a set. ok is false if
// there is none.
func (v inventories) Count(ctx context.Context, set string) (n uint64, ok bool) {
	if v.reader == nil {
		return 0, false
	}
	_, head, err := inventory.New(v.store, set, inventory.Options{}).Load(ctx)
	if err != nil || len(head.Roots) == 0 {
		return 0, false
	}
	return head.Newest().Tally.Count, true
}

// inventoryCacheBytes is the memory of cached pages of inventories.
const inventoryCacheBytes = 32 << 20

// wireInventories creates the writer and the reader of inventories, or returns nil if the hub has none.
func (s *Server) wireInventories(store *store) (*writer.Writer, *reader.Reader) {
	if s.config.NoInventory {
		return nil, nil
	}
	kept, cache := &store.inventories, inventory.NewCache(inventoryCacheBytes)
	o := kept.writer
	o.Cache, o.ListInterval, o.Logger, o.Metrics = cache, s.config.ResourceListInterval, s.log, s.metrics
	w := writer.New(store.memory, kept.store, kept.claims, o)
	r := reader.New(store.memory, kept.store, kept.claims.Name(), reader.Options{
		Cache: cache, Request: w.Request, Baselines: s.config.MaxBaselines, States: s.config.MaxAudits, Logger: s.log, Metrics: s.metrics,
	})
	return w, r
}
