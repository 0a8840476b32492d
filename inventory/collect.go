package inventory

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A run is what Collect sorts in memory.
const (
	runEntries = 50_000
	runBytes   = 32 << 20
)

// Collect makes an inventory of resources that come in any order, such as the rows of a
// database, and returns what it holds. It sorts some ten thousand resources at a time in
// memory and keeps these runs in the store, so it needs little memory for any number.
// The position of a resource is its number in the list, for the error: no loc may be
// there twice (a *resourcesync.Error). What an inventory of the same set held before is
// lost. The state stays until the next Collect of the set.
func Collect(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	c := &collection{ctx: ctx, store: s, set: set, cache: NewCache(4 << 20)}
	t, err := c.collect(resources)
	if err != nil {
		return nil, fmt.Errorf("collect the resources of %s: %w", set, err)
	}
	return t.State(), nil
}

type collection struct {
	ctx   context.Context
	store Store
	set   string
	cache *Cache

	run   []feed.Entry
	bytes int // of run
	runs  []*Inventory
}

func (c *collection) collect(resources iter.Seq2[*feed.Entry, error]) (*Tree, error) {
	for e, err := range resources {
		if err != nil {
			return nil, err
		}
		if c.bytes += e.Change.Size(); len(c.run) == runEntries || c.bytes > runBytes {
			if err := c.end(); err != nil {
				return nil, err
			}
			c.bytes = e.Change.Size()
		}
		c.run = append(c.run, *e)
	}
	if len(c.runs) == 0 { // all of it is in memory
		sorted, err := c.sorted()
		if err != nil {
			return nil, err
		}
		return c.fill(New(c.store, c.set, Options{Cache: c.cache}), sorted, nil)
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	return c.merge()
}

// sorted sorts the run.
func (c *collection) sorted() (iter.Seq[*feed.Entry], error) {
	slices.SortStableFunc(c.run, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	for i := 1; i < len(c.run); i++ {
		if c.run[i-1].Change.Loc == c.run[i].Change.Loc {
			return nil, twice(&c.run[i-1], &c.run[i])
		}
	}
	return func(yield func(*feed.Entry) bool) {
		for i := range c.run {
			if !yield(&c.run[i]) {
				return
			}
		}
	}, nil
}

// end puts the run into the store.
func (c *collection) end() error {
	sorted, err := c.sorted()
	if err != nil {
		return err
	}
	run := New(c.store, fmt.Sprintf("%s~run-%d", c.set, len(c.runs)+1), Options{Cache: c.cache})
	if _, err := c.fill(run, sorted, nil); err != nil {
		return err
	}
	c.runs = append(c.runs, run)
	c.run, c.bytes = c.run[:0], 0
	return nil
}

// fill makes sorted resources all that an inventory holds.
func (c *collection) fill(v *Inventory, sorted iter.Seq[*feed.Entry], failed func() error) (*Tree, error) {
	_, head, err := v.Load(c.ctx)
	if err != nil {
		return nil, err
	}
	root, err := v.Commit(c.ctx, Changes{Base: head.Newest(), Anew: true, Sorted: sorted, Err: failed})
	if err != nil {
		return nil, err
	}
	return v.Tree(root), nil
}

// merge makes one inventory of all runs, and empties them.
func (c *collection) merge() (*Tree, error) {
	m := new(merging)
	defer m.stop()
	for _, run := range c.runs {
		_, head, err := run.Load(c.ctx)
		if err != nil {
			return nil, err
		}
		m.add(run.Tree(head.Newest()).Walk(c.ctx, Range{}))
	}
	heap.Init(m)
	t, err := c.fill(New(c.store, c.set, Options{Cache: c.cache}), m.all, func() error { return m.err })
	if err != nil {
		return nil, err
	}
	for _, run := range c.runs {
		if err := run.Reset(c.ctx, "it was merged"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// A merging is a heap of runs, by the loc of their next resources.
type merging struct {
	runs []mergingRun
	err  error // why it ended early
}

type mergingRun struct {
	entry *feed.Entry // the next one
	next  func() (*feed.Entry, error, bool)
	stop  func()
}

func (m *merging) Len() int           { return len(m.runs) }
func (m *merging) Less(i, j int) bool { return m.runs[i].entry.Change.Loc < m.runs[j].entry.Change.Loc }
func (m *merging) Swap(i, j int)      { m.runs[i], m.runs[j] = m.runs[j], m.runs[i] }
func (m *merging) Push(any)           {} // add does
func (m *merging) Pop() (last any)    { m.runs = m.runs[:len(m.runs)-1]; return nil }

// add adds a run, unless it is empty.
func (m *merging) add(run iter.Seq2[*feed.Entry, error]) {
	r := mergingRun{}
	r.next, r.stop = iter.Pull2(run)
	if m.advance(&r) {
		m.runs = append(m.runs, r)
	}
}

// advance goes to the next resource of a run. It returns false when there is none.
func (m *merging) advance(r *mergingRun) bool {
	e, err, ok := r.next()
	if err != nil {
		m.err = err
	}
	if !ok || err != nil {
		r.stop()
		return false
	}
	r.entry = e
	return true
}

// all yields all resources in the order of loc.
func (m *merging) all(yield func(*feed.Entry) bool) {
	var last feed.Entry
	for len(m.runs) > 0 && m.err == nil {
		r := &m.runs[0]
		if r.entry.Change.Loc == last.Change.Loc {
			m.err = twice(&last, r.entry)
			return
		}
		last = *r.entry
		if !yield(r.entry) {
			return
		}
		if m.advance(r) {
			heap.Fix(m, 0)
		} else {
			heap.Remove(m, 0)
		}
	}
}

func (m *merging) stop() {
	for i := range m.runs {
		m.runs[i].stop()
	}
}

// twice returns the error for a loc that is there twice.
func twice(a, b *feed.Entry) error {
	first, second := min(a.Position, b.Position), max(a.Position, b.Position)
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: int(second), Loc: resourcesync.Shorten(b.Change.Loc),
		Rule: fmt.Sprintf("it is there twice: line %d has it, too", first)}
}
