//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/writer"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// What differs between the stores.
var (
	madePerSecond = map[string]float64{"disk": 200_000, "Redis": 100_000}
	bytesEach     = map[string]float64{"disk": 130, "Redis": 110}
)

// created opens a memory and publishes a collection to it.
func (b *bench) created(s store, n collection) *memory {
	const size = 1000
	m := s.open()
	b.fill(m, (int(n)+size-1)/size, 10_000, func(i int) []resourcesync.Change { return n.created(i, size) })
	return m
}

// update updates the inventories of the memory as a hub does, until the end of the scope.
func (b *bench) update(m *memory) *writer.Writer {
	w := writer.New(m.log, m.log.Inventories(), m.claims(), writer.Options{Poll: m.poll})
	ctx, cancel := context.WithCancel(b.ctx)
	ran := make(chan struct{})
	go func() { defer close(ran); w.Run(ctx) }()
	b.later(func() error {
		cancel()
		<-ran
		return nil
	})
	return w
}

// inventory returns the inventory, without cached pages.
func (m *memory) inventory() *inventory.Inventory {
	return inventory.New(m.log.Inventories(), benchSet, inventory.Options{})
}

// inventoryWriter returns a writer of the inventory. No other may be in use.
func (m *memory) inventoryWriter() *inventory.Writer {
	v := m.inventory()
	_, head, err := v.Load(context.Background())
	must(err)
	return v.Writer(head.Term + 1)
}

// commit returns the newest root when it is at the head of the log. It marks the set as complete,
// so that a Resource List is due.
func (b *bench) commit(m *memory, w *writer.Writer) inventory.Root {
	rec, _, err := m.inventory().Load(b.ctx)
	must(err)
	must(m.inventory().SetComplete(b.ctx, rec.Log.Head, ""))
	w.Request(benchSet, false)
	const patience = 3 * time.Minute
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(5 * time.Millisecond) {
		rec, head, err := m.inventory().Load(b.ctx)
		must(err)
		if root := head.Newest(); root.Cursor == rec.Log.Head {
			return root
		}
	}
	must(errors.New("LOST: the inventory does not get on"))
	return inventory.Root{}
}

// make builds the inventory up to the head of the log.
func (b *bench) make(m *memory) (root inventory.Root) {
	must(b.scope(func() { root = b.commit(m, b.update(m)) }))
	must(m.inventoryWriter().Sweep(b.ctx)) // the updates may have been stopped before they removed pages
	return root
}

// inventory measures the build time and the size of an inventory.
func (b *bench) inventory(t *table) {
	b.inStores(func(s store) { b.inventoryMade(t, s) })
}

func (b *bench) inventoryMade(t *table, s store) {
	n := collection(b.resources)
	m := b.created(s, n)
	without := m.size()
	texts, size := packedTexts(n), blockBytes(n)
	figures := []metric{
		perSecond("changes").should(aim{limit: madePerSecond[s.name], least: true}),
		ownEach("CPU µs/change"),
		{name: "MiB above idle", of: func(s sample) float64 { return s.memory / (1 << 20) }, aim: aim{limit: 200}},
		each(0, "bytes/resource").should(aim{limit: bytesEach[s.name]}),
	}
	b.compare(t, s.name+", "+count(b.resources)+" resources", figures,
		func() sample {
			f := measure(func() { decode(texts, int(n)) })
			f.count, f.each = float64(n), []float64{size}
			return f
		},
		func() sample {
			must(m.inventoryWriter().Reset(b.ctx, "it is made again")) // the one of the round before goes first
			debug.FreeOSMemory()
			idle := restPeak(os.Getpid())
			var root inventory.Root
			o := measure(func() { root = b.make(m) }, m.servers...)
			if root.Tally.Count != uint64(n) {
				must(fmt.Errorf("the inventory has %d resources, not %d", root.Tally.Count, n))
			}
			o.count, o.memory = float64(n), peakOf(os.Getpid())-idle
			o.each = []float64{(m.size() - without) / float64(n)}
			return o
		})
}

// packedTexts returns some changes of a collection in their stored encoding.
func packedTexts(n collection) []string {
	texts := make([]string, min(int(n), 20_000))
	for i := range texts {
		c := n.change(i, 0)
		texts[i] = string(packed.AppendChange(nil, &c))
	}
	return texts
}

// blockBytes returns the size of a resource of a collection in the blocks of a log, if they are
// ordered by loc.
func blockBytes(n collection) float64 {
	changes := make([]resourcesync.Change, min(int(n), 100_000))
	for i := range changes {
		changes[i] = n.change(i, 0)
	}
	return float64(len(blocks(changes))) / float64(len(changes))
}

// decode decodes n changes, and computes both digest elements of each resource. It neither sorts
// nor stores them.
func decode(texts []string, n int) (sums [2]byte) {
	var text []byte
	for i := range n {
		var c resourcesync.Change
		packed.NewReader(texts[i%len(texts)]).Change(&c)
		at := len(c.Hash) - 2*sha256.Size
		for k, version := range []string{strconv.Itoa(i), c.Hash[at:]} {
			text = append(append(append(text[:0], c.Loc...), '\n'), version...)
			e := sha256.Sum256(text)
			sums[k] += e[0]
		}
	}
	return sums
}

// The load at which an inventory keeps up: changes at random places, equally many every ten
// milliseconds.
const (
	followTick  = 10 * time.Millisecond
	followBatch = 50
)

// inventoryFollow compares hubs with and without an inventory while changes are published at random
// places.
func (b *bench) inventoryFollow(t *table) {
	n := collection(b.resources)
	const second = int(time.Second / followTick * followBatch)
	b.inStores(func(s store) {
		m := b.created(s, n)
		b.make(m)
		figures := []metric{perSecond("changes"), ownEach("CPU µs/change").should(aim{limit: 50, over: true})}
		if len(m.servers) > 0 {
			figures = append(figures, cpuEach("change, of Redis"))
		}
		b.compare(t, fmt.Sprintf("%s, %s changes a second, %s resources", s.name, count(second), count(b.resources)), figures,
			func() sample { return b.keepUp(m, n, nil) },
			func() sample {
				w := b.update(m)
				b.commit(m, w) // changes while the inventory was not maintained do not count
				return b.keepUp(m, n, w)
			})
	})
}

// keepUp publishes changes at a steady pace for a while, and then waits until the inventory, if
// there is one, includes them. It counts changes.
func (b *bench) keepUp(m *memory, n collection, w *writer.Writer) sample {
	batches := make([]changelog.Publish, 2*time.Second/followTick) // again and again: only their places count
	for i := range batches {
		batches[i].Changes = n.updated(followBatch)
	}
	h := hub.New(m.log, hub.Options{})
	defer h.Close()
	published := 0
	f := measure(func() {
		tick := time.NewTicker(followTick)
		defer tick.Stop()
		for begin := time.Now(); time.Since(begin) < b.following; published++ {
			have(h.Publish(b.ctx, benchSet, batches[published%len(batches)]))
			<-tick.C
		}
		if w != nil {
			b.commit(m, w)
		}
	}, m.servers...)
	f.count = float64(published * followBatch)
	return f
}
