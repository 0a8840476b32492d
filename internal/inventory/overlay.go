package inventory

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
)

// An Overlay is the changes of a log after a Tree, the newest of each loc. It knows how each change alters the
// tallies of the tree, so the tallies of its states are exact. It must not be used concurrently. Its states
// are independent of it.
type Overlay struct {
	tree    *Tree
	total   digest.Tally // of the tree
	from    feed.Cursor  // of the tree
	waiting waiting
	added   map[string]*change // newer changes, which are not in waiting yet
	count   int                // of locs in waiting and added
	bytes   int                // about the memory of waiting and added
}

// NewOverlay returns an Overlay without changes.
func NewOverlay(t *Tree) *Overlay { return newOverlay(t, t.root.Tally, t.root.Cursor) }

func newOverlay(t *Tree, total digest.Tally, at feed.Cursor) *Overlay {
	return &Overlay{tree: t, total: total, from: at, added: map[string]*change{}}
}

// Overlay returns an Overlay with all changes of the state, to make a state at a later cursor.
func (s *State) Overlay() *Overlay {
	o := newOverlay(s.tree, s.total, s.cursor)
	sum := s.waiting.sum()
	o.total.Sub(&sum)
	o.waiting, o.count, o.bytes = s.waiting, len(s.waiting.changes), s.waiting.bytes
	return o
}

// Add adds entries of the log, in the order of the log. It skips entries that the tree or the overlay already
// has. It blocks while it looks up the replaced resources in the tree, many at a time. After an error of the
// tree, nothing was added.
func (o *Overlay) Add(ctx context.Context, entries []feed.Entry) error {
	newest := make(map[string]*change, len(entries))
	for i := range entries {
		if e := &entries[i]; e.Position > o.from.Position {
			newest[e.Change.Loc] = newChange(e)
		}
	}
	var unknown []string // locs without a change in the overlay
	for loc := range newest {
		if o.get(loc) == nil {
			unknown = append(unknown, loc)
		}
	}
	slices.Sort(unknown)
	before := make([]digest.Tally, len(unknown)) // what the tree has of these locs
	if err := o.tree.Find(ctx, unknown, func(i int, e *feed.Entry) { before[i] = digest.TallyOf(e) }); err != nil {
		return fmt.Errorf("look up resources replaced by %d changes: %w", len(unknown), err)
	}
	for i, loc := range unknown {
		c := newest[loc]
		c.onto(&before[i])
		o.set(c, nil)
		delete(newest, loc)
	}
	for loc, c := range newest {
		if old := o.get(loc); old.at.Position < c.at.Position {
			replaced := old.before()
			c.onto(&replaced)
			o.set(c, old)
		}
	}
	return nil
}

func (o *Overlay) get(loc string) *change {
	if c := o.added[loc]; c != nil {
		return c
	}
	return o.waiting.get(loc)
}

// set adds a change, in place of old. old is the result of get.
func (o *Overlay) set(c, old *change) {
	o.bytes += c.bytes()
	if old == nil {
		o.count++
	} else {
		o.bytes -= old.bytes()
	}
	o.added[c.loc()] = c
}

// settle returns all changes, by loc.
func (o *Overlay) settle() waiting {
	if len(o.added) > 0 {
		o.waiting, o.added = o.waiting.with(byLoc(o.added)), map[string]*change{}
	}
	return o.waiting
}

// State returns the state of the set after all changes that were added; at is the cursor of the newest. If
// changes were added since the last State, its cost grows with the number of all changes. Later calls of Add
// do not change the state.
func (o *Overlay) State(at feed.Cursor) *State {
	s := &State{tree: o.tree, total: o.total, waiting: o.settle(), cursor: at}
	sum := s.waiting.sum()
	s.total.Add(&sum)
	return s
}

// Changes yields, in the order of loc, the changes that a commit must merge into the tree: the newest of each
// loc, deletions too, unless the tree does not have the resource.
func (o *Overlay) Changes() iter.Seq[*feed.Entry] {
	changes := o.settle().changes // changes that are added later are not yielded
	return func(yield func(*feed.Entry) bool) {
		for _, c := range changes {
			if (c.effect.had || !c.gone) && !yield(c.entry()) {
				return
			}
		}
	}
}

// Len returns the number of changes, which is at least the number that Changes yields.
func (o *Overlay) Len() int { return o.count }

// Bytes returns the approximate memory of the changes.
func (o *Overlay) Bytes() int { return o.bytes }
