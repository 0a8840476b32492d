package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/transfer"
)

func (c *Config) besideDisk(keep func(name string) *disklog.Keep, inventories inventory.Store) transfer.Beside {
	return transfer.Beside{
		Inventories: inventories,
		Subscriptions: func(ctx context.Context) (subscription.Registry, claim.Store, error) {
			return c.subscriptionsOnDisk(ctx, keep(callbackKeep))
		},
		Kinds: publishedKinds,
		Published: func(ctx context.Context, kind string) (cursors.Cursors, claim.Store, error) {
			return publishedOnDisk(ctx, keep(kind), kind)
		},
	}
}

func (c *Config) besideRedis(conn *redisconn.Conn, inventories inventory.Store) transfer.Beside {
	return transfer.Beside{
		Inventories: inventories, Conn: conn,
		Subscriptions: func(context.Context) (subscription.Registry, claim.Store, error) { return c.subscriptionsInRedis(conn) },
		Kinds:         publishedKinds,
		Published: func(_ context.Context, kind string) (cursors.Cursors, claim.Store, error) {
			return c.publishedInRedis(conn, kind)
		},
	}
}

// OpenSource opens the store that c names. The store must exist. If it is on the
// disk and a hub uses it, the error is disklog.ErrInUse.
func OpenSource(ctx context.Context, c Config) (*transfer.Source, error) {
	c = c.withDefaults()
	if c.RedisURL != "" {
		conn, err := c.connectRedis()
		if err != nil {
			return nil, err
		}
		o := c.redisOptions()
		o.Existing = true
		memory, err := redislog.Open(ctx, conn, o)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &transfer.Source{Exporter: memory, Beside: c.besideRedis(conn, memory.Inventories())}, nil
	}
	o := c.diskOptions()
	o.Existing = true
	memory, err := disklog.Open(filepath.Join(c.Data, storeDir), o)
	if err != nil {
		return nil, err
	}
	return &transfer.Source{Exporter: memory, Beside: c.besideDisk(memory.Keep, memory.Inventories())}, nil
}

// OpenTarget opens the store that c names, which is to become a copy of the memory
// with the identity id. The error is changelog.ErrCopied if the store already holds
// the finished copy, and disklog.ErrInUse if a store on the disk is in use.
func OpenTarget(ctx context.Context, c Config, id string) (*transfer.Target, error) {
	c = c.withDefaults()
	if c.RedisURL != "" {
		conn, err := c.connectRedis()
		if err != nil {
			return nil, err
		}
		o := c.redisOptions()
		o.Existing = true
		memory, err := redislog.OpenImport(ctx, conn, id, o)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &transfer.Target{Importer: memory, Beside: c.besideRedis(conn, memory.Inventories())}, nil
	}
	if err := transfer.MakeDir(c.Data); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	memory, err := disklog.OpenImport(filepath.Join(c.Data, storeDir), id, c.diskOptions())
	if err != nil {
		return nil, err
	}
	return &transfer.Target{Importer: memory, Beside: c.besideDisk(memory.Keep, memory.Inventories())}, nil
}
