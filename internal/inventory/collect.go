package inventory

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// runBytes is the memory of the resources that Collect sorts at a time.
const runBytes = 16 << 20

// onlyTerm is the term of writers that have their store to themselves.
const onlyTerm = 1

// Collect makes an inventory of resources in any order, such as the rows of a database, and returns its state.
// It sorts some ten thousand resources at a time in memory and stores these runs, so it needs little memory
// for any number. If a loc appears twice, it returns a *resourcesync.Error with the number of the resource in
// the list. Collect drops the earlier contents of an inventory of the same set. The state can be read until
// the next Collect of the set.
func Collect(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	return collect(ctx, s, set, resources, twice)
}

// CollectLast is Collect for a list that may name a loc several times, such as a sitemap.
// The last entry of a loc counts.
func CollectLast(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error]) (*State, error) {
	return collect(ctx, s, set, resources, nil)
}

// collect collects resources. twice returns the error for a loc that appears twice; if twice is nil, the newer
// entry counts.
func collect(ctx context.Context, s Store, set string, resources iter.Seq2[*feed.Entry, error], twice func(older, newer *feed.Entry) error) (*State, error) {
	w := New(s, set, Options{}).Writer(onlyTerm)
	root, err := w.collect(ctx, resources, twice)
	if err != nil {
		return nil, fmt.Errorf("collect resources of %s: %w", set, err)
	}
	return w.Tree(root).State(), nil
}

func (w *Writer) collect(ctx context.Context, resources iter.Seq2[*feed.Entry, error], twice func(older, newer *feed.Entry) error) (Root, error) {
	_, head, err := w.Load(ctx)
	if err != nil {
		return Root{}, err
	}
	c := Changes{Base: head.Newest(), Anew: true}
	var run Backlog
	for e, err := range resources {
		if err != nil {
			return Root{}, err
		}
		if older := run.newest[e.Change.Loc]; older != nil && twice != nil {
			return Root{}, twice(older.entry(), e)
		}
		if run.Add([]feed.Entry{*e}); run.Bytes() < runBytes {
			continue
		}
		if c.Runs == nil {
			if c.Runs, err = w.NewRuns(ctx, c.Base); err != nil {
				return Root{}, err
			}
			c.Runs.Twice = twice
		}
		if err := c.Runs.Add(ctx, run.Entries(), nil); err != nil {
			return Root{}, err
		}
		run = Backlog{}
	}
	c.Sorted = run.Entries()
	return w.Commit(ctx, c)
}

// twice returns the error for a loc that appears twice.
func twice(a, b *feed.Entry) error {
	first, second := min(a.Position, b.Position), max(a.Position, b.Position)
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: int(second), Loc: resourcesync.Shorten(b.Change.Loc),
		Msg: fmt.Sprintf("duplicate loc; line %d has it, too", first)}
}
