package inventory

import (
	"context"
	"iter"

	"github.com/rshub/rshub/feed"
)

// Changes are what one commit adds to an inventory.
type Changes struct {
	Base   Root                  // what the changes come on top of: the newest root
	Anew   bool                  // the new root holds nothing of Base
	To     feed.Cursor           // the cursor of the new root
	Sorted iter.Seq[*feed.Entry] // ascending by loc, the newest entry of each loc, deletions too; an entry is read only until the next one is asked for
	Err    func() error          // asked when Sorted has ended: why it ended early; may be nil

	Complete *feed.Cursor // what Head.Complete becomes; nil: it stays
	Why      string       // with Complete: what Head.Why becomes
}

// Commit makes the newest root from Base and changes, and drops the roots that nobody
// needs any more (see Shrink). It returns ErrRaced if Base is not the newest root, or if
// another committer was quicker, and ErrLog if the log does not hold the cursor To or is
// another than that of Base. If it returns an error, the newest root is what it was;
// after feed.ErrUnknown it may be the new one. The pages that a commit which failed has
// written are removed by the next.
func (v *Inventory) Commit(ctx context.Context, c Changes) (Root, error) { panic("being written") }

// Forget makes a root without the resources that changed behind a cursor, for a log that
// has lost its tail: to is the newest cursor that the log and the root Base have in
// common. The inventory is not complete any more, because of why.
func (v *Inventory) Forget(ctx context.Context, base Root, to feed.Cursor, why string) (Root, error) {
	panic("being written")
}

// Reset drops all roots, pinned or not, and removes all pages: for an inventory that is
// damaged, and for one that is filled from elsewhere. It is not complete any more,
// because of why.
func (v *Inventory) Reset(ctx context.Context, why string) error { panic("being written") }
