//go:build linux

package main

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/resourcesync"
)

// inventoryAims are the aims that differ between the stores.
type inventoryAims struct{ perSecond, bytesEach float64 }

// inventoryDisk measures inventories beside a memory on the disk.
func (b *bench) inventoryDisk(t *table) error {
	m, err := b.newOnDisk()
	if err != nil {
		return err
	}
	err = b.inventoryMade(t, m, inventoryAims{200_000, 130})
	return cmp.Or(err, m.close())
}

// inventoryRedis measures inventories beside a memory in Redis.
func (b *bench) inventoryRedis(t *table) error {
	m, err := b.newInRedis()
	if err != nil {
		return err
	}
	err = b.inventoryMade(t, m, inventoryAims{100_000, 110})
	return cmp.Or(err, m.close())
}

// inventoryMade measures how an inventory is made, how large it is, and what a state is made
// of it for.
func (b *bench) inventoryMade(t *table, m *inventoryMemory, aims inventoryAims) error {
	n := collection(b.resources)
	if err := b.create(m.log, benchSet, n); err != nil {
		return err
	}
	without, err := b.bytesKept(m)
	if err == nil {
		err = b.inventoryBuild(t, m, n, aims)
	}
	if err == nil {
		err = b.inventorySize(t, m, n, aims, without)
	}
	if err == nil {
		err = b.inventoryCold(t, m, n)
	}
	return err
}

// A building is what making an inventory took.
type building struct {
	usage
	memory float64 // bytes above what the process had before
}

// inventoryBuild measures how an inventory is made of a log.
func (b *bench) inventoryBuild(t *table, m *inventoryMemory, n collection, aims inventoryAims) error {
	what := format(float64(n)) + " resources"
	texts := packedTexts(n)
	return alternate(b,
		func() (f building, err error) {
			f.usage, err = measure(func() error { return b.buildFloor(texts, int(n)) })
			return f, err
		},
		func() (o building, err error) {
			// The one of the round before goes first.
			if err = m.inventory().Reset(b.ctx, "it is made again"); err == nil {
				err = m.again(b)
			}
			if err != nil {
				return o, err
			}
			idle, err := restMemory()
			if err != nil {
				return o, err
			}
			var root inventory.Root
			o.usage, err = measure(func() error { root, err = b.make(m); return err }, m.servers()...)
			if err == nil && root.Tally.Count != uint64(n) {
				err = fmt.Errorf("the inventory has %d resources, not %d", root.Tally.Count, n)
			}
			peak, perr := peakMemory()
			o.memory = peak - idle
			return o, cmp.Or(err, perr)
		},
		func(f, o building) {
			n, others := float64(n), max(f.others, o.others)
			t.add(what, metric{name: "changes/s", limit: aims.perSecond, least: true}, n/f.seconds, n/o.seconds, others)
			t.add(what, cpuPerChange, 1e6*f.own/n, 1e6*o.own/n, others)
			if m.redis != nil {
				t.add(what, metric{name: "Redis CPU µs/change"}, 0, 1e6*o.cpu/n, others)
			}
			t.add(what, metric{name: "MiB above idle", limit: 200}, 0, o.memory/(1<<20), notMeasured)
		})
}

// packedTexts returns some changes of a collection as they are stored.
func packedTexts(n collection) []string {
	texts := make([]string, min(int(n), contentSize))
	for i := range texts {
		c := n.change(i, 0)
		texts[i] = string(packed.AppendChange(nil, &c))
	}
	return texts
}

// buildFloor decodes n changes, makes the two elements of each resource's digests, and
// appends the changes to a file. It sorts nothing and makes no tree.
func (b *bench) buildFloor(texts []string, n int) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	var sums [2]byte
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
		text = packed.AppendChange(text[:0], &c)
		if _, err := out.Write(text); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return cmp.Or(out.Flush(), f.Close())
}

