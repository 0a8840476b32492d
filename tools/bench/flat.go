//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

const (
	few     = 10_000 // changes in a small memory
	fewRead = 100    // changes in one read
)

// dearer is the aim of what should cost the same.
var dearer = aim{limit: 1.25, ratio: true}

// flatFigures are the figures of a memory, in this process.
var flatFigures = []metric{
	each(0, "changes/s, 16 publishers by 100").should(aim{limit: .8, least: true, ratio: true}),
	each(1, "append of 1, p50 ms").should(dearer),
	each(2, "read of the newest 100, p50 ms").should(dearer),
	each(3, "read of 100 somewhere, p50 ms").should(dearer),
}

// flat compares small memories with large ones.
func (b *bench) flat(t *table) {
	b.flatSubscriptions(t)
	b.inStores(func(s store) {
		must(b.scope(func() { b.flatCompare(t, s, count(b.large)+" changes", b.flatFilled(s, b.large), benchSet) }))
		b.flatSets(t, s)
	})
}

// flatSets compares with a memory of many sets, with one set in use and with all.
func (b *bench) flatSets(t *table, s store) {
	m := b.flatFilled(s, few)
	sets := []string{benchSet}
	for i := range b.sets - 1 {
		sets = append(sets, fmt.Sprintf("set-%d", i))
	}
	must(inParallel(16, len(sets), func(i int) error { return m.log.Make(b.ctx, sets[i], feed.Description{}, 10_000) }))
	what := count(b.sets) + " sets, "
	b.flatCompare(t, s, what+"one of them used", m, benchSet)
	h := hub.New(m.log, hub.Options{})
	must(inParallel(16, len(sets), func(i int) error {
		_, err := h.Publish(b.ctx, sets[i], changelog.Publish{Changes: b.changes.batch(i, fewRead)})
		return err
	}))
	h.Close()
	b.flatCompare(t, s, what+"all in turn", m, sets...)
}

// flatFilled opens a memory and publishes n changes to one set.
func (b *bench) flatFilled(s store, n int) *memory {
	m := s.open()
	b.fill(m, n/100, 10_000, func(i int) []resourcesync.Change { return b.changes.batch(i, 100) })
	return m
}

// flatCompare compares a memory in which some sets are used with a small one. Each round has a new
// small one, because measuring makes it grow.
func (b *bench) flatCompare(t *table, s store, what string, large *memory, sets ...string) {
	b.compare(t, s.name+", "+what, flatFigures,
		func() sample { return b.flatMeasure(b.flatFilled(s, few), benchSet) },
		func() sample { return b.flatMeasure(large, sets...) })
}

// flatMeasure measures all figures of a memory. Reads are first, because publishes make the memory
// grow.
func (b *bench) flatMeasure(m *memory, sets ...string) sample {
	near, random := b.flatReads(m, sets)
	h := hub.New(m.log, hub.Options{})
	defer h.Close()
	publish := func(i, n int) error {
		_, err := h.Publish(b.ctx, sets[i%len(sets)], changelog.Publish{Changes: b.changes.batch(i, n)})
		return err
	}
	values := make([]float64, len(flatFigures))
	f := measure(func() {
		values[2] = b.p50(func(i int) { near[i%len(near)]() })
		values[3] = b.p50(func(i int) { random[i%len(random)]() })
		values[1] = b.p50(func(i int) { must(publish(i, 1)) })
		l := load{16, 100, b.length / 2}
		s := l.measure(func(_, i int) error { return publish(i, l.n) }, m.servers...)
		values[0] = s.count / s.seconds
	}, m.servers...)
	f.each = values
	return f
}

// p50 calls do repeatedly for a while, and returns the median duration of a call in ms.
func (b *bench) p50(do func(i int)) float64 {
	var took []float64
	for begin := time.Now(); time.Since(begin) < b.length/2; {
		one := time.Now()
		do(len(took))
		took = append(took, float64(time.Since(one).Nanoseconds())/1e6)
	}
	return median(took)
}

// flatReads returns functions that read a given number of changes near the heads, and at random
// places. Most of them start between two blocks of 100.
func (b *bench) flatReads(m *memory, sets []string) (near, random []func()) {
	for range 256 {
		set := sets[rand.IntN(len(sets))]
		last := have(m.log.State(b.ctx, set)).Head.Position - fewRead
		read := func(position uint64) func() {
			after := have(m.log.At(b.ctx, set, position))
			return func() {
				batch := have(m.log.Since(b.ctx, set, after, fewRead))
				if len(batch.Entries) == 0 || batch.Entries[0].Position != position+1 {
					must(fmt.Errorf("set %s: %d changes follow %v, up to %v", set, len(batch.Entries), after, batch.Cursor))
				}
			}
		}
		near, random = append(near, read(last)), append(random, read(rand.Uint64N(last/100+1)*100))
	}
	return near, random
}

// flatSubscriptions compares a hub that has many idle subscriptions with one that has none: changes are
// published to a set without subscriptions, then to one whose subscriptions have a filter that matches
// none of them.
func (b *bench) flatSubscriptions(t *table) {
	l := load{16, 1, b.length}
	bodies := b.changes.each(l.n, ndjson)
	compare := func(what, path string, f feed.Filter, cost aim) {
		empty, full, _ := b.withSubscriptions(f)
		on := func(dir string) func() sample {
			return func() sample {
				s := b.rshub(dir)
				b.rest(s)
				return l.over(b, s, path, inLines, bodies)
			}
		}
		b.compare(t, count(b.subscriptions)+" idle subscriptions"+what, []metric{
			perSecond("publishes").should(aim{limit: .8, least: true, ratio: true}), cpuEach("change").should(cost),
		}, on(empty), on(full))
	}
	compare("", "/sets/nobody/changes", feed.Filter{}, dearer)
	compare(" with a filter, to the set", setPath, feed.Filter{Prefix: "https://other.example.org/"}, aim{limit: 1.2, ratio: true})
}
