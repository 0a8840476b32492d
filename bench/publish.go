//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

var (
	batchSizes = []int{1, 10, 100, 1000}
	publishers = []int{1, 16}
)

var (
	publishesPerSecond = metric{name: "publishes/s"}
	changesPerSecond   = metric{name: "changes/s"}
	cpuPerChange       = metric{name: "CPU µs/change"}
)

// A load is what publishers do for a while. post publishes batch i of n changes.
type load struct {
	publishers, n int
	what          string // more of what it is
	length        time.Duration
	post          func(publisher, i int) error
}

// run returns how many publishes were answered.
func (l load) run() (int, error) {
	var count atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, l.publishers)
	end := time.Now().Add(l.length)
	for p := range l.publishers {
		wg.Go(func() {
			for i := p * 1237; time.Now().Before(end); i++ { // each begins elsewhere in the content
				if err := l.post(p, i); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	close(errs)
	return int(count.Load()), <-errs
}

// A publishing has the time and the CPU that a load took.
type publishing struct {
	usage
	publishes float64
}

func (l load) measure(servers ...*server) (p publishing, err error) {
	p.usage, err = measure(func() error {
		n, err := l.run()
		p.publishes = float64(n)
		return err
	}, servers...)
	return p, err
}

// String says what the load is.
func (l load) String() string {
	if l.publishers == 1 {
		return fmt.Sprintf("1 publisher, batches of %d%s", l.n, l.what)
	}
	return fmt.Sprintf("%d publishers, batches of %d%s", l.publishers, l.n, l.what)
}

// publishing adds what a round of a case measured.
func (t *table) publishing(l load, floor, ours publishing) {
	what := l.String()
	n, others := float64(l.n), max(floor.others, ours.others)
	t.add(what, publishesPerSecond, floor.publishes/floor.seconds, ours.publishes/ours.seconds, others)
	t.add(what, changesPerSecond, n*floor.publishes/floor.seconds, n*ours.publishes/ours.seconds, others)
	t.add(what, cpuPerChange, 1e6*floor.cpu/(n*floor.publishes), 1e6*ours.cpu/(n*ours.publishes), others)
}

// loads calls f for each number of publishers and size of batch.
func (b *bench) loads(f func(load) error) error {
	for _, writers := range publishers {
		for _, n := range batchSizes {
			l := load{publishers: writers, n: n, length: b.publishing}
			if err := b.load(l, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// load calls f for a load, if it is one of the cases to measure.
func (b *bench) load(l load, f func(load) error) error {
	if b.cases != nil && !b.cases.MatchString(l.String()) {
		return nil
	}
	return f(l)
}

// publish measures hub.Publish on a disklog, in this process.
func (b *bench) publish(t *table) error {
	return b.loads(func(l load) error {
		blocks := b.content.encodeAll(l.n)
		return alternate(b,
			func() (publishing, error) { return b.publishFloor(l, blocks) },
			func() (publishing, error) { return b.publishHere(l) },
			func(floor, ours publishing) { t.publishing(l, floor, ours) })
	})
}

func (b *bench) publishFloor(l load, blocks [][]byte) (p publishing, err error) {
	dir, err := b.dir()
	if err != nil {
		return p, err
	}
	file, err := newCommitter(filepath.Join(dir, "floor"))
	if err != nil {
		return p, err
	}
	l.post = func(_, i int) error { return file.append(blocks[i%len(blocks)]) }
	p, err = l.measure()
	return p, cmp.Or(err, file.f.Close(), os.RemoveAll(dir))
}

func (b *bench) publishHere(l load) (p publishing, err error) {
	dir, err := b.dir()
	if err != nil {
		return p, err
	}
	log, err := disklog.Open(dir, disklog.Options{})
	if err != nil {
		return p, err
	}
	p, err = b.publishInto(log, l)
	return p, cmp.Or(err, log.Close(), os.RemoveAll(dir))
}

// publishInto measures a load of publishes into a memory, through a hub.
func (b *bench) publishInto(log changelog.Log, l load, servers ...*server) (p publishing, err error) {
	h := hub.New(log, hub.Options{})
	defer h.Close()
	l.post = func(_, i int) error {
		_, err := h.Publish(b.ctx, benchSet, changelog.Publish{Changes: b.content.batch(i, l.n)})
		return err
	}
	if err := l.post(0, 0); err != nil { // makes the set
		return p, err
	}
	return l.measure(servers...)
}

// publishHTTP measures the program and its floor under POSTs from this process,
// which takes its share of the cores.
func (b *bench) publishHTTP(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	floor, err := b.floor("publish", dir, b.data)
	if err != nil {
		return err
	}
	defer floor.stop()
	ours, err := b.rshub(dir)
	if err != nil {
		return err
	}
	defer ours.stop()
	form := func(floorPath, header string, encode func([]resourcesync.Change) []byte) func(load) error {
		return func(l load) error {
			bodies := make([][]byte, len(b.content)/l.n)
			for i := range bodies {
				bodies[i] = encode(b.content.batch(i, l.n))
			}
			return alternate(b,
				func() (publishing, error) { return l.with(floor, floorPath+strconv.Itoa(l.n), header, bodies) },
				func() (publishing, error) { return l.with(ours, "/sets/"+benchSet+"/changes", header, bodies) },
				func(f, o publishing) { t.publishing(l, f, o) })
		}
	}
	if err := b.loads(form("/", ndjsonHead, ndjson)); err != nil {
		return err
	}
	for _, n := range []int{1, 100, 1000} {
		l := load{publishers: 16, n: n, what: ", decoded", length: b.publishing}
		if err := b.load(l, form("/decoded/", ndjsonHead, ndjson)); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 100} {
		l := load{publishers: 16, n: n, what: ", JSON", length: b.publishing}
		if err := b.load(l, form("/", jsonHead, document)); err != nil {
			return err
		}
	}
	return nil
}

// with posts bodies to a server's path, with a header, each publisher on a connection of its own.
func (l load) with(s *server, path, header string, bodies [][]byte) (p publishing, err error) {
	posters := make([]*poster, l.publishers)
	for i := range posters {
		if posters[i], err = newPosterWith(s.addr, path, header); err != nil {
			return p, err
		}
		defer posters[i].conn.Close()
		if err := posters[i].post(bodies[0]); err != nil { // warm
			return p, err
		}
	}
	l.post = func(p, i int) error { return posters[p].post(bodies[i%len(bodies)]) }
	return l.measure(s)
}
