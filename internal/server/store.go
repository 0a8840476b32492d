package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/metered"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/backup"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/redisconn"
)

// storeDir is the directory of the change memory in a data directory. callbackKeep and
// inventoryKeep are the places of the subscriptions, and of the claims on inventories, in the change
// memory.
const (
	storeDir      = "changes"
	callbackKeep  = "callback"
	inventoryKeep = "inventory"
)

// A store has the data of a hub: the change memory, the WebSub subscriptions, and the inventories,
// with the claims on their shards. The caller of openStore must close it.
type store struct {
	memory        changelog.Log
	subscriptions subscription.Registry
	claims        claim.Store
	inventories   inventoryStore
	ticketKeys    access.TicketKeys // keys of tickets

	disk   *disklog.Log    // the memory if it is on disk, otherwise nil
	shared *redislog.Log   // the memory if it is in Redis, otherwise nil
	redis  *redisconn.Conn // the connections of the memory to Redis; nil if shared is nil
}

var _ limit.Store = (*store)(nil)

// SetSize returns the approximate size of a set in bytes.
func (s *store) SetSize(ctx context.Context, set string) (bytes int64, err error) {
	if s.disk != nil {
		return s.disk.SetSize(set)
	}
	return s.shared.SetSize(ctx, set)
}

// Capacity returns the capacity of the store in bytes, or 0 if it is unknown.
func (s *store) Capacity(ctx context.Context) (bytes int64, err error) {
	if s.disk != nil {
		return s.disk.Capacity()
	}
	_, most, err := s.shared.Memory(ctx)
	return int64(most), err
}

// Creator returns the creator of a set.
func (s *store) Creator(ctx context.Context, set string) (by string, err error) {
	st, err := s.memory.State(ctx, set)
	return st.By, err
}

// close closes the memory and the connections to Redis.
func (s *store) close() error {
	err := s.memory.Close()
	if s.redis != nil {
		err = errors.Join(err, s.redis.Close())
	}
	return err
}

// openStore opens the store in Redis or on disk.
func (s *Server) openStore(ctx context.Context) (*store, error) {
	if s.config.RedisURL != "" {
		return s.openRedis(ctx)
	}
	return s.openDisk(ctx)
}

func (s *Server) openRedis(ctx context.Context) (*store, error) {
	c := &s.config
	conn, err := c.connectRedis()
	if err != nil {
		return nil, fmt.Errorf("Config.RedisURL: %w", err)
	}
	memory, err := s.openRedisLog(ctx, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	subscriptions, claims, err := c.subscriptionsInRedis(conn)
	if err != nil {
		return nil, errors.Join(err, memory.Close(), conn.Close())
	}
	return &store{
		memory: metered.New(memory, s.metrics), subscriptions: subscriptions, claims: claims,
		inventories: c.inventoriesInRedis(conn, memory), ticketKeys: &ticket.SharedKeys{Conn: conn, Prefix: c.Prefix},
		shared: memory, redis: conn,
	}, nil
}

func (s *Server) openDisk(ctx context.Context) (*store, error) {
	c := &s.config
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", explainPermission(err, c.Data))
	}
	o := c.diskOptions()
	o.Logger = c.Logger
	memory, err := disklog.Open(ctx, filepath.Join(c.Data, storeDir), o)
	if err != nil && ctx.Err() != nil {
		return nil, errStopped
	} else if err != nil {
		return nil, explainPermission(err, c.Data)
	}
	subscriptions, claims, err := c.subscriptionsOnDisk(ctx, memory.Bucket(callbackKeep))
	var kept inventoryStore
	if err == nil {
		kept, err = inventoriesOnDisk(ctx, memory)
	}
	if err == nil {
		err = backup.RemoveUnfinished(c.Data)
	}
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	measureDisk(s.metrics, memory.Space)
	return &store{
		memory: metered.New(memory, s.metrics), subscriptions: subscriptions, claims: claims, inventories: kept,
		ticketKeys: ticket.NewLocalKeys(), disk: memory,
	}, nil
}

