//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/live"
)

// What an inventory keeps up with: changes at random places, as many every ten
// milliseconds.
const (
	followTick  = 10 * time.Millisecond
	followBatch = 50
)

// inventoryFollowDisk measures an inventory on the disk that keeps up.
func (b *bench) inventoryFollowDisk(t *table) error {
	m, err := b.newOnDisk()
	if err != nil {
		return err
	}
	return cmp.Or(b.inventoryFollow(t, m), m.close())
}

// inventoryFollowRedis measures one in Redis.
func (b *bench) inventoryFollowRedis(t *table) error {
	m, err := b.newInRedis()
	if err != nil {
		return err
	}
	return cmp.Or(b.inventoryFollow(t, m), m.close())
}

// A following is what it took to keep up.
type following struct {
	usage
	changes   float64 // that were published
	written   float64 // bytes that were written into files meanwhile
	put       float64 // bytes that were put into the store of inventories
	committed float64 // changes that the new roots have
	most      float64 // changes that were in no root at a time
}

// inventoryFollow measures what changes at random places take of a hub that keeps an
// inventory, and of one that keeps none.
func (b *bench) inventoryFollow(t *table, m *inventoryMemory) error {
	n := collection(b.resources)
	err := b.create(m.log, benchSet, n)
	if err == nil {
		_, err = b.make(m)
	}
	if err != nil {
		return err
	}
	const second = int(time.Second / followTick * followBatch)
	what := fmt.Sprintf("%s changes a second, %s resources", format(float64(second)), format(float64(n)))
	return alternate(b,
		func() (following, error) { return b.follows(m, n, b.followed/4) }, // it is the same all the time
		func() (f following, err error) {
			l, stop := m.keep(b.ctx, live.Options{})
			// The maker begins with what came while nobody kept the inventory. That does not count.
			if err = l.Complete(b.ctx, benchSet, true); err == nil {
				err = b.caughtUp(m)
			}
			if err == nil {
				f, err = b.follows(m, n, b.followed)
			}
			return f, cmp.Or(err, stop())
		},
		func(f, o following) {
			others := max(f.others, o.others)
			t.add(what, metric{name: "CPU s/s", limit: .25, over: true}, f.own/f.seconds, o.own/o.seconds, others)
			if m.redis != nil {
				t.add(what, metric{name: "Redis CPU s/s"}, f.cpu/f.seconds, o.cpu/o.seconds, others)
			}
			if o.committed > 0 {
				t.add(what, metric{name: "bytes put into the store/change", limit: 1536}, 0, o.put/o.committed, notMeasured)
			}
			t.add(what, metric{name: "bytes written to files/change"}, f.written/f.changes, o.written/o.changes, notMeasured)
			t.add(what, metric{name: "changes in no root, most"}, 0, o.most, notMeasured)
		})
}

// caughtUp returns when the newest root is at the head of the log.
func (b *bench) caughtUp(m *inventoryMemory) error {
	return b.until(m, func(root inventory.Root, head feed.Cursor) bool { return root.Cursor == head })
}

// firstRoot returns when there is a root.
func (b *bench) firstRoot(m *inventoryMemory) error {
	return b.until(m, func(root inventory.Root, _ feed.Cursor) bool { return root.Upto > 0 })
}

