//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/resourcesync"
)

// A collection is a number of resources of the shape of Python's PEPs: two digests, a
// length and a type.
type collection int

var collectionBegan = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// change returns a change of the i-th resource. Version 0 created it.
func (n collection) change(i, version int) resourcesync.Change {
	body := fmt.Appendf(nil, "resource %d, version %d", i, version)
	length := int64(1000 + i*7919%50_000)
	c := resourcesync.Change{
		Loc:     fmt.Sprintf("https://raw.example.org/collection/documents/main/item-%07d.txt", i),
		Change:  resourcesync.Updated,
		Lastmod: collectionBegan.Add(time.Duration((i*7919+version)%200_000_000) * time.Second),
		Hash:    fmt.Sprintf("md5:%x sha-256:%x", md5.Sum(body), sha256.Sum256(body)),
		Length:  &length,
		Type:    "text/plain",
	}
	if version == 0 {
		c.Change = resourcesync.Created
	}
	return c
}

// created returns the batch-th run of at most size changes that create the collection, in an
// order that is not that of the locs.
func (n collection) created(batch, size int) []resourcesync.Change {
	changes := make([]resourcesync.Change, 0, size)
	for i := batch * size; i < min((batch+1)*size, int(n)); i++ {
		changes = append(changes, n.change(i*7_368_787%int(n), 0))
	}
	return changes
}

// updated returns changes of resources at random places.
func (n collection) updated(count int) []resourcesync.Change {
	changes := make([]resourcesync.Change, count)
	for i := range changes {
		changes[i] = n.change(rand.IntN(int(n)), 1+rand.IntN(1<<30))
	}
	return changes
}

// fillSize is how many changes a publish has that fills a memory.
const fillSize = 1000

// create publishes a collection to a set.
func (b *bench) create(log changelog.Log, set string, n collection) error {
	return b.fillWith(log, set, (int(n)+fillSize-1)/fillSize, 10_000, func(i int) []resourcesync.Change { return n.created(i, fillSize) })
}

// update publishes changes at random places of a collection.
func (b *bench) update(log changelog.Log, set string, n collection, count int) error {
	return b.fillWith(log, set, count/fillSize, 10_000, func(int) []resourcesync.Change { return n.updated(fillSize) })
}

// An inventoryMemory is a change memory with the inventories beside it, in this process.
type inventoryMemory struct {
	log    changelog.Log
	store  *countedStore
	claims claim.Store
	poll   time.Duration
	redis  *redisServer // nil: the memory is on the disk
	dir    string       // of the disk
	close  func() error
}

// A countedStore counts the bytes that are put into a store of inventories.
type countedStore struct {
	inventory.Store
	bytes atomic.Int64
}

func (s *countedStore) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	for _, p := range pages {
		s.bytes.Add(int64(len(p.Bytes)))
	}
	return s.Store.Put(ctx, set, begin, attempt, pages)
}

func (s *countedStore) Swap(ctx context.Context, set string, w inventory.Swap) error {
	s.bytes.Add(int64(len(w.Head)))
	return s.Store.Swap(ctx, set, w)
}

// inventoryOnDisk opens a memory in a data directory of rshub's.
func (b *bench) inventoryOnDisk(dir string) (*inventoryMemory, error) {
	log, err := memory(dir)
	if err != nil {
		return nil, err
	}
	claims, err := claim.OpenLocal(b.ctx, log.Keep("inventory"), live.Shards)
	if err != nil {
		return nil, cmp.Or(err, log.Close())
	}
	return &inventoryMemory{
		log: log, store: &countedStore{Store: log.Inventories()}, claims: claims, poll: 500 * time.Millisecond, dir: dir, close: log.Close,
	}, nil
}

