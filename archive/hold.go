package archive

import (
	"context"
	"errors"

	"github.com/rshub/rshub/feed"
)

// Hold returns the cursor that retention must not pass in a set, because what follows is not in
// the archive. ok is false if retention need not wait: the set wants no archive, or the change
// memory has little room left. Then the archive will have a hole, which the log names. While
// the place cannot be read, retention removes nothing.
func (a *Archive) Hold(ctx context.Context, set string) (at feed.Cursor, ok bool) {
	st, rec, err := a.view(ctx, set)
	switch {
	case errors.Is(err, feed.ErrNoSet), err == nil && !st.Archives:
		return feed.Cursor{}, false
	case err == nil && rec.next() > 0:
		at = rec.Lists[len(rec.Lists)-1].At
	default:
		at = st.Floor
	}
	if err != nil && ctx.Err() == nil {
		a.opts.Logger.Warn("retention waits, because it is unknown what the archive of a set has", "set", set, "err", err)
	}
	if _, open := st.Lists(); err == nil && rec.next() >= open || !a.opts.Scarce(ctx) {
		return at, true
	}
	a.metrics.unheld.Inc()
	a.opts.Logger.Error("retention does not wait for the archive of a set: the change memory has little room left", "set", set)
	return feed.Cursor{}, false
}
