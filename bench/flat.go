//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
)

const (
	fewChanges = 10_000 // in a small memory
	fewRead    = 100    // changes in one read
)

var (
	flatRate    = metric{name: "changes/s, 16 publishers by 100", limit: 0.8, least: true, ratio: true}
	flatAppend  = metric{name: "append of 1, p50 ms", limit: 1.25, ratio: true}
	flatNear    = metric{name: "read of the newest 100, p50 ms", limit: 1.25, ratio: true}
	flatRandom  = metric{name: "read of 100 somewhere, p50 ms", limit: 1.25, ratio: true}
	flatReceive = metric{name: "publish to receipt, p50 ms", limit: 1.25, ratio: true}
)

// A flatMemory is a change memory in a store of its own.
type flatMemory struct {
	log                 changelog.Log
	publisher, follower *hub.Hub // the same where there can be one only
	servers             []*server
	sets                []string // that are used
	close               func() error
}

// flatFigures are medians in ms, and changes a second.
type flatFigures struct {
	usage
	rate, append, near, random, receive float64
}

// flat compares small memories with large ones. Each round has a new small one,
// as measuring makes it grow.
func (b *bench) flat(t *table, open func() (*flatMemory, error)) error {
	t.heads = [2]string{"small", "large"}
	compare := func(what string, large *flatMemory) error {
		return alternate(b,
			func() (f flatFigures, err error) {
				small, err := open()
				if err != nil {
					return f, err
				}
				if err = b.fill(small.log, benchSet, fewChanges, 100, 10_000); err == nil {
					f, err = b.flatMeasure(small)
				}
				return f, cmp.Or(err, small.close())
			},
			func() (flatFigures, error) { return b.flatMeasure(large) },
			func(small, large flatFigures) {
				others := max(small.others, large.others)
				t.add(what, flatRate, small.rate, large.rate, others)
				t.add(what, flatAppend, small.append, large.append, others)
				t.add(what, flatNear, small.near, large.near, others)
				t.add(what, flatRandom, small.random, large.random, others)
				t.add(what, flatReceive, small.receive, large.receive, others)
			})
	}
	if err := b.flatLong(open, compare); err != nil {
		return err
	}
	return b.flatMany(open, compare)
}

// flatLong compares with a memory of many changes.
func (b *bench) flatLong(open func() (*flatMemory, error), compare func(string, *flatMemory) error) error {
	m, err := open()
	if err != nil {
		return err
	}
	err = b.fill(m.log, benchSet, b.changes, 100, 10_000)
	if err == nil {
		err = compare(format(float64(b.changes))+" changes", m)
	}
	return cmp.Or(err, m.close())
}

// flatMany compares with a memory of many sets, once with one set in use and once with all.
func (b *bench) flatMany(open func() (*flatMemory, error), compare func(string, *flatMemory) error) error {
	m, err := open()
	if err != nil {
		return err
	}
	sets := []string{benchSet}
	for i := range b.sets - 1 {
		sets = append(sets, fmt.Sprintf("set-%d", i))
	}
	err = inParallel(len(sets), func(i int) error {
		return m.log.Make(b.ctx, sets[i], feed.Description{}, 10_000)
	})
	if err == nil {
		err = b.fill(m.log, benchSet, fewChanges, 100, 10_000)
	}
	what := format(float64(b.sets)) + " sets, "
	if err == nil {
		err = compare(what+"one of them used", m)
	}
	if err == nil {
		m.sets = sets
		err = inParallel(len(sets), func(i int) error {
			_, err := m.publisher.Publish(b.ctx, sets[i], changelog.Publish{Changes: b.content.batch(i, fewRead)})
			return err
		})
	}
	if err == nil {
		err = compare(what+"all in turn", m)
	}
	return cmp.Or(err, m.close())
}

