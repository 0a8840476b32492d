package inventory

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
)

// MaxRoots is how many roots of a set live. If more are needed, the oldest that is
// pinned dies.
const MaxRoots = 4

// Pin keeps a root for a holder, for as long as lasts, and returns the root. It prolongs a
// pin that the holder has, and never shortens it. upto identifies the root, 0 is the
// newest. If the root lives no more, Pin returns feed.ErrGone. An inventory without a root
// has nothing to pin: Pin returns the zero Root, which can be read.
func (v *Inventory) Pin(ctx context.Context, upto uint64, holder string, lasts time.Duration) (Root, error) {
	panic("being written")
}

// Unpin takes a holder's pin away. No pin is no error.
func (v *Inventory) Unpin(ctx context.Context, upto uint64, holder string) error {
	panic("being written")
}

// List marks a root as that of a Resource List, of a time in microseconds since 1970. It
// lives until two newer ones are marked. feed.ErrGone if the root lives no more.
func (v *Inventory) List(ctx context.Context, upto uint64, at int64) error { panic("being written") }

// SetComplete says as of which cursor the hub knows all resources; the zero Cursor: it
// does not, because of why. The log has to hold the cursor, else it is ErrLog. When
// SetComplete returns nil, a crash of the machine does not undo it.
func (v *Inventory) SetComplete(ctx context.Context, at feed.Cursor, why string) error {
	panic("being written")
}

// Shrink drops the roots that nobody needs: that are not the newest, not pinned, and not
// one of the two newest of a Resource List; and the oldest pinned ones beyond MaxRoots.
// It removes the pages that died with them. Commit does the same.
func (v *Inventory) Shrink(ctx context.Context) error { panic("being written") }
