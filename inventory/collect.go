package inventory

import (
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
// memory and keeps these runs in the store, so it needs little memory for any number. No
// loc may appear twice: that is a *resourcesync.Error, which names the position of a
// resource, its number in the list. Collect drops what an inventory of the same set held
// before. The state stays until the next Collect of the set.
func Collect(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	return (&collection{ctx: ctx, twice: twice}).state(s, set, resources)
}

// CollectLast is Collect for a list that may name a loc several times, such as a sitemap.
// The last entry of a loc counts.
func CollectLast(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	return (&collection{ctx: ctx}).state(s, set, resources)
}

type collection struct {
	ctx   context.Context
	v     *Inventory
	base  Root
	twice func(older, newer *feed.Entry) error // the error for a loc that appears twice; nil: the newer entry counts

	run   []feed.Entry
	bytes int // of run
	runs  *Runs
}

func (c *collection) state(s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	c.v = New(s, set, Options{Cache: NewCache(4 << 20)})
	root, err := c.collect(resources)
	if err != nil {
		return nil, fmt.Errorf("collect the resources of %s: %w", set, err)
	}
	return c.v.Tree(root).State(), nil
}

func (c *collection) collect(resources iter.Seq2[*feed.Entry, error]) (Root, error) {
	_, head, err := c.v.Load(c.ctx)
	if err != nil {
		return Root{}, err
	}
	c.base = head.Newest()
	for e, err := range resources {
		if err == nil && (len(c.run) == runEntries || c.bytes+e.Change.Size() > runBytes) {
			err = c.spill()
		}
		if err != nil {
			return Root{}, err
		}
		c.run, c.bytes = append(c.run, *e), c.bytes+e.Change.Size()
	}
	sorted, err := c.sorted()
	if err != nil {
		return Root{}, err
	}
	return c.v.Commit(c.ctx, Changes{Base: c.base, Anew: true, Sorted: sorted, Runs: c.runs})
}

// sorted sorts the run.
func (c *collection) sorted() (iter.Seq[*feed.Entry], error) {
	slices.SortStableFunc(c.run, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	same := func(i int) bool { return i > 0 && c.run[i-1].Change.Loc == c.run[i].Change.Loc }
	for i := range c.run {
		if c.twice != nil && same(i) {
			return nil, c.twice(&c.run[i-1], &c.run[i])
		}
	}
	return func(yield func(*feed.Entry) bool) {
		for i := range c.run {
			if last := i == len(c.run)-1 || !same(i+1); last && !yield(&c.run[i]) {
				return
			}
		}
	}, nil
}

// spill puts the run into the store.
func (c *collection) spill() error {
	sorted, err := c.sorted()
	if err != nil {
		return err
	}
	if c.runs == nil {
		if c.runs, err = c.v.NewRuns(c.ctx, c.base); err != nil {
			return err
		}
		c.runs.Twice = c.twice
	}
	if err := c.runs.Add(c.ctx, sorted, nil); err != nil {
		return err
	}
	c.run, c.bytes = c.run[:0], 0
	return nil
}

// twice returns the error for a loc that appears twice.
func twice(a, b *feed.Entry) error {
	first, second := min(a.Position, b.Position), max(a.Position, b.Position)
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: int(second), Loc: resourcesync.Shorten(b.Change.Loc),
		Rule: fmt.Sprintf("it is there twice: line %d has it, too", first)}
}
