package inventory

import (
	"context"
	"iter"

	"github.com/rshub/rshub/feed"
)

// A Tree reads one root of an inventory. Its methods may be called concurrently. They
// return feed.ErrGone if the root lives no more, and ErrDamaged, which names the page, if
// a page is missing or is not what was written.
//
// The entries that a Tree returns are shared, so nobody may change what they point to.
// Their strings keep the text of a page in memory; clone what is kept for long.
type Tree struct {
	v    *Inventory
	root Root
}

// Root returns the root that the tree reads.
func (t *Tree) Root() Root { return t.root }

// Get returns the newest change of a resource, if the resource exists.
func (t *Tree) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	panic("being written")
}

// Find looks up many resources: it calls found for each of locs that exists, with its
// index and its newest change, which is read only until found returns. locs are in
// ascending order. Find reads each page once, and many pages at a time.
func (t *Tree) Find(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error {
	panic("being written")
}

// Walk yields the resources in a range in the order of loc. It reads some pages ahead, and
// holds no more than these. An entry is to be read only until the next one is asked for; a
// copy of it stays good. An error ends the walk.
func (t *Tree) Walk(ctx context.Context, r Range) iter.Seq2[*feed.Entry, error] {
	panic("being written")
}

// Newer yields the resources whose newest change lies behind a position, in the order of
// loc, as Walk does. It reads only pages that hold some.
func (t *Tree) Newer(ctx context.Context, position uint64) iter.Seq2[*feed.Entry, error] {
	panic("being written")
}

// Rank returns how many resources come before a loc.
func (t *Tree) Rank(ctx context.Context, loc string) (uint64, error) { panic("being written") }

// Nth returns the loc of the resource before which n others come. ok is false if there
// are not so many.
func (t *Tree) Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) {
	panic("being written")
}

// Tally returns the tally of a range. It reads only the pages at its two ends.
func (t *Tree) Tally(ctx context.Context, r Range) (Tally, error) { panic("being written") }

// Cost returns about how many bytes a commit of changes of these resources writes: the
// pages that hold them, and those above. locs are ascending. It reads inner pages only.
func (t *Tree) Cost(ctx context.Context, locs iter.Seq[string]) (bytes uint64, err error) {
	panic("being written")
}

// Pages yields all pages of the tree as they are stored, to copy them. The bytes of a page
// are to be read only until the next one is asked for. An error ends it.
func (t *Tree) Pages(ctx context.Context) iter.Seq2[Page, error] { panic("being written") }
