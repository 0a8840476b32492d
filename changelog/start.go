package changelog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A StartFinder finds the starting cursor of a follower.
type StartFinder struct {
	Log interface {
		State(ctx context.Context, set string) (feed.State, error)
		Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
		Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	}
	Parameter string                // name of the client's parameter, for errors
	Waits     func(set string) bool // reports whether a client may follow a set before it exists
	Now       func() time.Time
	ClockSkew time.Duration // tolerance for datetimes in the future
}

// Find returns the starting cursor for since: a cursor, a datetime, "start" or "now". Empty means
// "now". A datetime is inclusive: a change with exactly that datetime follows.
//
// The result is a batch without entries, whose Cursor is the one to continue after. The batch is
// Diverged if the log lost entries before the client's cursor. Find returns feed.ErrNoSet,
// feed.ErrGone, or a *resourcesync.Error with ErrInvalid if since is invalid or in the future.
func (s *StartFinder) Find(ctx context.Context, set, since string) (*feed.Batch, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	state, err := s.Log.State(ctx, set)
	made := err == nil
	if !made && !(errors.Is(err, feed.ErrNoSet) && s.Waits(set)) {
		return nil, err
	}
	return s.FindIn(ctx, set, state, made, since)
}

// FindIn is like Find for a set in a state that the caller has read. made reports whether the set
// exists; otherwise the state is ignored, and the client may follow the set anyway.
func (s *StartFinder) FindIn(ctx context.Context, set string, state feed.State, made bool, since string) (*feed.Batch, error) {
	if !made {
		state = feed.State{}
	}
	var err error
	cur := state.Head // zero in a set that does not exist yet, so that all its changes follow
	switch since {
	case "", "now":
	case "start":
		cur = state.Floor
	default:
		// A plus that was not escaped in a query arrives as a space. A month such as 2026-01
		// is a datetime, not a cursor.
		t, terr := resourcesync.ParseTime(strings.ReplaceAll(since, " ", "+"))
		asked, cerr := feed.ParseCursor(since)
		switch {
		case terr == nil && Future(t, state.Head, s.Now(), s.ClockSkew):
			return nil, resourcesync.Invalidf("%s=%s is in the future", s.Parameter, resourcesync.Shorten(since))
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
			return nil, resourcesync.Invalidf("%s: got %q, want a cursor (position-microseconds), a datetime (2026-01-31T12:00:00Z), start or now", s.Parameter, resourcesync.Shorten(since))
		}
	}
	return &feed.Batch{Set: set, After: cur, Cursor: cur}, nil
}

// Future reports whether a client's datetime t is in the future: later than now by more than skew,
// and later than the newest entry, head. (The datetimes of a log may run ahead of the clock, so
// the head's datetime is not in the future.)
func Future(t time.Time, head feed.Cursor, now time.Time, skew time.Duration) bool {
	return t.After(now.Add(skew)) && t.UnixMicro() > head.Micros
}