// until returns when the newest root, and the head of the log, are as they should be.
func (b *bench) until(m *inventoryMemory, is func(inventory.Root, feed.Cursor) bool) error {
	const patience = 3 * time.Minute
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < patience; {
		root, head, err := m.root(b.ctx)
		if err != nil || is(root, head) {
			return err
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
	return errors.New("LOST: the inventory does not get on")
}

// follows publishes changes at a steady pace.
func (b *bench) follows(m *inventoryMemory, n collection, length time.Duration) (f following, err error) {
	last, _, err := m.root(b.ctx)
	if err != nil {
		return f, err
	}
	var first inventory.Root // that was made meanwhile: what came before it may have been waiting
	var put int64            // when it was made
	batches := make([]changelog.Publish, 2*time.Second/followTick)
	for i := range batches {
		batches[i] = changelog.Publish{Changes: n.updated(followBatch)}
	}
	h := hub.New(m.log, hub.Options{})
	defer h.Close()
	written, err := m.written()
	if err != nil {
		return f, err
	}
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	f.usage, err = measure(func() error {
		until := time.Now().Add(length)
		for i := 0; time.Now().Before(until); i++ {
			// The same changes come again and again: only their places count.
			if _, err := h.Publish(b.ctx, benchSet, batches[i%len(batches)]); err != nil {
				return err
			}
			f.changes += followBatch
			if i%20 == 0 {
				root, head, err := m.root(b.ctx)
				if err != nil {
					return err
				}
				switch {
				case root.Upto == last.Upto:
				case first.Upto == 0:
					first, last, put = root, root, m.store.bytes.Load()
				default:
					last, f.put = root, float64(m.store.bytes.Load()-put)
				}
				f.most = max(f.most, float64(head.Position-root.Cursor.Position))
			}
			<-tick.C
		}
		return nil
	}, m.servers()...)
	if first.Upto > 0 {
		f.committed = float64(last.Cursor.Position - first.Cursor.Position)
	}
	now, werr := m.written()
	f.written = now - written
	return f, cmp.Or(err, werr)
}

// written returns how many bytes were written so far into the files of the memory: the
// write-ahead log and what Pebble makes of it; or the append-only file of Redis.
func (m *inventoryMemory) written() (float64, error) {
	if m.redis != nil {
		files, err := filepath.Glob(filepath.Join(m.redis.dir, "appendonlydir", "*.aof"))
		sum := 0.0
		for _, f := range files {
			info, serr := os.Stat(f)
			if serr != nil {
				return 0, serr
			}
			sum += float64(info.Size())
		}
		return sum, err
	}
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "wchar: ")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(line, 64)
}

var publishesAtMostDearer = []metric{
	{name: "publishes/s", limit: .95, least: true, ratio: true},
	{name: "CPU µs/change", limit: 1.05, ratio: true},
}

// inventoryPublishDisk measures publishing with and without inventories, on the disk.
func (b *bench) inventoryPublishDisk(t *table) error {
	return b.inventoryPublish(t, b.newOnDisk)
}

// inventoryPublishRedis measures it with Redis.
func (b *bench) inventoryPublishRedis(t *table) error {
	return b.inventoryPublish(t, b.newInRedis)
}

func (b *bench) inventoryPublish(t *table, open func() (*inventoryMemory, error)) error {
	t.heads = [2]string{"off", "on"}
	for _, l := range []load{{publishers: 1, n: 1}, {publishers: 16, n: 1}, {publishers: 16, n: 100}} {
		l.length = b.followed / 12
		publish := func(on bool) (p publishing, err error) {
			m, err := open()
			if err != nil {
				return p, err
			}
			defer func() { err = cmp.Or(err, m.close()) }()
			if on {
				_, stop := m.keep(b.ctx, live.Options{})
				defer func() { err = cmp.Or(err, stop()) }()
			}
			if p, err = b.publishInto(m.log, l, m.servers()...); err == nil && on {
				err = b.firstRoot(m)
			}
			return p, err
		}
		err := alternate(b,
			func() (publishing, error) { return publish(false) },
			func() (publishing, error) { return publish(true) },
			func(f, o publishing) {
				what, others := l.String(), max(f.others, o.others)
				cpu := func(p publishing) float64 { return 1e6 * p.own / p.publishes / float64(l.n) }
				t.add(what, publishesAtMostDearer[0], f.publishes/f.seconds, o.publishes/o.seconds, others)
				t.add(what, publishesAtMostDearer[1], cpu(f), cpu(o), others)
			})
		if err != nil {
			return err
		}
	}
	return nil
}
