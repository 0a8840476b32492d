package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
)

// waitFor is how long retention waits for an inventory that makes no progress.
const waitFor = 24 * time.Hour

// Unread returns the cursor that retention must not pass in a set, because the inventory
// has not read the log further. ok is false if retention need not wait: the set has no
// inventory, the inventory has made no progress for a day, the store has little room, or
// none of this can be read.
func (l *Live) Unread(ctx context.Context, set string) (at feed.Cursor, ok bool) {
	at, err := l.unread(ctx, set)
	if err == nil {
		return at, true
	}
	if errors.Is(err, errStuck) || errors.Is(err, errScarce) {
		l.metrics.unheld.Inc()
		say := func() {
			l.logger.Error("retention no longer waits for an inventory", "set", set, "why", err.Error())
		}
		if errors.Is(err, errScarce) { // that is so of all sets that are behind, each time
			l.scarce.Do(say)
		} else {
			say()
		}
	} else if !errors.Is(err, feed.ErrNoInventory) && !errors.Is(err, feed.ErrNoSet) && ctx.Err() == nil {
		l.logger.Warn("check whether retention must wait for an inventory failed", "set", set, "err", err)
	}
	return feed.Cursor{}, false
}

var (
	errStuck  = errors.New("the inventory has made no progress for a day")
	errScarce = errors.New("the store is nearly full")
)

func (l *Live) unread(ctx context.Context, set string) (feed.Cursor, error) {
	rec, head, err := load(ctx, l.inventory(set))
	if err != nil {
		return feed.Cursor{}, err
	}
	root := head.Newest()
	if root.Cursor.Position >= rec.Log.Head.Position {
		return root.Cursor, nil
	}
	if l.opts.Scarce(ctx) {
		return feed.Cursor{}, errScarce
	}
	stuck := max(root.Made, l.started.UnixMicro())
	first, err := l.log.Since(ctx, set, root.Cursor, 1)
	switch {
	case errors.Is(err, feed.ErrGone): // retention has already passed it; keep what the log has now
	case err != nil:
		return feed.Cursor{}, fmt.Errorf("read changes after the inventory: %w", err)
	case len(first.Entries) > 0:
		stuck = max(stuck, first.Entries[0].Micros)
	}
	if rec.Now-stuck > waitFor.Microseconds() {
		return feed.Cursor{}, errStuck
	}
	return root.Cursor, nil
}
