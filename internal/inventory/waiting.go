package inventory

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/packed"
)

// A change is the newest change of its loc that waits for a commit. It is immutable once it is in a waiting.
type change struct {
	at     feed.Cursor
	text   string  // the loc, and then the rest of the resourcesync.Change, packed
	locLen uint32  // of the loc in text
	gone   bool    // it is a deletion
	effect *effect // on the tree, or nil if unknown
}

// An effect is what a change does to a Tree.
type effect struct {
	had   bool         // the tree has a resource of this loc
	delta digest.Tally // what the change adds to the tree's tally
}

// Approximate memory of changes.
const (
	changeBytes = 90  // of a change besides its text and effect, with its places in a waiting and in a map
	effectBytes = 100 // of an effect
)

// newChange returns the change of an entry, without its effect.
func newChange(e *feed.Entry) *change {
	rest := e.Change
	rest.Loc = ""
	b := packed.AppendChange(append(make([]byte, 0, 512), e.Change.Loc...), &rest)
	return &change{at: e.Cursor, text: string(b), locLen: uint32(len(e.Change.Loc)), gone: !Exists(e)}
}

// onto sets the effect of a change on a tree. before is the tally of the resource that the tree has at the loc,
// or zero.
func (c *change) onto(before *digest.Tally) {
	c.effect = &effect{had: before.Count > 0}
	if !c.gone {
		c.effect.delta = digest.TallyOf(c.entry())
	}
	c.effect.delta.Sub(before)
}

// before returns the tally of the resource that the tree has at the loc, or zero.
func (c *change) before() (t digest.Tally) {
	if !c.effect.had {
		return t
	}
	if !c.gone {
		t = digest.TallyOf(c.entry())
	}
	t.Sub(&c.effect.delta)
	return t
}

func (c *change) loc() string { return c.text[:c.locLen] }

func (c *change) entry() *feed.Entry {
	e := new(feed.Entry)
	c.into(e)
	return e
}

// into sets e to the entry of the change.
func (c *change) into(e *feed.Entry) {
	*e = feed.Entry{Cursor: c.at}
	packed.NewReader(c.text[c.locLen:]).Change(&e.Change)
	e.Change.Loc = c.loc()
}

func (c *change) bytes() int {
	n := changeBytes + len(c.text)
	if c.effect != nil {
		n += effectBytes
	}
	return n
}

// A waiting is changes to be merged into a tree, ascending by loc, one for each loc. It is immutable, so a copy
// of it is a snapshot.
type waiting struct {
	changes []*change
	sums    []digest.Tally // of the deltas of all changes before every sumStep-th, and of all; nil if the effects are unknown
	bytes   int            // about the memory of the changes
}

// sumStep is the number of changes in a sum. It bounds the cost of the tally of a range.
const sumStep = 64

// byLoc returns the changes of a map, ascending by loc.
func byLoc(newest map[string]*change) []*change {
	type keyed struct {
		*change
		key uint64 // the first bytes of the loc after those that all locs begin with, to sort by
	}
	order := make([]keyed, 0, len(newest))
	first, shared := "", -1 // bytes that all locs begin with
	for loc, c := range newest {
		order = append(order, keyed{change: c})
		if shared < 0 {
			first, shared = loc, len(loc)
		}
		for shared = min(shared, len(loc)); loc[:shared] != first[:shared]; shared-- {
		}
	}
	for i := range order {
		var head [8]byte
		copy(head[:], order[i].loc()[shared:])
		order[i].key = binary.BigEndian.Uint64(head[:])
	}
	slices.SortFunc(order, func(x, y keyed) int {
		if x.key != y.key { // the usual case, which needs no access to the locs
			return cmp.Compare(x.key, y.key)
		}
		return strings.Compare(x.loc(), y.loc())
	})
	changes := make([]*change, len(order))
	for i := range order {
		changes[i] = order[i].change
	}
	return changes
}

// with returns w with more changes, which are ascending by loc and have effects. They replace changes of the
// same locs. The cost grows with the number of all changes, so add as many as possible at a time.
func (w *waiting) with(more []*change) waiting {
	if len(more) == 0 {
		return *w
	}
	n := waiting{changes: make([]*change, 0, len(w.changes)+len(more)), bytes: w.bytes}
	rest := w.changes
	for _, c := range more {
		i, ok := find(rest, c.loc())
		n.changes = append(append(n.changes, rest[:i]...), c)
		n.bytes += c.bytes()
		if ok {
			n.bytes -= rest[i].bytes()
			i++
		}
		rest = rest[i:]
	}
	n.changes = append(n.changes, rest...)
	n.sums = make([]digest.Tally, 0, len(n.changes)/sumStep+2)
	var sum digest.Tally
	for i, c := range n.changes {
		if i%sumStep == 0 {
			n.sums = append(n.sums, sum)
		}
		sum.Add(&c.effect.delta)
	}
	n.sums = append(n.sums, sum)
	return n
}

// find returns the index of the first change that is not before loc, and whether it is of loc.
func find(changes []*change, loc string) (int, bool) {
	return sort.Find(len(changes), func(i int) int { return strings.Compare(loc, changes[i].loc()) })
}

// get returns the change of a loc, or nil.
func (w *waiting) get(loc string) *change {
	if i, ok := find(w.changes, loc); ok {
		return w.changes[i]
	}
	return nil
}

// sum returns the sum of all deltas.
func (w *waiting) sum() (t digest.Tally) {
	if n := len(w.sums); n > 0 {
		t = w.sums[n-1]
	}
	return t
}

// before returns the sum of the deltas of the changes before a loc.
func (w *waiting) before(loc string) (sum digest.Tally) {
	i, _ := find(w.changes, loc)
	if i == len(w.changes) {
		return w.sum()
	}
	from := i / sumStep
	sum = w.sums[from]
	for _, c := range w.changes[from*sumStep : i] {
		sum.Add(&c.effect.delta)
	}
	return sum
}

// in returns the changes of a range.
func (w *waiting) in(r Range) []*change {
	from, _ := find(w.changes, r.From)
	to := len(w.changes)
	if r.To != "" {
		to, _ = find(w.changes, r.To)
	}
	return w.changes[from:max(from, to)]
}
