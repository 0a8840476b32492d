package live

import (
	"context"

	"github.com/rshub/rshub/inventory"
)

// A Held is what a set held at one cursor, for a reader. Many readers may share it, and
// all its methods may be called concurrently. The pages of its root stay until Release,
// but no longer than an hour; then reading returns feed.ErrGone. If a reader finds
// damage, the maker repairs the inventory.
type Held struct {
	*inventory.State
	Begin    int64 // when the set's log began, in microseconds since 1970
	Complete bool  // the hub knew all resources as of the cursor

	tree    *inventory.Tree
	release func()
}

// Tree returns the root behind the state. For Baseline, BaselineAt and ResourceList the
// state is exactly the root.
func (h *Held) Tree() *inventory.Tree { return h.tree }

// Nth returns the loc of the resource with n resources before it in the root behind the
// state.
func (h *Held) Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) {
	return h.tree.Nth(ctx, n)
}

// Release ends the reading. It may be called again.
func (h *Held) Release() { h.release() }
