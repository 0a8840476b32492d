//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

var (
	batchSizes = []int{1, 100, 1000}
	publishers = []int{1, 16}
)

// A load describes concurrent publishers.
type load struct {
	publishers int
	n          int // changes in a publish
	length     time.Duration
}

// String describes the load.
func (l load) String() string {
	if l.publishers == 1 {
		return fmt.Sprintf("1 publisher, by %s", count(l.n))
	}
	return fmt.Sprintf("%d publishers, by %s", l.publishers, count(l.n))
}

// figures returns the metrics of a load. It counts changes.
func (l load) figures() []metric {
	rate := "changes"
	if l.n == 1 {
		rate = "publishes"
	}
	return []metric{perSecond(rate), cpuEach("change")}
}

// loads calls do for each number of publishers and batch size.
func (b *bench) loads(do func(load)) {
	for _, writers := range publishers {
		for _, n := range batchSizes {
			do(load{writers, n, b.length})
		}
	}
}

// measure runs the publishers and returns a sample. post posts batch i.
func (l load) measure(post func(publisher, i int) error, servers ...*server) sample {
	var posted atomic.Int64
	s := measure(func() {
		begin := time.Now()
		must(inParallel(l.publishers, l.publishers, func(p int) error {
			for i := p * 1237; time.Since(begin) < l.length; i++ { // each begins elsewhere in the content
				if err := post(p, i); err != nil {
					return err
				}
				posted.Add(int64(l.n))
			}
			return nil
		}))
	}, servers...)
	s.count = float64(posted.Load())
	return s
}

// into measures publishes to a new memory through a hub in this process.
func (l load) into(b *bench, m *memory) sample {
	h := hub.New(m.log, hub.Options{})
	defer h.Close()
	post := func(_, i int) error {
		_, err := h.Publish(b.ctx, benchSet, changelog.Publish{Changes: b.changes.batch(i, l.n)})
		return err
	}
	must(post(0, 0)) // makes the set
	return l.measure(post, m.servers...)
}

// over measures POSTs of bodies to a server, with a separate connection for each publisher.
func (l load) over(b *bench, s *server, path, mediaType string, bodies [][]byte) sample {
	posts := b.posters(l.publishers, s.addr, path, mediaType)
	for _, post := range posts {
		must(post(bodies[0])) // warm
	}
	return l.measure(func(p, i int) error { return posts[p](bodies[i%len(bodies)]) }, s)
}

// publish measures hub.Publish on disk, in this process.
func (b *bench) publish(t *table) {
	b.loads(func(l load) {
		blocks := b.changes.each(l.n, blocks)
		b.compare(t, l.String(), l.figures(),
			func() sample {
				file := have(newCommitter(filepath.Join(b.dir(), "floor")))
				b.later(file.f.Close)
				return l.measure(func(_, i int) error { return file.append(blocks[i%len(blocks)]) })
			},
			func() sample { return l.into(b, b.onDisk()) })
	})
}

// publishRedis measures hub.Publish with Redis, in this process, and Redis itself.
func (b *bench) publishRedis(t *table) {
	b.loads(func(l load) {
		blocks := b.changes.each(l.n, blocks)
		figures := append(l.figures(), ownEach("client CPU µs/change"))
		if l.publishers > 1 && l.n == 100 {
			figures[0] = figures[0].should(aim{limit: 100_000, least: true})
		}
		b.compare(t, l.String(), figures,
			func() sample {
				s := b.redisServer()
				return l.measure(func(_, i int) error { return s.bareAppend(b.ctx, blocks[i%len(blocks)]) }, s.server)
			},
			func() sample { return l.into(b, b.inRedis()) })
	})
}

// publishHTTP measures the program and its floor with POSTs from this process, which shares the
// cores.
func (b *bench) publishHTTP(t *table) {
	ours, floor := b.rshub(b.dir()), b.floor("publish", b.data)
	for _, form := range []struct {
		name, mediaType string
		encode          func([]resourcesync.Change) []byte
	}{{"NDJSON", inLines, ndjson}, {"JSON", "application/json", inJSON}} {
		b.loads(func(l load) {
			bodies := b.changes.each(l.n, form.encode)
			b.compare(t, form.name+", "+l.String(), l.figures(),
				func() sample { return l.over(b, floor, "/"+strconv.Itoa(l.n), form.mediaType, bodies) },
				func() sample { return l.over(b, ours, setPath, form.mediaType, bodies) })
		})
	}
}
