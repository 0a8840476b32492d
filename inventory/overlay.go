package inventory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/digest"
)

// An Overlay is the changes of a log after a Tree, the newest of each loc. It knows how
// each change alters the tallies of the tree, so the tallies of its states are exact.
//
// One goroutine at a time may use an Overlay. Its states are independent of it.
type Overlay struct {
	base    base
	total   digest.Tally // of the base
	from    feed.Cursor  // of the base
	waiting waiting
}

// NewOverlay returns an Overlay without changes.
func NewOverlay(t *Tree) *Overlay { return newOverlay(t, t.root.Tally, t.root.Cursor) }

func newOverlay(b base, total digest.Tally, at feed.Cursor) *Overlay {
	o := &Overlay{base: b, total: total, from: at}
	o.waiting.freeze()
	return o
}

// Overlay returns an Overlay with all changes of the state. Use it to bring a state to a
// later cursor.
func (s *State) Overlay() *Overlay {
	o := newOverlay(s.base, s.total, s.cursor)
	if s.waiting.root != nil {
		o.total.Sub(&s.waiting.root.sum)
		o.waiting = s.waiting
		o.waiting.freeze() // so that Add copies the nodes that s reads
	}
	return o
}

// Add adds entries of the log, in the order of the log. It skips entries that the tree
// or the overlay already has. Add blocks while it looks up in the tree what the entries
// replace, many at a time. After an error of the tree, nothing was added.
func (o *Overlay) Add(ctx context.Context, entries []feed.Entry) error {
	newest := make(map[string]*feed.Entry, len(entries))
	for i := range entries {
		if e := &entries[i]; e.Position > o.from.Position {
			newest[e.Change.Loc] = e
		}
	}
	var unknown []string // locs without a change in the overlay
	locs := slices.Sorted(maps.Keys(newest))
	old := make([]*change, len(locs))
	for i, loc := range locs {
		if old[i] = o.waiting.get(loc); old[i] == nil {
			unknown = append(unknown, loc)
		}
	}
	before := make([]digest.Tally, len(unknown)) // what the tree has of these locs
	err := o.base.Find(ctx, unknown, func(i int, e *feed.Entry) { before[i] = digest.TallyOf(e) })
	if err != nil {
		return fmt.Errorf("look up what %d changes replace: %w", len(unknown), err)
	}
	for i, loc := range locs {
		e := newest[loc]
		switch {
		case old[i] == nil:
			o.waiting.set(newChange(e, &before[0]), nil)
			before = before[1:]
		case old[i].at.Position < e.Position:
			replaced := old[i].before()
			o.waiting.set(newChange(e, &replaced), old[i])
		}
	}
	return nil
}

// State returns what the set holds after all changes that were added. at is the cursor
// of the newest of them. Its cost does not depend on the number of changes. Later calls
// of Add do not change the state.
func (o *Overlay) State(at feed.Cursor) *State {
	s := &State{base: o.base, total: o.total, waiting: o.waiting, cursor: at}
	if o.waiting.root != nil {
		s.total.Add(&o.waiting.root.sum)
	}
	o.waiting.freeze() // from now on, Add copies the nodes that s reads
	return s
}

// Rebase moves the overlay to a newer root of the same log, and drops the changes that
// this root holds. It blocks while it looks up in the tree what the others replace.
// After an error of the tree, the overlay is unchanged.
func (o *Overlay) Rebase(ctx context.Context, t *Tree) error {
	return o.rebase(ctx, t, t.root.Tally, t.root.Cursor)
}

func (o *Overlay) rebase(ctx context.Context, b base, total digest.Tally, at feed.Cursor) error {
	var rest []*change
	var locs []string
	for c := range o.waiting.walk(Range{}) {
		if c.at.Position > at.Position {
			rest = append(rest, c)
			locs = append(locs, c.loc)
		}
	}
	before := make([]digest.Tally, len(rest))
	if err := b.Find(ctx, locs, func(i int, e *feed.Entry) { before[i] = digest.TallyOf(e) }); err != nil {
		return fmt.Errorf("look up what %d changes replace: %w", len(locs), err)
	}
	n := newOverlay(b, total, at)
	for i, c := range rest {
		n.waiting.set(newChange(c.entry(), &before[i]), nil)
	}
	*o = *n
	return nil
}

// Changes yields, in the order of loc, the changes that a commit has to merge into the
// tree: the newest of each loc, deletions too. It leaves out deletions of resources that
// the tree does not have.
func (o *Overlay) Changes() iter.Seq[*feed.Entry] {
	w := o.waiting // changes that are added meanwhile are not yielded
	o.waiting.freeze()
	return func(yield func(*feed.Entry) bool) {
		for c := range w.walk(Range{}) {
			if (c.had || !c.gone) && !yield(c.entry()) {
				return
			}
		}
	}
}

// Len returns the number of changes, which is at least the number that Changes
// yields.
func (o *Overlay) Len() int { return o.waiting.len() }

// Bytes returns about how many bytes of memory the changes take.
func (o *Overlay) Bytes() int { return o.waiting.bytes }
