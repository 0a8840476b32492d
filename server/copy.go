package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/inventory"
)

// A Source is the store of a hub that is copied from. The caller closes it.
type Source struct {
	changelog.Exporter
	beside
}

// Close closes the store.
func (s *Source) Close() error { return errors.Join(s.Exporter.Close(), s.closeConn()) }

// A Target is a store that is to become a copy. The caller closes it.
type Target struct {
	changelog.Importer
	beside
}

// Close closes the store.
func (t *Target) Close() error { return errors.Join(t.Importer.Close(), t.closeConn()) }

// beside is the part of a store beside the change memory: the WebSub subscriptions, and
// the inventories.
type beside struct {
	inventories inventory.Store

	open func(ctx context.Context) (subscription.Registry, claim.Store, error) // opens the subscriptions and the claims on their shards
	conn *redisconn.Conn                                                       // nil: the store is on the disk
}

func (b beside) closeConn() error {
	if b.conn == nil {
		return nil
	}
	return b.conn.Close()
}

func (c *Config) besideDisk(keep *disklog.Keep, inventories inventory.Store) beside {
	return beside{inventories: inventories, open: func(ctx context.Context) (subscription.Registry, claim.Store, error) {
		return c.subscriptionsOnDisk(ctx, keep)
	}}
}

func (c *Config) besideRedis(conn *redisconn.Conn, inventories inventory.Store) beside {
	return beside{inventories: inventories, conn: conn, open: func(context.Context) (subscription.Registry, claim.Store, error) { return c.subscriptionsInRedis(conn) }}
}

// OpenSource opens the store that c names. The store must exist. If it is on the
// disk and a hub uses it, the error is disklog.ErrInUse.
func OpenSource(ctx context.Context, c Config) (*Source, error) {
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
		return &Source{memory, c.besideRedis(conn, memory.Inventories())}, nil
	}
	o := c.diskOptions()
	o.Existing = true
	memory, err := disklog.Open(filepath.Join(c.Data, storeDir), o)
	if err != nil {
		return nil, err
	}
	return &Source{memory, c.besideDisk(memory.Keep(callbackKeep), memory.Inventories())}, nil
}

// OpenTarget opens the store that c names, which is to become a copy of the memory
// with the identity id. The error is changelog.ErrCopied if the store already holds
// the finished copy, and disklog.ErrInUse if a store on the disk is in use.
func OpenTarget(ctx context.Context, c Config, id string) (*Target, error) {
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
		return &Target{memory, c.besideRedis(conn, memory.Inventories())}, nil
	}
	err := os.MkdirAll(c.Data, 0o700)
	if err == nil {
		err = syncDir(filepath.Dir(filepath.Clean(c.Data)))
	}
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	memory, err := disklog.OpenImport(filepath.Join(c.Data, storeDir), id, c.diskOptions())
	if err != nil {
		return nil, err
	}
	return &Target{memory, c.besideDisk(memory.Keep(callbackKeep), memory.Inventories())}, nil
}

// A Copied is what a Copy has copied, earlier runs included.
type Copied struct {
	changelog.Progress
	Subscriptions int
	Inventories   int
	Resources     uint64 // of the inventories
}

// Copy copies all of a store. It calls report after each step, and says in log which
// inventories it leaves out. It blocks until all is copied, ctx ends, or something fails.
// Then a Copy to the same target goes on where it stopped.
func Copy(ctx context.Context, from *Source, to *Target, log *slog.Logger, report func(changelog.Progress)) (c Copied, err error) {
	// The subscriptions are copied first. So the copied log reaches at least as far as
	// their cursors.
	if c.Subscriptions, err = copySubscriptions(ctx, from, to); err != nil {
		return c, err
	}
	inventories := NewInventoryCopy(from, to, log)
	c.Progress, err = changelog.Copy(ctx, from, to, inventories, report)
	c.Inventories, c.Resources = inventories.Sets, inventories.Resources
	return c, err
}

// Alike reports whether two stores hold the same sets, up to the same cursors.
func Alike(ctx context.Context, a, b *Source) (bool, error) {
	ours, err := a.Sets(ctx)
	if err != nil {
		return false, err
	}
	theirs, err := b.Sets(ctx)
	return reflect.DeepEqual(ours, theirs), err
}

// copySubscriptions copies the WebSub subscriptions, and the requests that wait, and
// returns the number of subscriptions. It blocks until all is copied, ctx ends, or
// something fails.
func copySubscriptions(ctx context.Context, from *Source, to *Target) (int, error) {
	old, _, err := from.open(ctx)
	if err != nil {
		return 0, err
	}
	kept, claims, err := to.open(ctx)
	if err != nil {
		return 0, err
	}
	return subscription.Copy(ctx, old, kept, claims)
}
