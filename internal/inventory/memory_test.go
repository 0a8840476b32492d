package inventory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/resourcesync"
)

func TestMemory(t *testing.T) { storetest.Store(t, memory) }

func TestMemoryInventory(t *testing.T) { storetest.Inventory(t, memory) }

func FuzzHistory(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(100))
	f.Fuzz(func(t *testing.T, seed uint64) { storetest.History(t, memory(t), seed, 40) })
}

func memory(*testing.T) storetest.Env {
	log := &diary{sets: map[string]*page{}}
	return storetest.Env{Store: storetest.Beside(inventory.NewMemory(), log), Log: log}
}

// A diary is the plainest log that an inventory can be kept beside.
type diary struct {
	mu   sync.Mutex
	last int64
	sets map[string]*page
}

type page struct {
	state   feed.State
	cursors []feed.Cursor
}

// now returns the time in microseconds, which passes.
func (d *diary) now() int64 {
	d.last = max(d.last+1, time.Now().UnixMicro())
	return d.last
}

func (d *diary) Make(_ context.Context, set string, _ feed.Description, listSize int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sets[set] == nil {
		now := d.now()
		at := feed.Cursor{Micros: now}
		d.sets[set] = &page{state: feed.State{Set: set, ListSize: listSize, Begin: now, Floor: at, Head: at, BeforeLatest: at}}
	}
	return nil
}

func (d *diary) Delete(_ context.Context, set string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sets, set)
	return nil
}

func (d *diary) State(_ context.Context, set string) (feed.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.sets[set]; p != nil {
		return p.state, nil
	}
	return feed.State{}, feed.ErrNoSet
}

func (d *diary) At(_ context.Context, set string, position uint64) (feed.Cursor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.sets[set]
	if p == nil {
		return feed.Cursor{}, feed.ErrNoSet
	}
	if position > uint64(len(p.cursors)) {
		return feed.Cursor{}, resourcesync.Invalidf("no position %d", position)
	}
	if position == 0 {
		return p.state.Floor, nil
	}
	return p.cursors[position-1], nil
}

func (d *diary) Append(_ context.Context, set string, publishes ...changelog.Publish) (all []changelog.Appended, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.sets[set]
	if p == nil {
		return nil, feed.ErrNoSet
	}
	for _, publish := range publishes {
		a := changelog.Appended{After: p.state.Head, Count: len(publish.Changes)}
		first := d.now()
		for i := range publish.Changes {
			p.cursors = append(p.cursors, feed.Cursor{Position: uint64(len(p.cursors)) + 1, Micros: first + int64(i)})
		}
		p.state.Head = p.cursors[len(p.cursors)-1]
		d.last, a.Cursor = p.state.Head.Micros, p.state.Head
		all = append(all, a)
	}
	return all, nil
}
