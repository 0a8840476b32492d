package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// maxHold is how long retention waits for an inventory that makes no progress.
const maxHold = 24 * time.Hour

var (
	errStuck  = errors.New("the inventory has made no progress for a day")
	errScarce = errors.New("the store is nearly full")
)

// Unread returns the cursor that retention must not pass in a set, because the inventory has not read the log
// further. ok is false if retention need not wait: the set has no inventory, the inventory has made no
// progress for a day, the store is nearly full, or this cannot be determined.
func (w *Writer) Unread(ctx context.Context, set string) (at feed.Cursor, ok bool) {
	at, err := w.unread(ctx, set)
	stuck, scarce := errors.Is(err, errStuck), errors.Is(err, errScarce)
	report := func() {
		w.logger.Error("retention no longer waits for an inventory", "set", set, "why", err.Error())
	}
	if stuck || scarce {
		w.metrics.unheld.Inc()
	}
	switch {
	case err == nil:
		return at, true
	case stuck:
		report()
	case scarce: // repeated for all sets with unread changes
		w.scarceLog.Do(report)
	case !errors.Is(err, feed.ErrNoInventory) && !errors.Is(err, feed.ErrNoSet) && ctx.Err() == nil:
		w.logger.Warn("check whether retention must wait for an inventory failed", "set", set, "err", err)
	}
	return feed.Cursor{}, false
}

func (w *Writer) unread(ctx context.Context, set string) (feed.Cursor, error) {
	inv := inventory.New(w.store, set, inventory.Options{Cache: w.opts.Cache, Damaged: func(error) { w.Request(set, true) }})
	rec, head, err := inv.Load(ctx)
	if err != nil {
		return feed.Cursor{}, err
	}
	root := head.Newest()
	switch {
	case rec.Log.NoInventory:
		return feed.Cursor{}, feed.ErrNoInventory
	case root.Cursor.Position >= rec.Log.Head.Position:
		return root.Cursor, nil
	case w.opts.Scarce != nil && w.opts.Scarce(ctx):
		return feed.Cursor{}, errScarce
	}
	progress := max(root.Made, w.started.UnixMicro())
	first, err := w.log.Since(ctx, set, root.Cursor, 1)
	switch {
	case errors.Is(err, feed.ErrGone): // retention has passed the cursor already; keep the rest of the log
	case err != nil:
		return feed.Cursor{}, fmt.Errorf("read changes after the inventory: %w", err)
	case len(first.Entries) > 0:
		progress = max(progress, first.Entries[0].Micros)
	}
	if rec.Now-progress > maxHold.Microseconds() {
		return feed.Cursor{}, errStuck
	}
	return root.Cursor, nil
}
