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

// storeDir is the directory of the change memory in a data directory. In the change memory,
// callbackKeep is the place of the subscriptions, and inventoryKeep that of the claims on
// inventories.
const (
	storeDir      = "changes"
	callbackKeep  = "callback"
	inventoryKeep = "inventory"
)

// A store is what a hub keeps: its change memory, and beside it the WebSub
// subscriptions and the inventories, with the claims on their shards. Whoever opens a
// store closes it.
type store struct {
	memory        changelog.Log
	subscriptions subscription.Registry
	claims        claim.Store
	inventories   inventoryStore
	ticketKeys    access.TicketKeys // of the tickets of callers

	disk   *disklog.Log    // the memory if it is on the disk; else nil
	shared *redislog.Log   // the memory if it is in Redis; else nil
	redis  *redisconn.Conn // the connections to Redis if the memory is there; else nil
}

var _ limit.Store = (*store)(nil)

// Kept returns about how many bytes a set takes.
func (s *store) Kept(ctx context.Context, set string) (bytes int64, err error) {
	if s.disk != nil {
		return s.disk.SetSize(set)
	}
	return s.shared.SetSize(ctx, set)
}

// Capacity returns how many bytes the memory has room for; 0: nobody knows.
func (s *store) Capacity(ctx context.Context) (bytes int64, err error) {
	if s.disk != nil {
		return s.disk.Capacity()
	}
	_, most, err := s.shared.Memory(ctx)
	return int64(most), err
}

// Maker returns who made a set.
func (s *store) Maker(ctx context.Context, set string) (by string, err error) {
	st, err := s.memory.State(ctx, set)
	return st.By, err
}

// close closes the memory, and the connections to Redis if there are any.
func (s *store) close() error {
	err := s.memory.Close()
	if s.redis != nil {
		err = errors.Join(err, s.redis.Close())
	}
	return err
}

// openStore opens the store in Redis or on the local disk.
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
	memory, err := s.awaitRedis(ctx, conn)
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
		return nil, fmt.Errorf("make the data directory: %w", explainDenied(err, c.Data))
	}
	o := c.diskOptions()
	o.Logger = c.Logger
	memory, err := disklog.Open(ctx, filepath.Join(c.Data, storeDir), o)
	if err != nil && ctx.Err() != nil {
		return nil, errStopped
	} else if err != nil {
		return nil, explainDenied(err, c.Data)
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
		ticketKeys: ticket.NewOwnKeys(), disk: memory,
	}, nil
}

// explainDenied adds to an error of permissions who the hub runs as: in a container, nobody
// knows.
func explainDenied(err error, dir string) error {
	if !errors.Is(err, fs.ErrPermission) || os.Getuid() < 0 { // Windows has no numbers
		return err
	}
	return fmt.Errorf("%w; the hub runs as user %d and group %d: let it write to %s", err, os.Getuid(), os.Getgid(), dir)
}

// subscriptionsInRedis opens the subscriptions beside a memory in Redis.
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

// subscriptionsOnDisk opens the subscriptions beside a memory on the disk.
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

// startEvery is the time between two attempts to open the memory in Redis.
const startEvery = 500 * time.Millisecond

// errStopped says that the hub was told to stop before its start was over.
var errStopped = errors.New("told to stop during the start")

// awaitRedis opens the change memory in Redis. While Redis cannot be reached, it
// waits, at most StartTimeout, and logs that once. It returns at once with an error
// that waiting does not cure, such as a wrong password.
func (s *Server) awaitRedis(ctx context.Context, conn *redisconn.Conn) (*redislog.Log, error) {
	patience := s.config.StartTimeout
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	for why := error(nil); ; {
		memory, err := redislog.Open(limited, conn, s.config.redisOptions())
		switch {
		case err == nil:
			if why != nil {
				s.log.Info("Redis can be reached: the start goes on", "seconds", time.Since(begun).Seconds())
			}
			return memory, nil
		case ctx.Err() != nil:
			return nil, errStopped
		case limited.Err() != nil:
			return nil, fmt.Errorf("Config.RedisURL: waited for %v (Config.StartTimeout): %w", patience, cmp.Or(why, err))
		case !redislog.IsTemporary(err):
			return nil, fmt.Errorf("Config.RedisURL: %w", err)
		case why == nil:
			s.log.Warn("waiting for Redis", "limit", patience.String(), "err", err)
			s.health.leave("starting: waiting for Redis: " + err.Error())
		}
		why = err
		backoff.Wait(limited, startEvery)
	}
}

func (c *Config) diskOptions() disklog.Options {
	return disklog.Options{Reserve: c.DiskReserve}
}

func (c *Config) redisOptions() redislog.Options {
	return redislog.Options{Prefix: c.Prefix, Logger: c.Logger}
}

// connectRedis prepares the connections to Redis. The first call makes them.
func (c *Config) connectRedis() (*redisconn.Conn, error) {
	return redisconn.Open(c.RedisURL, redisconn.Options{Timeout: c.RedisTimeout, Wait: c.RedisWait})
}