// explainPermission adds the user and group of the hub to a permission error, because they are hard
// to find out in a container.
func explainPermission(err error, dir string) error {
	if !errors.Is(err, fs.ErrPermission) || os.Getuid() < 0 { // Windows has no user IDs
		return err
	}
	return fmt.Errorf("%w; the hub runs as user %d and group %d, which must be able to write to %s", err, os.Getuid(), os.Getgid(), dir)
}

// subscriptionsInRedis opens the subscriptions in Redis.
func (c *Config) subscriptionsInRedis(conn *redisconn.Conn) (subscription.Registry, *claim.Redis, error) {
	keys, err := c.secretKeys()
	if err != nil {
		return nil, nil, fmt.Errorf("open the subscriptions: %w", err)
	}
	r, err := subscription.NewRedis(conn, c.Prefix, subscription.RedisOptions{Keys: keys})
	if err != nil {
		return nil, nil, fmt.Errorf("open the subscriptions: %w", err)
	}
	return r, claim.NewRedis(conn, c.Prefix, subscription.ClaimKind, claim.RedisOptions{}), nil
}

// subscriptionsOnDisk opens the subscriptions on disk.
func (c *Config) subscriptionsOnDisk(ctx context.Context, keep *disklog.Bucket) (subscription.Registry, claim.Store, error) {
	claims, err := claim.OpenLocal(ctx, keep, subscription.Shards)
	if err != nil {
		return nil, nil, fmt.Errorf("open the subscriptions: %w", err)
	}
	keys, err := c.secretKeys()
	if err != nil {
		return nil, nil, fmt.Errorf("open the subscriptions: %w", err)
	}
	r, err := subscription.OpenDisk(ctx, keep, claims, keys)
	if err != nil {
		return nil, nil, err
	}
	return r, claims, nil
}

// startInterval is the time between two attempts to open the memory in Redis.
const startInterval = 500 * time.Millisecond

// errStopped reports that the hub was stopped during its start.
var errStopped = errors.New("stopped during the start")

// openRedisLog opens the change memory in Redis. While Redis is unavailable, it retries for up to
// StartTimeout, and logs that once. It returns permanent errors, such as a wrong password,
// immediately.
func (s *Server) openRedisLog(ctx context.Context, conn *redisconn.Conn) (*redislog.Log, error) {
	timeout := s.config.StartTimeout
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	for why := error(nil); ; {
		memory, err := redislog.Open(limited, conn, s.config.redisOptions())
		switch {
		case err == nil:
			if why != nil {
				s.log.Info("connected to Redis", "seconds", time.Since(start).Seconds())
			}
			return memory, nil
		case ctx.Err() != nil:
			return nil, errStopped
		case limited.Err() != nil:
			return nil, fmt.Errorf("Config.RedisURL: waited for %v (Config.StartTimeout): %w", timeout, cmp.Or(why, err))
		case !redislog.IsTemporary(err):
			return nil, fmt.Errorf("Config.RedisURL: %w", err)
		case why == nil:
			s.log.Warn("waiting for Redis", "limit", timeout.String(), "err", err)
			s.health.setNotReady("starting: waiting for Redis: " + err.Error())
		}
		why = err
		backoff.Wait(limited, startInterval)
	}
}

func (c *Config) diskOptions() disklog.Options {
	return disklog.Options{Reserve: c.DiskReserve}
}

func (c *Config) redisOptions() redislog.Options {
	return redislog.Options{Prefix: c.Prefix, Logger: c.Logger}
}

// connectRedis returns the connections to Redis, which are opened by the first call.
func (c *Config) connectRedis() (*redisconn.Conn, error) {
	return redisconn.Open(c.RedisURL, redisconn.Options{Timeout: c.RedisTimeout, Wait: c.RedisWait})
}