// inventorySize measures what an inventory takes, with one root and with four that share
// hardly a page: between two of them so many changes came as wait for a commit.
func (b *bench) inventorySize(t *table, m *inventoryMemory, n collection, aims inventoryAims, without float64) error {
	each := func(bytes float64) float64 { return bytes / float64(n) }
	floor := blockBytes(n)
	one, err := b.bytesKept(m)
	if err != nil {
		return err
	}
	root, _, err := m.root(b.ctx)
	if err != nil {
		return err
	}
	t.add("one root", metric{name: "bytes/resource", limit: aims.bytesEach}, floor, each(one-without), notMeasured)
	t.add("one root", metric{name: "bytes/resource, of pages"}, floor, each(float64(root.Bytes)), notMeasured)
	const holder, roots = "bench", 4
	before := 0.0 // what the log takes more
	for i := range roots {
		if i > 0 {
			last, err := b.bytesKept(m)
			if err == nil {
				err = b.update(m.log, benchSet, n, b.waiting())
			}
			if err != nil {
				return err
			}
			grown, err := b.bytesKept(m)
			if err != nil {
				return err
			}
			before += grown - last
			if root, err = b.make(m); err != nil {
				return err
			}
		}
		if _, err := m.inventory().Pin(b.ctx, root.Upto, holder, time.Hour); err != nil {
			return err
		}
	}
	_, head, err := m.inventory().Load(b.ctx)
	if err != nil {
		return err
	}
	if len(head.Roots) != roots {
		return fmt.Errorf("%d roots live, not %d", len(head.Roots), roots)
	}
	four, err := b.bytesKept(m)
	if err != nil {
		return err
	}
	more := 1 + float64(roots-1)*float64(b.waiting())/float64(n)
	t.add(fmt.Sprintf("%d roots, %s changes apart", roots, format(float64(b.waiting()))),
		metric{name: "bytes/resource", limit: 400}, floor*more, each(four-without-before), notMeasured)
	v := m.inventory()
	for _, k := range head.Roots {
		if err := v.Unpin(b.ctx, k.Upto, holder); err != nil {
			return err
		}
	}
	return v.Shrink(b.ctx)
}

// waiting is how many changes at random places wait for a commit, about.
func (b *bench) waiting() int { return max(fillSize, b.resources*8/100/fillSize*fillSize) }

// blockBytes returns what a resource of a collection takes in the blocks of a log, if
// they are in the order of loc.
func blockBytes(n collection) float64 {
	sum, count := 0, 0
	for ; count < min(int(n), 100*fillSize); count += fillSize {
		changes := make([]resourcesync.Change, min(fillSize, int(n)-count))
		for i := range changes {
			changes[i] = n.change(count+i, 0)
		}
		for _, block := range changelog.CutBlocks(changes, 1, 10_000) {
			sum += len(block.Block)
		}
	}
	return float64(sum) / float64(min(count, int(n)))
}

// bytesKept returns what a memory takes with everything in it: in files, or in Redis.
func (b *bench) bytesKept(m *inventoryMemory) (float64, error) {
	if m.redis != nil {
		return m.redis.used(b.ctx)
	}
	// What is in Pebble's write-ahead log comes into files when it is opened again.
	if err := m.again(b); err != nil {
		return 0, err
	}
	return fileBytes(b.ctx, m.dir)
}

// inventoryCold measures the first state at the head of a hub that has read nothing yet.
func (b *bench) inventoryCold(t *table, m *inventoryMemory, n collection) error {
	root, _, err := m.root(b.ctx)
	if err == nil {
		err = b.update(m.log, benchSet, n, b.waiting())
	}
	if err != nil {
		return err
	}
	what := "state at the head, cold, " + format(float64(b.waiting())) + " changes behind the root"
	return alternate(b,
		func() (usage, error) {
			if err := m.again(b); err != nil {
				return usage{}, err
			}
			return measure(func() error { return b.readLog(m, root.Cursor) }, m.servers()...)
		},
		func() (u usage, err error) {
			if err = m.again(b); err != nil {
				return u, err
			}
			l := live.New(m.log, m.store, m.claims, live.Options{})
			var held *live.Held
			u, err = measure(func() error {
				if held, err = l.State(b.ctx, benchSet, feed.Cursor{}, 0); err == nil {
					_, err = audit.LookAt(b.ctx, held.State, inventory.Range{})
				}
				return err
			}, m.servers()...)
			if held != nil {
				held.Release()
			}
			return u, err
		},
		func(f, o usage) {
			others := max(f.others, o.others)
			t.add(what, milliseconds, 1e3*f.seconds, 1e3*o.seconds, others)
			t.add(what, metric{name: "CPU ms"}, 1e3*f.own, 1e3*o.own, others)
		})
}

// readLog reads what a log has behind a cursor.
func (b *bench) readLog(m *inventoryMemory, at feed.Cursor) error {
	for {
		batch, err := m.log.Since(b.ctx, benchSet, at, 1000)
		if err != nil || len(batch.Entries) == 0 {
			return err
		}
		at = batch.Cursor
	}
}

// restMemory gives back what this process does not need, makes its present memory the
// peak, and returns it.
func restMemory() (float64, error) {
	debug.FreeOSMemory()
	return restPeak(os.Getpid())
}

// restPeak makes the present memory of a process its peak, and returns it.
func restPeak(pid int) (float64, error) {
	const peakOnly = "5" // see proc(5), clear_refs
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peakOnly), 0); err != nil {
		return 0, err
	}
	return rssOf(pid)
}

// peakMemory returns the most resident bytes that this process had since restMemory.
func peakMemory() (float64, error) { return peakOf(os.Getpid()) }

// peakOf returns the most resident bytes that a process had since restPeak.
func peakOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "kB")
	kb, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
	}
	return 1024 * kb, nil
}
