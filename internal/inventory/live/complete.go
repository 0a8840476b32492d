package live

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// completeTries is how often Complete tries, if the log changes meanwhile.
const completeTries = 5

// Complete notes whether the hub knows all resources of a set, as of the head of its log.
// The note is durable when Complete returns nil. Errors are feed.ErrNoInventory and
// feed.ErrNoSet.
func (l *Live) Complete(ctx context.Context, set string, complete bool) error {
	v := l.inventory(set)
	for try := 1; ; try++ {
		rec, _, err := load(ctx, v)
		if err != nil {
			return err
		}
		at, why := rec.Log.Head, ""
		if !complete {
			at, why = feed.Cursor{}, "declared by a publisher"
		}
		err = v.SetComplete(ctx, at, why)
		if errors.Is(err, inventory.ErrLog) && try < completeTries {
			continue // the set was made anew, or its log lost entries
		}
		if err != nil {
			return fmt.Errorf("set %q: set complete: %w", set, err)
		}
		l.maker.ask(set, false) // so that a Resource List is made soon
		return nil
	}
}

// complete reports whether the hub knew all resources at the cursor at, which is not
// before a root's. The root itself was checked against the log when it was made.
func (l *Live) complete(ctx context.Context, set string, head *inventory.Head, root inventory.Root, at feed.Cursor) (bool, error) {
	if !head.IsComplete(at) || head.Complete.Position <= root.Cursor.Position {
		return head.IsComplete(at), nil
	}
	return l.knows(ctx, set, head.Complete)
}
