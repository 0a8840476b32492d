package inventory

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// runBytes bounds what Collect sorts in memory.
const runBytes = 16 << 20

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

	run  Backlog
	runs *Runs
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
		if err == nil {
			err = c.add(e)
		}
		if err != nil {
			return Root{}, err
		}
	}
	return c.v.Commit(c.ctx, Changes{Base: c.base, Anew: true, Sorted: c.run.Entries(), Runs: c.runs})
}

// add adds a resource to the run.
func (c *collection) add(e *feed.Entry) error {
	if c.twice != nil {
		if older := c.run.newest[e.Change.Loc]; older != nil {
			return c.twice(older.entry(), e)
		}
	}
	c.run.Add([]feed.Entry{*e})
	if c.run.Bytes() < runBytes {
		return nil
	}
	return c.spill()
}

// spill puts the run into the store.
func (c *collection) spill() (err error) {
	if c.runs == nil {
		if c.runs, err = c.v.NewRuns(c.ctx, c.base); err != nil {
			return err
		}
		c.runs.Twice = c.twice
	}
	if err := c.runs.Add(c.ctx, c.run.Entries(), nil); err != nil {
		return err
	}
	c.run = Backlog{}
	return nil
}

// twice returns the error for a loc that appears twice.
func twice(a, b *feed.Entry) error {
	first, second := min(a.Position, b.Position), max(a.Position, b.Position)
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: int(second), Loc: resourcesync.Shorten(b.Change.Loc),
		Rule: fmt.Sprintf("it is there twice: line %d has it, too", first)}
}
