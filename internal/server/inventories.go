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
	"github.com/rshub/rshub/internal/inventory/live"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/subscribe"
)

// An inventoryStore has the inventories of sets, and the claims on updating them.
type inventoryStore struct {
	store  inventory.Store
	claims claim.Store
	poll   time.Duration                           // interval for polling changed sets
	scarce func(context.Context) bool              // whether the store is nearly full
	sweep  func(context.Context, int) (int, error) // see live.Options; nil if there is nothing to sweep
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
	claims := claim.NewRedis(conn, c.Prefix, live.Kind, claim.RedisOptions{Hubs: inventoryHubs})
	return inventoryStore{
		store: memory.Inventories(), claims: claims, poll: pollRedis, sweep: memory.SweepDeleted,
		scarce: func(ctx context.Context) bool {
			used, most, err := memory.Memory(ctx)
			return err == nil && most > 0 && used > most/100*85
		},
	}
}

// inventoriesOnDisk returns the inventories on disk.
func inventoriesOnDisk(ctx context.Context, memory *disklog.Log) (inventoryStore, error) {
	claims, err := claim.OpenLocal(ctx, memory.Bucket(inventoryKeep), live.Shards)
	if err != nil {
		return inventoryStore{}, fmt.Errorf("open the inventories: %w", err)
	}
	return inventoryStore{
		store: memory.Inventories(), claims: claims, poll: pollDisk,
		scarce: func(context.Context) bool {
			free, reserve, err := memory.Space()
			return err == nil && free < 2*reserve
		},
	}, nil
}

// inventories adapts the inventories of sets to the interfaces of the parts that read them.
type inventories struct {
	memory changelog.Log
	store  inventory.Store
	live   *live.Live // nil if the hub has no inventories
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
	if v.live == nil {
		return false
	}
	state, err := v.memory.State(ctx, set)
	return err != nil || !state.NoInventory
}

// State returns a state for audits and lists of resources, at from or later.
func (v inventories) State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error) {
	if v.live == nil {
		return nil, feed.ErrNoInventory
	}
	return v.live.State(ctx, set, from, wait)
}

// At returns the state at a cursor for audits and lists of resources.
func (v inventories) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	if v.live == nil {
		return nil, feed.ErrNoInventory
	}
	return v.live.At(ctx, set, at)
}

// Snapshot returns a state for baselines.
func (v inventories) Snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	var p *inventory.Pinned
	var err error
	switch {
	case v.live == nil:
		return nil, feed.ErrNoInventory
	case at.IsZero():
		p, err = v.live.Baseline(ctx, set)
	default:
		p, err = v.live.BaselineAt(ctx, set, at)
	}
	if err != nil {
		return nil, err
	}
	return &subscribe.Snapshot{Resources: p, Complete: p.Complete, Release: p.Release}, nil
}

// ResourceList returns the state of a Resource List.
func (v inventories) ResourceList(ctx context.Context, set string, at feed.Cursor) (*documents.List, error) {
	if v.live == nil {
		return nil, feed.ErrNoInventory
	}
	l, err := v.live.ResourceList(ctx, set, at)
	if err != nil {
		return nil, err
	}
	return &documents.List{Resources: l.Pinned, Completed: l.Completed}, nil
}

// Complete records whether the hub knows all resources of a set.
func (v inventories) Complete(ctx context.Context, set string, complete bool) error {
	if v.live == nil {
		return feed.ErrNoInventory
	}
	return v.live.Complete(ctx, set, complete)
}

// Count returns the number of resources in the last commit of the inventory of a set. ok is false if
// there is none.
func (v inventories) Count(ctx context.Context, set string) (n uint64, ok bool) {
	if v.live == nil {
		return 0, false
	}
	_, head, err := inventory.New(v.store, set, inventory.Options{}).Load(ctx)
	if err != nil || len(head.Roots) == 0 {
		return 0, false
	}
	return head.Newest().Tally.Count, true
}

// wireInventories creates the updater of inventories, or returns nil if the hub has none.
func (s *Server) wireInventories(store *store) *live.Live {
	if s.config.NoInventory {
		return nil
	}
	kept := &store.inventories
	return live.New(store.memory, kept.store, kept.claims, live.Options{
		Poll: kept.poll, List: s.config.ResourceListInterval, Scarce: kept.scarce, SweepDeleted: kept.sweep,
		Baselines: s.config.MaxBaselines, States: s.config.MaxAudits, Logger: s.log, Metrics: s.metrics,
	})
}
