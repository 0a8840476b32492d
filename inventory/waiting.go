package inventory

import (
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/inventory/digest"
)

// A change is the newest change of its loc after a Tree. It is immutable once it is
// in a waiting.
type change struct {
	loc   string
	at    feed.Cursor
	text  string       // the rest of the resourcesync.Change, packed
	gone  bool         // it is a deletion
	had   bool         // the tree has a resource of this loc
	delta digest.Tally // what the change adds to the tree's tally
}

// changeBytes is about what a change takes in memory besides its text, with its share
// of the node.
const changeBytes = 192

// newChange returns the change of an entry. before is the tally of the resource that the
// tree has at this loc; zero if there is none.
func newChange(e *feed.Entry, before *digest.Tally) *change {
	c := &change{at: e.Cursor, gone: !Exists(e), had: before.Count > 0}
	rest := e.Change
	rest.Loc = ""
	b := packed.AppendChange([]byte(e.Change.Loc), &rest)
	both := string(b)
	c.loc, c.text = both[:len(e.Change.Loc)], both[len(e.Change.Loc):]
	if !c.gone {
		c.delta = digest.TallyOf(e)
	}
	c.delta.Sub(before)
	return c
}

// before returns the tally of the resource that the tree has at the loc.
func (c *change) before() (t digest.Tally) {
	if !c.had {
		return t
	}
	if !c.gone {
		t = digest.TallyOf(c.entry())
	}
	t.Sub(&c.delta)
	return t
}

func (c *change) entry() *feed.Entry {
	e := &feed.Entry{Cursor: c.at}
	packed.NewReader(c.text).Change(&e.Change)
	e.Change.Loc = c.loc
	return e
}

func (c *change) bytes() int { return changeBytes + len(c.loc) + len(c.text) }

// A waiting is an ordered map of changes by loc, a B-tree. Each node knows how many
// changes lie below it, and the sum of their deltas. So the cost of a range's tally
// grows only with the height of the tree.
//
// A copy of the struct is a snapshot, if freeze was called before. It may be read
// while the original is edited, even concurrently.
type waiting struct {
	root  *waitNode
	edit  *waitEdit // whose nodes may be changed in place
	bytes int
}

// A waitEdit stands for the time between two snapshots. Its address identifies it,
// so its size must not be zero.
type waitEdit struct{ _ byte }

type waitNode struct {
	edit    *waitEdit
	n       int          // changes in the node and below
	sum     digest.Tally // of their deltas
	changes []*change
	below   []*waitNode // one more than changes; none in a leaf
}

// waitFull is how many changes a node has at most.
const waitFull = 63

// freeze makes all nodes unchangeable, so that a copy of w is a snapshot.
func (w *waiting) freeze() { w.edit = new(waitEdit) }

func (w *waiting) len() int {
	if w.root == nil {
		return 0
	}
	return w.root.n
}

// find returns the index of the first change that is not before loc, and whether it is
// of loc.
func (n *waitNode) find(loc string) (int, bool) {
	return sort.Find(len(n.changes), func(i int) int { return strings.Compare(loc, n.changes[i].loc) })
}

// get returns the change of a loc, or nil.
func (w *waiting) get(loc string) *change {
	for n := w.root; n != nil; {
		i, ok := n.find(loc)
		if ok {
			return n.changes[i]
		}
		if n.below == nil {
			return nil
		}
		n = n.below[i]
	}
	return nil
}

// set adds a change, or replaces old, the change of the same loc. old is the
// result of get.
func (w *waiting) set(c, old *change) {
	delta, more := c.delta, 1
	w.bytes += c.bytes()
	if old != nil {
		delta.Sub(&old.delta)
		more = 0
		w.bytes -= old.bytes()
	}
	if w.root == nil {
		w.root = &waitNode{edit: w.edit}
	}
	w.root = w.own(w.root)
	if len(w.root.changes) == waitFull {
		w.root = &waitNode{edit: w.edit, n: w.root.n, sum: w.root.sum, below: []*waitNode{w.root}}
		w.split(w.root, 0)
	}
	for n := w.root; ; {
		n.n += more
		n.sum.Add(&delta)
		i, ok := n.find(c.loc)
		if ok {
			n.changes[i] = c
			return
		}
		if n.below == nil {
			n.changes = slices.Insert(n.changes, i, c)
			return
		}
		n.below[i] = w.own(n.below[i])
		if len(n.below[i].changes) == waitFull {
			w.split(n, i)
			switch strings.Compare(c.loc, n.changes[i].loc) {
			case 0:
				n.changes[i] = c
				return
			case 1:
				i++
			}
		}
		n = n.below[i]
	}
}

