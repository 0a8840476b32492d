package inventory

import (
	"context"
	"iter"
	"slices"

	"github.com/rshub/rshub/feed"
)

// A base is what a State reads of a Tree.
type base interface {
	Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error)
	Find(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error
	Walk(ctx context.Context, r Range) iter.Seq2[*feed.Entry, error]
	Rank(ctx context.Context, loc string) (uint64, error)
	Nth(ctx context.Context, n uint64) (loc string, ok bool, err error)
	Tally(ctx context.Context, r Range) (Tally, error)
}

// A State is what a set held at one cursor: a Tree, and the changes of the log between
// the tree's cursor and this one. A State never changes. Its methods may be called
// concurrently. They block while pages are read, and their errors are those of a Tree.
//
// Whoever uses a State keeps the root of its Tree alive, by a pin.
type State struct {
	base    base
	total   Tally // of all resources
	waiting waiting
	cursor  feed.Cursor
}

// A Part is a range with its tally.
type Part struct {
	Range
	Tally Tally
}

// State returns what the set held at the cursor of the tree.
func (t *Tree) State() *State {
	return &State{base: t, total: t.root.Tally, cursor: t.root.Cursor}
}

// Cursor returns the cursor that the state is at.
func (s *State) Cursor() feed.Cursor { return s.cursor }

// Tally returns the tally of a range. It is exact.
func (s *State) Tally(ctx context.Context, r Range) (Tally, error) {
	if r == (Range{}) {
		return s.total, nil
	}
	t, err := s.base.Tally(ctx, r)
	if err != nil {
		return Tally{}, err
	}
	_, _, delta := s.waiting.within(r)
	t.Add(&delta)
	return t, nil
}

// Get returns the newest change of a resource, if the resource exists.
func (s *State) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	if c := s.waiting.get(loc); c != nil {
		if c.gone {
			return feed.Entry{}, false, nil
		}
		return *c.entry(), true, nil
	}
	return s.base.Get(ctx, loc)
}

// Walk yields the resources in a range in the order of loc. An entry is to be read only
// until the next one is asked for; a copy of it stays good. An error ends the walk.
func (s *State) Walk(ctx context.Context, r Range) iter.Seq2[*feed.Entry, error] {
	if _, n, _ := s.waiting.within(r); n == 0 {
		return s.base.Walk(ctx, r)
	}
	return func(yield func(*feed.Entry, error) bool) {
		next, stop := iter.Pull(s.waiting.walk(r))
		defer stop()
		c, more := next()
		for e, err := range s.base.Walk(ctx, r) {
			if err != nil {
				yield(nil, err)
				return
			}
			for ; more && c.loc < e.Change.Loc; c, more = next() {
				if !c.gone && !yield(c.entry(), nil) {
					return
				}
			}
			if more && c.loc == e.Change.Loc {
				continue // c is newer, and is yielded next
			}
			if !yield(e, nil) {
				return
			}
		}
		for ; more; c, more = next() {
			if !c.gone && !yield(c.entry(), nil) {
				return
			}
		}
	}
}

// splitByWalk is how many resources Split looks at one by one. It takes about 2 µs for
// each.
const splitByWalk = 8_192

// Split divides a range into parts of about equal counts: n at most, where n is at least
// 4. Together the parts are the range. If the range has more than one resource, there
// are at least two parts. The boundaries are the shortest texts that separate two
// neighbours.
func (s *State) Split(ctx context.Context, r Range, n int) ([]Part, error) {
	t, err := s.Tally(ctx, r)
	if err != nil {
		return nil, err
	}
	if t.Count < 2 {
		return []Part{{r, t}}, nil
	}
	if t.Count <= splitByWalk {
		return s.splitByWalk(ctx, r, int(t.Count), n)
	}
	cuts, err := s.cuts(ctx, r, n)
	if err != nil {
		return nil, err
	}
	parts := make([]Part, 0, len(cuts)+1)
	for i := range len(cuts) + 1 {
		p := Part{Range: r}
		if i > 0 {
			p.From = cuts[i-1]
		}
		if i < len(cuts) {
			p.To = cuts[i]
		}
		if p.Tally, err = s.Tally(ctx, p.Range); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// splitByWalk splits a range of count resources.
func (s *State) splitByWalk(ctx context.Context, r Range, count, n int) ([]Part, error) {
	step := (count + n - 1) / n
	parts := append(make([]Part, 0, n), Part{Range: r})
	last := ""
	for e, err := range s.Walk(ctx, r) {
		if err != nil {
			return nil, err
		}
		p := &parts[len(parts)-1]
		if p.Tally.Count == uint64(step) {
			p.To = separate(last, e.Change.Loc)
			parts = append(parts, Part{Range: Range{p.To, r.To}})
			p = &parts[len(parts)-1]
		}
		t := TallyOf(e)
		p.Tally.Add(&t)
		last = e.Change.Loc
	}
	return parts, nil
}

// cuts returns the boundaries at which Split divides a large range. They are taken from
// the tree and from the changes, each where it is equally full. So a part has at most
// twice the n-th share of both, even where all changes are in one place.
func (s *State) cuts(ctx context.Context, r Range, n int) ([]string, error) {
	first, last := uint64(0), uint64(0)
	all, err := s.base.Tally(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.From != "" {
		if first, err = s.base.Rank(ctx, r.From); err != nil {
			return nil, err
		}
	}
	last = first + all.Count
	skip, waiting, _ := s.waiting.within(r)
	step := (all.Count + uint64(waiting) + uint64(n) - 1) / uint64(n)
	var cuts []string
	for i := first + step; i < last; i += step {
		before, ok, err := s.base.Nth(ctx, i-1)
		if err != nil {
			return nil, err
		}
		loc, more, err := s.base.Nth(ctx, i)
		if err != nil {
			return nil, err
		}
		if ok && more {
			cuts = append(cuts, separate(before, loc))
		}
	}
	for i := int(step); i < waiting; i += int(step) {
		cuts = append(cuts, separate(s.waiting.nth(skip+i-1).loc, s.waiting.nth(skip+i).loc))
	}
	slices.Sort(cuts)
	return slices.Compact(cuts), nil
}

// separate returns the shortest text that is greater than a and not greater than b,
// which is greater than a.
func separate(a, b string) string {
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return b[:i+1]
}
