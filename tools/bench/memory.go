//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/writer"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

// A memory is a change memory that is open in this process.
type memory struct {
	log interface {
		changelog.Log
		Inventories() inventory.Store
	}
	servers []*server // that it needs, to be measured
	claims  func() claim.Store
	poll    time.Duration  // of what keeps its inventories, as a hub has it
	size    func() float64 // bytes of all that is kept
}

// A store creates memories of one kind.
type store struct {
	name string
	open func() *memory // an empty one, until what is measured is over
}

// inStores calls do for each store.
func (b *bench) inStores(do func(s store)) {
	for _, s := range []store{{"disk", b.onDisk}, {"Redis", b.inRedis}} {
		must(b.scope(func() { do(s) }))
	}
}

// onDisk opens a memory in a new directory.
func (b *bench) onDisk() *memory {
	m := b.diskAt(b.dir())
	b.later(func() error { return m.log.Close() })
	return m
}

// diskAt opens the memory in a data directory of rshub. The caller must close its log.
func (b *bench) diskAt(dir string) *memory {
	m := &memory{poll: 500 * time.Millisecond}
	open := func() {
		log := have(disklog.Open(context.Background(), filepath.Join(dir, "changes"), disklog.Options{}))
		m.log = log
		m.claims = func() claim.Store { return have(claim.OpenLocal(b.ctx, log.Bucket("inventory"), writer.Shards)) }
	}
	m.size = func() float64 {
		// Pebble flushes its write-ahead log to files when it is opened again.
		must(m.log.Close())
		open()
		return b.fileBytes(dir)
	}
	open()
	return m
}

// fileBytes returns the size of the data files of a disk store after compactions have finished.
func (b *bench) fileBytes(dir string) float64 {
	for last := -1.0; ; {
		sum := 0.0
		must(filepath.WalkDir(dir, func(name string, _ os.DirEntry, _ error) error {
			if info, err := os.Stat(name); err == nil && filepath.Ext(name) == ".sst" { // otherwise it was removed in the meantime
				sum += float64(info.Size())
			}
			return b.ctx.Err()
		}))
		if sum == last {
			return sum
		}
		last = sum
		time.Sleep(settle / 2)
	}
}

// fillDisk fills the memory in a data directory of rshub with batches of n changes.
func (b *bench) fillDisk(dir string, count, n, listSize int) {
	m := b.diskAt(dir)
	b.fill(m, count/n, listSize, func(i int) []resourcesync.Change { return b.changes.batch(i, n) })
	must(m.log.Close())
}

// fill publishes batches of changes from many concurrent publishers, to save time. Each publish is
// a block.
func (b *bench) fill(m *memory, batches, listSize int, batch func(i int) []resourcesync.Change) {
	h := hub.New(m.log, hub.Options{ListSize: listSize})
	defer h.Close()
	must(inParallel(128, batches, func(i int) error {
		_, err := h.Publish(b.ctx, benchSet, changelog.Publish{Changes: batch(i)})
		return err
	}))
}

// inParallel calls do for the numbers below n, up to atOnce at a time.
func inParallel(atOnce, n int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, atOnce)
	for w := range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A redisServer is a redis-server for this bench. It never rewrites its append-only file, because a
// rewrite could start at any time and disturb the measurement.
type redisServer struct {
	*server
	conn   *redisconn.Conn // for what is rshub's
	client *redis.Client   // for what is bare
}

// redisServer starts a redis-server.
func (b *bench) redisServer() *redisServer {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		must(skipError("it needs redis-server: apt-get install redis-server"))
	}
	s := b.startAt(path, func(host, port string) []string {
		return []string{"--bind", host, "--port", port, "--dir", b.dir(), "--save", "",
			"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"}
	})
	conn := have(redisconn.Open("redis://"+s.addr, redisconn.Options{}))
	b.later(conn.Close)
	client := redis.NewClient(&redis.Options{
		Addr: s.addr, PoolSize: 32,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	b.later(client.Close)
	return &redisServer{s, conn, client}
}

// inRedis starts a Redis and opens an empty memory in it.
func (b *bench) inRedis() *memory {
	s := b.redisServer()
	log := have(redislog.Open(b.ctx, s.conn, redislog.Options{}))
	b.later(log.Close)
	return &memory{
		log: log, servers: []*server{s.server}, poll: 2 * time.Second,
		claims: func() claim.Store {
			return claim.NewRedis(s.conn, "rshub", writer.Kind, claim.RedisOptions{Hubs: "inventory-hubs"})
		},
		size: func() float64 { return s.used(b.ctx) },
	}
}

// used returns the memory usage of all keys in bytes. INFO would also count the buffers of
// connections, which vary by hundreds of KB.
func (s *redisServer) used(ctx context.Context) (bytes float64) {
	keys := s.client.Scan(ctx, 0, "", 1000).Iterator()
	for keys.Next(ctx) {
		bytes += float64(have(s.client.MemoryUsage(ctx, keys.Val(), 0).Result()))
	}
	must(keys.Err())
	return bytes
}

// bareStream is where the floors keep blocks: a stream, one entry for each.
const bareStream = "bare"

// bareAppend appends a block to the stream: the cheapest way to store blocks in order.
func (s *redisServer) bareAppend(ctx context.Context, block []byte) error {
	return s.client.XAdd(ctx, &redis.XAddArgs{Stream: bareStream, Values: []any{"b", block}}).Err()
}
