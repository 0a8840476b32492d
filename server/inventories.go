package server

import (
	"context"
	"fmt"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/inventory/web"
	"github.com/rshub/rshub/subscribe"
)

// An inventoryStore is where the inventories of sets are kept, and who makes them.
type inventoryStore struct {
	store  inventory.Store
	claims claim.Store
	poll   time.Duration                           // how often to look at sets that change
	scarce func(context.Context) bool              // whether the store has little room left
	sweep  func(context.Context, int) (int, error) // see live.Options; nil: nothing is left
}

// How often the maker of inventories looks at sets that change. A look at Redis costs
// more.
const (
	pollDisk  = 500 * time.Millisecond
	pollRedis = 2 * time.Second
)

// inventoryHubs is the name of the key of the hubs that keep inventories.
const inventoryHubs = "inventory-hubs"

// inventoriesInRedis returns the inventories beside a memory in Redis. A hub that keeps
// none (RSHUB_INVENTORY=off) is not among those that share the claims on them.
func (c *Config) inventoriesInRedis(conn *redisconn.Conn, memory *redislog.Log) inventoryStore {
	keepers := claim.NewRedis(conn, c.Prefix, live.Kind, claim.RedisOptions{ClockSkew: c.ClockSkew, Hubs: inventoryHubs})
	return inventoryStore{
		store: memory.Inventories(), claims: keepers, poll: pollRedis, sweep: memory.SweepDeleted,
		scarce: func(ctx context.Context) bool {
			used, most, err := memory.Memory(ctx)
			return err == nil && most > 0 && used > most/100*85
		},
	}
}

// inventoriesOnDisk returns the inventories beside a memory on the disk.
func inventoriesOnDisk(ctx context.Context, memory *disklog.Log) (inventoryStore, error) {
	claims, err := claim.OpenLocal(ctx, memory.Keep(inventoryKeep), live.Shards)
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

// inventory reports whether the hub keeps an inventory of a set. If the set cannot be
// looked at, whoever asks for its inventory is told why.
func (p *parts) inventory(ctx context.Context, set string) bool {
	if p.live == nil {
		return false
	}
	state, err := p.memory.State(ctx, set)
	return err != nil || !state.NoInventory
}

// states lets package web read what a Live keeps. Without one, no set has an inventory.
type states struct{ live *live.Live }

func (s states) State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*web.Held, error) {
	if s.live == nil {
		return nil, feed.ErrNoInventory
	}
	return webHeld(s.live.State(ctx, set, from, wait))
}

func (s states) At(ctx context.Context, set string, at feed.Cursor) (*web.Held, error) {
	if s.live == nil {
		return nil, feed.ErrNoInventory
	}
	return webHeld(s.live.At(ctx, set, at))
}

func webHeld(h *live.Held, err error) (*web.Held, error) {
	if err != nil {
		return nil, err
	}
	return &web.Held{State: h.State, Complete: h.Complete, Release: h.Release}, nil
}

// snapshot lets package subscribe read the roots that a Live keeps.
func (p *parts) snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	var h *live.Held
	var err error
	switch {
	case p.live == nil:
		return nil, feed.ErrNoInventory
	case at.IsZero():
		h, err = p.live.Baseline(ctx, set)
	default:
		h, err = p.live.BaselineAt(ctx, set, at)
	}
	if err != nil {
		return nil, err
	}
	return &subscribe.Snapshot{Resources: h, Complete: h.Complete, Release: h.Release}, nil
}

// resourceList returns what the Resource List of a set shows: that at a cursor, and with
// the zero cursor the newest one.
func (p *parts) resourceList(ctx context.Context, set string, at feed.Cursor) (*documents.List, error) {
	if p.live == nil {
		return nil, feed.ErrNoInventory
	}
	l, err := p.live.ResourceList(ctx, set, at)
	if err != nil {
		return nil, err
	}
	return &documents.List{Resources: l.Held, Completed: l.Completed}, nil
}

// wireInventories returns what keeps the inventories, or nil if the hub keeps none.
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