// own returns a node that may be changed in place: n or a copy of it.
func (w *waiting) own(n *waitNode) *waitNode {
	if n.edit == w.edit {
		return n
	}
	c := &waitNode{edit: w.edit, n: n.n, sum: n.sum}
	c.changes = append(make([]*change, 0, waitFull), n.changes...)
	if n.below != nil {
		c.below = append(make([]*waitNode, 0, waitFull+1), n.below...)
	}
	return c
}

// split divides the full child i of n. Both may be changed in place.
func (w *waiting) split(n *waitNode, i int) {
	left := n.below[i]
	half := waitFull / 2
	middle := left.changes[half]
	right := &waitNode{edit: w.edit, changes: append(make([]*change, 0, waitFull), left.changes[half+1:]...)}
	if left.below != nil {
		right.below = append(make([]*waitNode, 0, waitFull+1), left.below[half+1:]...)
		clear(left.below[half+1:])
		left.below = left.below[:half+1]
	}
	clear(left.changes[half:])
	left.changes = left.changes[:half]
	right.count()
	left.n -= right.n + 1
	left.sum.Sub(&right.sum)
	left.sum.Sub(&middle.delta)
	n.changes = slices.Insert(n.changes, i, middle)
	n.below = slices.Insert(n.below, i+1, right)
}

// count sets n and sum from what is in the node and in its children.
func (n *waitNode) count() {
	n.n, n.sum = len(n.changes), digest.Tally{}
	for _, c := range n.changes {
		n.sum.Add(&c.delta)
	}
	for _, b := range n.below {
		n.n += b.n
		n.sum.Add(&b.sum)
	}
}

// before returns how many changes come before a loc, and the sum of their deltas.
func (w *waiting) before(loc string) (count int, sum digest.Tally) {
	for n := w.root; n != nil; {
		i, ok := n.find(loc)
		for _, c := range n.changes[:i] {
			sum.Add(&c.delta)
		}
		count += i
		if n.below == nil {
			return count, sum
		}
		for _, b := range n.below[:i] {
			count += b.n
			sum.Add(&b.sum)
		}
		if ok {
			sum.Add(&n.below[i].sum)
			return count + n.below[i].n, sum
		}
		n = n.below[i]
	}
	return count, sum
}

// within returns how many changes come before the range, how many are in it, and the
// sum of the deltas of these.
func (w *waiting) within(r Range) (before, count int, sum digest.Tally) {
	if w.root == nil {
		return 0, 0, sum
	}
	count, sum = w.root.n, w.root.sum
	if r.To != "" {
		count, sum = w.before(r.To)
	}
	if r.From != "" {
		var head digest.Tally
		before, head = w.before(r.From)
		count -= before
		sum.Sub(&head)
	}
	return before, count, sum
}

// nth returns the change with i changes before it. There is one.
func (w *waiting) nth(i int) *change {
	n := w.root
next:
	for n.below != nil {
		for k, b := range n.below {
			if i < b.n {
				n = b
				continue next
			}
			i -= b.n
			if i == 0 {
				return n.changes[k]
			}
			i--
		}
	}
	return n.changes[i]
}

// walk yields the changes of a range in order.
func (w *waiting) walk(r Range) iter.Seq[*change] {
	return func(yield func(*change) bool) {
		if w.root != nil {
			w.root.walk(r, yield)
		}
	}
}

// walk returns false when there is nothing more to yield.
func (n *waitNode) walk(r Range, yield func(*change) bool) bool {
	i, _ := n.find(r.From)
	for ; i <= len(n.changes); i++ {
		if n.below != nil && !n.below[i].walk(r, yield) {
			return false
		}
		if i < len(n.changes) && (!r.Has(n.changes[i].loc) || !yield(n.changes[i])) {
			return false
		}
	}
	return true
}
