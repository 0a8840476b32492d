package inventory

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
)

// A Pinned is a State for one reader. Its pages stay until Release, but no longer than an
// hour; then reading returns feed.ErrGone.
type Pinned struct {
	*State
	Tree     *Tree  // the root behind the state
	Complete bool   // the hub knew all resources of the set as of the cursor
	Release  func() // may be called again
}

// Nth returns the loc of the resource with n resources before it in the root behind the
// state.
func (p *Pinned) Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) {
	return p.Tree.Nth(ctx, n)
}

// A State is what a set held at one cursor: a Tree, and the changes of the log between
// the tree's cursor and this one. A State never changes. Its methods may be called
// concurrently. They block while pages are read. For errors, see Tree.
//
// While a State is used, the root of its Tree must be pinned.
type State struct {
	tree    *Tree
	total   digest.Tally // of all resources
	waiting waiting
	cursor  feed.Cursor
}

// A Part is a range with its tally.
type Part struct {
	Range
	Tally digest.Tally
}

// State returns what the set held at the cursor of the tree.
func (t *Tree) State() *State {
	return &State{tree: t, total: t.root.Tally, cursor: t.root.Cursor}
}

// Bytes returns about how much memory the state takes, without the changes that it shares
// with its Overlay and with other states.
func (s *State) Bytes() int { return 8*len(s.waiting.changes) + 80*len(s.waiting.sums) }

// Cursor returns the cursor that the state is at.
func (s *State) Cursor() feed.Cursor { return s.cursor }

// Tally returns the tally of a range. It is exact.
func (s *State) Tally(ctx context.Context, r Range) (digest.Tally, error) {
	return s.Meter().Tally(ctx, r)
}

// Get returns the newest change of a resource, if the resource exists.
func (s *State) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	if c := s.waiting.get(loc); c != nil {
		if c.gone {
			return feed.Entry{}, false, nil
		}
		return *c.entry(), true, nil
	}
	return s.tree.Get(ctx, loc)
}

