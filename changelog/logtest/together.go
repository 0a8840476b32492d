package logtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var togetherTests = []test{
	{"publishers, readers and retention", false, func(m *memory) {
		m.make(name, 100)
		const publishers, readers, each = 16, 4, 60
		var running, readersDone sync.WaitGroup
		var done atomic.Bool
		locs := make(map[uint64]string) // acknowledged locs by position
		var newest uint64               // highest position in locs
		var mu sync.Mutex               // guards locs and newest
		told := sync.NewCond(&mu)       // signals a change of newest or done
		more := func(position uint64) { // waits until newest is higher than position, or done
			mu.Lock()
			defer mu.Unlock()
			for !done.Load() && newest <= position {
				told.Wait()
			}
		}
		for p := range publishers {
			running.Go(func() {
				for i := range each {
					batch := changelog.Publish{Changes: make([]resourcesync.Change, 1+(p+i)%7*(i%3))}
					for n := range batch.Changes {
						batch.Changes[n] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d/%d/%d", p, i, n), Change: resourcesync.Updated}
					}
					a, err := m.Append(m.ctx, name, batch)
					if err != nil {
						m.Error(err)
						return
					}
					// A publisher can read its publish after the acknowledgment.
					if s, err := m.State(m.ctx, name); err != nil || s.Head.Position < a[0].Cursor.Position {
						m.Errorf("head is %v after %v was acknowledged, %v", s.Head, a[0].Cursor, err)
					}
					mu.Lock()
					newest = max(newest, a[0].Cursor.Position)
					told.Broadcast()
					for n, c := range batch.Changes {
						locs[a[0].After.Position+1+uint64(n)] = c.Loc
					}
					mu.Unlock()
				}
			})
		}
		seen := make([]map[uint64]string, readers)
		ends := make([]feed.Cursor, readers)
		for r := range readers {
			seen[r] = make(map[uint64]string)
			readersDone.Go(func() { ends[r] = m.follow(seen[r], 1+r*40, &done, more) })
		}
		readersDone.Go(func() {
			for position := uint64(0); !done.Load(); {
				more(position)
				mu.Lock()
				position = newest
				mu.Unlock()
				if _, err := m.Trim(m.ctx, name, changelog.Retention{Count: 500}); err != nil {
					m.Error(err)
					return
				}
			}
		})
		running.Wait()
		mu.Lock()
		done.Store(true)
		told.Broadcast()
		mu.Unlock()
		readersDone.Wait()
		head := m.state().Head
		m.wantEqual("entries", uint64(len(locs)), head.Position)
		for r := range readers {
			m.wantEqual("a reader's end", ends[r], head)
			for p, loc := range seen[r] {
				if locs[p] != loc {
					m.Fatalf("loc at position %d = %q, want %q as acknowledged", p, loc, locs[p])
				}
			}
		}
	}},
	{"publishers with the same keys", false, func(m *memory) {
		m.make(name, k)
		var running sync.WaitGroup
		const publishers, keys = 8, 25
		answers := make([][keys]changelog.Appended, publishers)
		for p := range publishers {
			running.Go(func() {
				for i := range keys {
					a, err := m.Append(m.ctx, name, keyedPublish(fmt.Sprint("key", i), 1))
					if err != nil {
						m.Error(err)
						return
					}
					answers[p][i] = a[0]
					if s, err := m.State(m.ctx, name); err != nil || s.Head.Position < a[0].Cursor.Position {
						m.Errorf("head is %v after %v was acknowledged, %v", s.Head, a[0].Cursor, err)
					}
				}
			})
		}
		running.Wait()
		m.wantEqual("head", m.state().Head.Position, uint64(keys))
		for i := range keys {
			added := 0
			for p := range publishers {
				m.wantEqual("cursor", answers[p][i].Cursor, answers[0][i].Cursor)
				if !answers[p][i].Replayed {
					added++
				}
			}
			m.wantEqual("how often a publish was added", added, 1)
		}
	}},
	{"sets come and go", false, func(m *memory) {
		var running sync.WaitGroup
		for p := range 4 {
			running.Go(func() {
				for range 25 {
					if err := m.Make(m.ctx, name, feed.Description{}, k); err != nil {
						m.Error(err)
					}
					if _, err := m.Append(m.ctx, name, publish(3), publish(9)); err != nil && !errors.Is(err, feed.ErrNoSet) {
						m.Error(err)
					}
					b, err := m.Since(m.ctx, name, feed.Cursor{}, 0)
					if err != nil {
						m.Error(err)
					} else if n := len(b.Entries); n%12 != 0 && n != 1000 {
						m.Errorf("got %d entries, want a multiple of 12: a publish was torn", n)
					}
					if p == 0 {
						if err := m.Delete(m.ctx, name); err != nil && !errors.Is(err, feed.ErrNoSet) {
							m.Error(err)
						}
					}
				}
			})
		}
		running.Wait()
	}},
}

// follow reads until done and until it has read everything, and stores the locs in seen. more waits
// for entries after a position. If retention has removed the entries after its cursor, follow
// continues at the floor. It returns its last cursor.
func (m *memory) follow(seen map[uint64]string, limit int, done *atomic.Bool, more func(position uint64)) feed.Cursor {
	var c feed.Cursor
	for {
		last := done.Load() // before the read, which must return everything acknowledged so far
		b, err := m.Since(m.ctx, name, c, limit)
		if errors.Is(err, feed.ErrGone) {
			s, err := m.State(m.ctx, name)
			if err != nil || s.Floor.Position <= c.Position {
				m.Errorf("Since(%v) = gone, but the floor is %v, %v", c, s.Floor, err)
				return c
			}
			c = s.Floor
			continue
		}
		if err != nil {
			m.Error(err)
			return c
		}
		if b.After != c || b.Diverged || len(b.Entries) > limit {
			m.Errorf("Since(%v, limit %d) = %d entries after %v, diverged %t", c, limit, len(b.Entries), b.After, b.Diverged)
			return c
		}
		for _, e := range b.Entries {
			if e.Position != c.Position+1 || e.Micros <= c.Micros {
				m.Errorf("got entry %v after %v", e.Cursor, c)
				return c
			}
			c = e.Cursor
			seen[e.Position] = e.Change.Loc
		}
		if len(b.Entries) == 0 {
			if last {
				return c
			}
			more(c.Position)
		}
	}
}