// inParallel calls do for the numbers below n, a few at a time.
func inParallel(n int, do func(i int) error) error {
	const atOnce = 16
	var wg sync.WaitGroup
	errs := make([]error, atOnce)
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += atOnce {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// flatMeasure takes all figures of a memory. Reads come first: what is published
// then makes it grow.
func (b *bench) flatMeasure(m *flatMemory) (f flatFigures, err error) {
	near, random, err := b.flatCursors(m)
	if err != nil {
		return f, err
	}
	f.usage, err = measure(func() error {
		for _, step := range []struct {
			p50 *float64
			do  func(i int) error
		}{
			{&f.near, func(i int) error { return m.read(b.ctx, near[i%len(near)]) }},
			{&f.random, func(i int) error { return m.read(b.ctx, random[i%len(random)]) }},
			{&f.append, func(i int) error { return b.publishTo(m, i, 1) }},
		} {
			if *step.p50, err = b.p50(step.do); err != nil {
				return err
			}
		}
		if f.receive, err = b.flatReceive(m); err != nil {
			return err
		}
		l := load{publishers: 16, n: 100, length: b.flatLength}
		l.post = func(_, i int) error { return b.publishTo(m, i, l.n) }
		begin := time.Now()
		n, err := l.run()
		f.rate = float64(n*l.n) / time.Since(begin).Seconds()
		return err
	}, m.servers...)
	return f, err
}

// p50 calls a function again and again for a while, and returns the median time of a call
// in ms.
func (b *bench) p50(do func(i int) error) (float64, error) {
	var took []float64
	for begin := time.Now(); time.Since(begin) < b.flatLength; {
		one := time.Now()
		if err := do(len(took)); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(one).Nanoseconds())/1e6)
	}
	return median(took), nil
}

func (b *bench) publishTo(m *flatMemory, i, n int) error {
	_, err := m.publisher.Publish(b.ctx, m.sets[i%len(m.sets)], changelog.Publish{Changes: b.content.batch(i, n)})
	return err
}

// A flatCursor is where to read.
type flatCursor struct {
	set   string
	after feed.Cursor
}

// flatCursors returns cursors near the heads and cursors anywhere in the logs. A given
// number of changes follows each. Most of them are between two blocks of 100.
func (b *bench) flatCursors(m *flatMemory) (near, random []flatCursor, err error) {
	for range 256 {
		set := m.sets[rand.IntN(len(m.sets))]
		state, err := m.log.State(b.ctx, set)
		if err != nil {
			return nil, nil, err
		}
		last := state.Head.Position - fewRead
		for _, in := range []struct {
			list     *[]flatCursor
			position uint64
		}{{&near, last}, {&random, rand.Uint64N(last/100+1) * 100}} {
			after, err := m.log.At(b.ctx, set, in.position)
			if err != nil {
				return nil, nil, err
			}
			*in.list = append(*in.list, flatCursor{set, after})
		}
	}
	return near, random, nil
}

func (m *flatMemory) read(ctx context.Context, at flatCursor) error {
	batch, err := m.log.Since(ctx, at.set, at.after, fewRead)
	if err == nil && (len(batch.Entries) == 0 || batch.Entries[0].Position != at.after.Position+1) {
		err = fmt.Errorf("set %s: %d changes follow %v, up to %v", at.set, len(batch.Entries), at.after, batch.Cursor)
	}
	return err
}

// flatReceive measures the time from before a publish at one hub until a follower at the
// other hub has it, one publish at a time.
func (b *bench) flatReceive(m *flatMemory) (float64, error) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	set := m.sets[0]
	state, err := m.log.State(ctx, set)
	if err != nil {
		return 0, err
	}
	heard, ended := make(chan uint64), make(chan error, 1)
	go func() {
		for batches, err := range m.follower.Follow(ctx, set, state.Head) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case heard <- batches[len(batches)-1].Cursor.Position:
			case <-ctx.Done():
			}
		}
		ended <- ctx.Err()
	}()
	// publish returns when the follower has the published change, or after patience.
	publish := func(i int, patience time.Duration) error {
		a, err := m.publisher.Publish(ctx, set, changelog.Publish{Changes: b.content.batch(i, 1)})
		if err != nil {
			return err
		}
		late := time.NewTimer(patience)
		defer late.Stop()
		for {
			select {
			case position := <-heard:
				if position >= a.Cursor.Position {
					return nil
				}
			case err := <-ended:
				return err
			case <-late.C:
				return errLate
			}
		}
	}
	// The hub listens to the other one a little after the follower began.
	err = errLate
	for i := 0; i < 100 && errors.Is(err, errLate); i++ {
		err = publish(i, 50*time.Millisecond)
	}
	if err != nil {
		return 0, err
	}
	p50, err := b.p50(func(i int) error { return publish(i, stall) })
	cancel()
	<-ended
	return p50, err
}

var errLate = errors.New("LOST: what was published did not come")