// Find looks up locs, which must be ascending. For each one that exists, it calls found with
// its index and its newest change. The calls come in no particular order, and an entry is valid
// only during its call.
func (s *State) Find(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error {
	var rest []string // locs that did not change since the tree
	var at []int
	for i, loc := range locs {
		switch c := s.waiting.get(loc); {
		case c == nil:
			rest, at = append(rest, loc), append(at, i)
		case !c.gone:
			found(i, c.entry())
		}
	}
	return s.tree.Find(ctx, rest, func(i int, e *feed.Entry) { found(at[i], e) })
}

// Walk yields the resources in a range in the order of loc. An entry is valid only
// until the next one is asked for; a copy of it stays valid. An error ends the walk.
func (s *State) Walk(ctx context.Context, r Range) iter.Seq2[*feed.Entry, error] {
	waiting := s.waiting.in(r)
	if len(waiting) == 0 {
		return s.tree.Walk(ctx, r)
	}
	return func(yield func(*feed.Entry, error) bool) {
		rest := waiting
		for e, err := range s.tree.Walk(ctx, r) {
			if err != nil {
				yield(nil, err)
				return
			}
			for ; len(rest) > 0 && rest[0].loc() < e.Change.Loc; rest = rest[1:] {
				if !rest[0].gone && !yield(rest[0].entry(), nil) {
					return
				}
			}
			if len(rest) > 0 && rest[0].loc() == e.Change.Loc {
				continue // the change is newer, and is yielded next
			}
			if !yield(e, nil) {
				return
			}
		}
		for _, c := range rest {
			if !c.gone && !yield(c.entry(), nil) {
				return
			}
		}
	}
}

// splitByWalk is the maximum number of resources that Split reads one by one, from a few pages.
const splitByWalk = 1_024

// Split divides a range into parts of about equal counts: n at most, where n is at least
// 4. Together the parts are the range. If the range has more than one resource, there
// are at least two parts. The boundaries are short texts that separate two neighbours.
func (s *State) Split(ctx context.Context, r Range, n int) ([]Part, error) {
	m := s.Meter()
	t, err := m.Tally(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case t.Count < 2:
		return []Part{{r, t}}, nil
	case t.Count <= splitByWalk:
		return s.splitByWalk(ctx, r, t.Count, n)
	}
	cuts, err := s.cuts(ctx, r, n)
	if err != nil {
		return nil, err
	}
	if len(cuts) == 0 {
		return s.splitByWalk(ctx, r, t.Count, n)
	}
	parts := make([]Part, len(cuts)+1)
	parts[0].From, parts[len(cuts)].To = r.From, r.To
	for i, cut := range cuts {
		cut = strings.Clone(cut) // a part outlives the page
		parts[i].To, parts[i+1].From = cut, cut
	}
	for i := range parts {
		if parts[i].Tally, err = m.Tally(ctx, parts[i].Range); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// splitByWalk splits a range of count resources into equal parts.
func (s *State) splitByWalk(ctx context.Context, r Range, count uint64, n int) ([]Part, error) {
	most := (count + uint64(n) - 1) / uint64(n)
	parts := append(make([]Part, 0, n), Part{Range: r})
	last := ""
	var h digest.Hasher
	for e, err := range s.Walk(ctx, r) {
		if err != nil {
			return nil, err
		}
		p := &parts[len(parts)-1]
		if p.Tally.Count == most {
			p.To = strings.Clone(page.Separator(last, e.Change.Loc)) // a part outlives the page
			parts = append(parts, Part{Range: Range{p.To, r.To}})
			p = &parts[len(parts)-1]
		}
		t := h.Tally(e)
		p.Tally.Add(&t)
		last = e.Change.Loc
	}
	return parts, nil
}

// cuts returns the boundaries at which Split divides a large range. It takes some from
// the tree and some from the changes, in proportion to their counts. So each part has
// at most about twice its share, even if all changes are in one place.
func (s *State) cuts(ctx context.Context, r Range, n int) ([]string, error) {
	t, err := s.tree.Tally(ctx, r)
	if err != nil {
		return nil, err
	}
	waiting := s.waiting.in(r)
	inTree := n
	if len(waiting) > 0 {
		inTree = int(t.Count) * n / (int(t.Count) + len(waiting))
	}
	cuts, err := s.tree.cuts(ctx, r, inTree)
	if err != nil {
		return nil, err
	}
	for i, parts := 1, n-inTree; i < parts; i++ {
		if at := i * len(waiting) / parts; at > 0 {
			cuts = append(cuts, page.Separator(waiting[at-1].loc(), waiting[at].loc()))
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	return slices.DeleteFunc(cuts, func(cut string) bool { return cut <= r.From || r.To != "" && cut >= r.To }), nil
}

// A Meter computes the tallies of neighbouring ranges of a State. It looks up each
// boundary only once. One goroutine at a time may use it.
type Meter struct {
	state *State
	at    string       // the last boundary, or ""
	sum   digest.Tally // of all resources before it
}

// Meter returns a Meter of the state.
func (s *State) Meter() *Meter { return &Meter{state: s} }

// Tally returns the tally of a range. It is exact.
func (m *Meter) Tally(ctx context.Context, r Range) (digest.Tally, error) {
	if r.To != "" && r.To <= r.From {
		return digest.Tally{}, nil
	}
	head, err := m.before(ctx, r.From)
	if err != nil {
		return digest.Tally{}, err
	}
	t := m.state.total
	if r.To != "" {
		if t, err = m.before(ctx, r.To); err != nil {
			return digest.Tally{}, err
		}
	}
	t.Sub(&head)
	return t, nil
}

func (m *Meter) before(ctx context.Context, loc string) (digest.Tally, error) {
	if loc == "" {
		return digest.Tally{}, nil
	}
	if loc != m.at {
		t, err := m.state.tree.Tally(ctx, Range{To: loc})
		if err != nil {
			return digest.Tally{}, err
		}
		delta := m.state.waiting.before(loc)
		t.Add(&delta)
		m.at, m.sum = loc, t
	}
	return m.sum, nil
}
