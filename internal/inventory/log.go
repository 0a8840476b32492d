package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Knows reports whether the log of a set holds a cursor, or has it as its floor. The zero cursor is known if the
// log starts at position 0. Knows returns false for a cursor before the floor, because it cannot be verified.
func Knows(ctx context.Context, log interface {
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}, set string, at feed.Cursor) (bool, error) {
	has, err := log.At(ctx, set, at.Position)
	if errors.Is(err, resourcesync.ErrInvalid) || errors.Is(err, feed.ErrGone) { // after the head, or before the floor
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("set %q: read log at %v: %w", set, at, err)
	}
	return has == at || at.IsZero(), nil
}
