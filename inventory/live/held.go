package live

import "github.com/rshub/rshub/inventory"

// A Held is what a set held at one cursor, for a reader. Many readers may share it,
// and all its methods may be called concurrently. The pages of its root stay until Release,
// but no longer than an hour; then reading returns feed.ErrGone.
type Held struct {
	*inventory.State
	Begin    int64 // when the set's log began, in microseconds since 1970
	Complete bool  // the hub knew all resources as of the cursor
	tree     *inventory.Tree
	release  func()
}

// Tree returns the root behind the state, for Rank and Nth. With Baseline, BaselineAt and
// ResourceList the state is the root and nothing else.
func (h *Held) Tree() *inventory.Tree { return h.tree }

// Release says that the reader has finished. Only the first call does anything.
func (h *Held) Release() { h.release() }
