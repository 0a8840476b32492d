package changelog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Start finds where a follower begins.
type Start struct {
	Log interface {
		State(ctx context.Context, set string) (feed.State, error)
		Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
		Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	}
	Parameter string                // the client's name for the parameter, for errors
	Waits     func(set string) bool // whether a client may follow a set before it exists
	Now       func() time.Time
	ClockSkew time.Duration // by how much a datetime may lie in the future
}

// Find returns where to begin for a client that asks for since: a cursor, a
// datetime, "start" or "now". Empty means "now". A datetime is inclusive: a change
// with exactly that datetime follows.
//
// The answer is a batch without entries; its Cursor is the one to go on after.
// The batch is Diverged when the log has lost entries before the client's
// cursor. Find returns feed.ErrNoSet, feed.ErrGone, or a *resourcesync.Error
// with ErrInvalid when since is none of these or lies in the future.
func (s *Start) Find(ctx context.Context, set, since string) (*feed.Batch, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	state, err := s.Log.State(ctx, set)
	made := err == nil
	if !made && !(errors.Is(err, feed.ErrNoSet) && s.Waits(set)) {
		return nil, err
	}
	cur := state.Head // zero in a set that does not exist yet, so that all its changes follow
	switch since {
	case "", "now":
	case "start":
		cur = state.Floor
	default:
		// A plus that was not escaped in a query arrives as a space. A month,
		// 2026-01, is a datetime and no cursor.
		t, terr := resourcesync.ParseTime(strings.ReplaceAll(since, " ", "+"))
		asked, cerr := feed.ParseCursor(since)
		switch {
		case terr == nil && Future(t, state.Head, s.Now(), s.ClockSkew):
			return nil, resourcesync.Invalid("%s=%s lies in the future", s.Parameter, resourcesync.Shorten(since))
		case terr == nil && made:
			if cur, err = s.Log.Seek(ctx, set, t.UnixMicro()); err != nil {
				return nil, err
			}
		case terr == nil:
		case cerr == nil:
			b, err := s.Log.Since(ctx, set, asked, 1)
			if err != nil {
				return nil, err
			}
			return &feed.Batch{Set: set, After: b.After, Cursor: b.After, Diverged: b.Diverged}, nil
		default:
			return nil, resourcesync.Invalid("%s=%s: %s is a cursor (position-microseconds), a datetime (2026-01-31T12:00:00Z), start or now", s.Parameter, resourcesync.Shorten(since), s.Parameter)
		}
	}
	return &feed.Batch{Set: set, After: cur, Cursor: cur}, nil
}

// Future reports whether a client's datetime t lies in the future: it is later
// than now by more than skew, and later than the newest entry, head. (The
// datetimes of a log may run ahead of the clock, so the head's datetime is no
// future.)
func Future(t time.Time, head feed.Cursor, now time.Time, skew time.Duration) bool {
	return t.After(now.Add(skew)) && t.UnixMicro() > head.Micros
}