// newOnDisk opens an empty memory on the disk. close removes it.
func (b *bench) newOnDisk() (*inventoryMemory, error) {
	dir, err := b.dir()
	if err != nil {
		return nil, err
	}
	m, err := b.inventoryOnDisk(dir)
	if err != nil {
		return nil, err
	}
	m.close = func() error { return cmp.Or(m.log.(*disklog.Log).Close(), os.RemoveAll(dir)) }
	return m, nil
}

// newInRedis starts a Redis and opens an empty memory in it. close stops it.
func (b *bench) newInRedis() (*inventoryMemory, error) {
	s, err := b.redisServer()
	if err != nil {
		return nil, err
	}
	log, err := s.open(b.ctx)
	if err != nil {
		s.stop()
		return nil, err
	}
	return &inventoryMemory{
		log: log, store: &countedStore{Store: log.Inventories()}, poll: 2 * time.Second, redis: s,
		claims: claim.NewRedis(s.conn, "rshub", live.Kind, claim.RedisOptions{Hubs: "inventory-hubs"}),
		close:  func() error { err := log.Close(); s.stop(); return err },
	}, nil
}

// again closes a memory on the disk and opens it. So nothing is in memory that a hub
// that begins does not have.
func (m *inventoryMemory) again(b *bench) error {
	if m.redis != nil {
		return nil
	}
	if err := m.log.Close(); err != nil {
		return err
	}
	n, err := b.inventoryOnDisk(m.dir)
	if err != nil {
		return err
	}
	m.log, m.store, m.claims = n.log, n.store, n.claims
	return nil
}

// servers returns the processes that are measured besides this one.
func (m *inventoryMemory) servers() []*server {
	if m.redis == nil {
		return nil
	}
	return []*server{m.redis.server}
}

// keep keeps the inventories of the memory as a hub does, until stop. The options that are
// not given are those of a hub.
func (m *inventoryMemory) keep(ctx context.Context, o live.Options) (l *live.Live, stop func() error) {
	o.Poll = m.poll
	l = live.New(m.log, m.store, m.claims, o)
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- l.Run(ctx) }()
	return l, func() error {
		cancel()
		return <-ran
	}
}

// inventory returns the inventory, of which nothing was read yet.
func (m *inventoryMemory) inventory() *inventory.Inventory {
	return inventory.New(m.store, benchSet, inventory.Options{})
}

// root returns the newest root, and the head of the log.
func (m *inventoryMemory) root(ctx context.Context) (inventory.Root, feed.Cursor, error) {
	rec, head, err := m.inventory().Load(ctx)
	if err != nil {
		return inventory.Root{}, feed.Cursor{}, err
	}
	return head.Newest(), rec.Log.Head, nil
}

// make makes the inventory up to the head of the log, and a Resource List there: that is due
// when the set becomes complete.
func (b *bench) make(m *inventoryMemory) (root inventory.Root, err error) {
	l, stop := m.keep(b.ctx, live.Options{})
	if err = l.Complete(b.ctx, benchSet, true); err == nil {
		err = b.caughtUp(m)
	}
	if err = cmp.Or(err, stop()); err == nil {
		err = m.inventory().Shrink(b.ctx) // the maker may have been stopped before it removed what died
	}
	if err == nil {
		root, _, err = m.root(b.ctx)
	}
	return root, err
}

// fileBytes returns how many bytes the files of a store on the disk have that hold what
// is kept, when they have settled.
func fileBytes(ctx context.Context, dir string) (float64, error) {
	const quiet = 700 * time.Millisecond
	last, since := -1.0, time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for time.Since(since) < quiet {
		sum := 0.0
		files, err := filepath.Glob(filepath.Join(dir, "changes", "*", "*.sst"))
		more, gerr := filepath.Glob(filepath.Join(dir, "changes", "*.sst"))
		if err := cmp.Or(err, gerr); err != nil {
			return 0, err
		}
		for _, f := range append(files, more...) {
			if info, err := os.Stat(f); err == nil { // else it was removed meanwhile
				sum += float64(info.Size())
			}
		}
		if sum != last {
			last, since = sum, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return last, nil
}
