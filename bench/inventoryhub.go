//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// An inventoryDir is a data directory of rshub's with a collection and its inventory.
type inventoryDir struct {
	*bench
	path string
	n    collection
	own  []*inventory.State // what destinations have
}

// inventoryDir makes a collection and its inventory. faults says of each destination by how
// many resources it differs. The caller removes the directory.
func (b *bench) inventoryDir(n collection, faults ...int) (d *inventoryDir, err error) {
	d = &inventoryDir{bench: b, n: n}
	if d.path, err = b.dir(); err != nil {
		return nil, err
	}
	err = d.in(func(m *inventoryMemory) error {
		if err := b.create(m.log, benchSet, n); err != nil {
			return err
		}
		root, err := b.make(m)
		for _, count := range faults {
			if err == nil {
				err = d.copy(m.inventory().Tree(root), count)
			}
		}
		return err
	})
	if err != nil {
		return nil, cmp.Or(err, d.remove())
	}
	return d, nil
}

// in opens the memory of the directory, calls do, and closes it.
func (d *inventoryDir) in(do func(m *inventoryMemory) error) error {
	m, err := d.inventoryOnDisk(d.path)
	if err != nil {
		return err
	}
	err = do(m)
	return cmp.Or(err, m.log.Close())
}

// remove removes the directory.
func (d *inventoryDir) remove() error { return os.RemoveAll(d.path) }

// hub starts a hub on the directory.
func (d *inventoryDir) hub() (*server, error) { return d.rshub(d.path) }

// copy makes a destination that differs from a tree by some resources.
func (d *inventoryDir) copy(t *inventory.Tree, faults int) error {
	var failed error
	v := inventory.New(inventory.NewMemory(nil), benchSet, inventory.Options{})
	root, err := v.Commit(d.ctx, inventory.Changes{
		To:     t.Root().Cursor,
		Sorted: damaged(t.Walk(d.ctx, inventory.Range{}), int(t.Root().Tally.Count), faults, &failed),
		Step:   func() error { return failed },
	})
	if err != nil {
		return err
	}
	d.own = append(d.own, v.Tree(root).State())
	return nil
}

// damaged yields resources with some faults, which are spread evenly: missing, stale and
// extra ones in turn.
func damaged(all iter.Seq2[*feed.Entry, error], n, faults int, failed *error) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		i, done := 0, 0
		for e, err := range all {
			if err != nil {
				*failed = err
				return
			}
			if faults > 0 && i == (2*done+1)*n/(2*faults) {
				switch done % 3 {
				case 0: // missing
					e = nil
				case 1: // stale
					old := *e
					old.Position--
					old.Change.Hash = "md5:" + strings.Repeat("0", 32)
					e = &old
				case 2: // extra
					if !yield(e) {
						return
					}
					extra := *e
					extra.Change.Loc += "x"
					e = &extra
				}
				done++
			}
			i++
			if e != nil && !yield(e) {
				return
			}
		}
	}
}

// A baselineRead is what reading a baseline took.
type baselineRead struct {
	usage
	first  float64 // seconds until the first message
	memory float64 // bytes that the server took above what it had
}

// inventoryBaseline measures a baseline over one WebSocket.
func (b *bench) inventoryBaseline(t *table) error {
	for _, n := range []collection{10, collection(b.resources)} {
		if err := b.inventoryBaselineOf(t, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) inventoryBaselineOf(t *table, n collection) error {
	d, err := b.inventoryDir(n)
	if err != nil {
		return err
	}
	defer d.remove()
	ours, err := d.hub()
	if err != nil {
		return err
	}
	defer ours.stop()
	// As in a catch-up, the floor sends what rshub sent.
	const path = "/sets/" + benchSet + "/changes?since=baseline"
	recorded := filepath.Join(d.path, "bytes")
	f, err := os.Create(recorded)
	if err != nil {
		return err
	}
	tee := bufio.NewWriterSize(f, 1<<20)
	_, err = b.readBaseline(ours, path, n, tee)
	if err = cmp.Or(err, tee.Flush(), f.Close()); err != nil {
		return err
	}
	floor, err := b.floor("replay", recorded)
	if err != nil {
		return err
	}
	defer floor.stop()
	what := format(float64(n)) + " resources"
	return alternate(b,
		func() (baselineRead, error) { return b.readBaseline(floor, "/replay", n, nil) },
		func() (baselineRead, error) { return b.readBaseline(ours, path, n, nil) },
		func(f, o baselineRead) {
			n, others := float64(n), max(f.others, o.others)
			t.add(what, metric{name: "first message, ms", limit: 50}, 1e3*f.first, 1e3*o.first, others)
			if n < fillSize {
				return
			}
			t.add(what, metric{name: "resources/s", limit: 300_000, least: true}, n/f.seconds, n/o.seconds, others)
			t.add(what, metric{name: "CPU µs/resource"}, 1e6*f.cpu/n, 1e6*o.cpu/n, others)
			t.add(what, metric{name: "MiB above idle", limit: 32}, f.memory/(1<<20), o.memory/(1<<20), notMeasured)
		})
}

// readBaseline reads a baseline until it is over. The reader checks that each part follows
// the one before.
func (b *bench) readBaseline(s *server, path string, n collection, tee *bufio.Writer) (u baselineRead, err error) {
	if err := b.rest(s); err != nil {
		return u, err
	}
	r, err := newReader(splitFrame)
	if err != nil {
		return u, err
	}
	first := int64(0)
	r.handle = func(sub *subscriber, body []byte, at int64) int {
		if first == 0 {
			first = at
		}
		return r.baseline(sub, body)
	}
	r.tee = tee
	go r.run()
	idle, err := restPeak(s.pid)
	begin := now()
	if err == nil {
		u.usage, err = measure(func() error {
			if err := r.connect(s.addr, always(path), false, 1); err != nil {
				return err
			}
			return r.await(b.ctx, int64(n)+1)
		}, s)
	}
	peak, perr := peakOf(s.pid)
	u.memory = peak - idle
	r.close()
	u.first = float64(first-begin) / 1e9
	if err = cmp.Or(err, perr, r.check()); err != nil {
		err = fmt.Errorf("GET %s: %w", path, err)
	}
	return u, err
}

// baseline handles the parts of a baseline. Each must begin where the one before ended. It
// counts the resources, and the end as one more.
func (r *reader) baseline(s *subscriber, body []byte) int {
	after, cursor := member(body, `"after":"`), member(body, `"cursor":"`)
	n := bytes.Count(body, positionMember)
	over := bytes.Contains(body[:min(len(body), 200)], []byte(`"baseline":false`))
	if over {
		after = s.told // it names the cursor alone
		n++
	}
	if s.told != "" && s.told != after {
		r.disorder++
	}
	s.told = cursor
	return n
}
