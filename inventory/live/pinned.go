package live

import (
	"context"

	"github.com/rshub/rshub/inventory"
)

// A Pinned is what a set held at one cursor, for a reader. Many readers may share its
// state, and all its methods may be called concurrently. The pages of its root stay until
// Release, but no longer than an hour; then reading returns feed.ErrGone. If a reader
// finds damage, the maker repairs the inventory.
type Pinned struct {
	inventory.Pinned
	Begin int64 // when the set's log began, in microseconds since 1970

	tree *inventory.Tree
}

// Tree returns the root behind the state. For Baseline, BaselineAt and ResourceList the
// state is exactly the root.
func (p *Pinned) Tree() *inventory.Tree { return p.tree }

// Nth returns the loc of the resource with n resources before it in the root behind the
// state.
func (p *Pinned) Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) {
	return p.tree.Nth(ctx, n)
}
