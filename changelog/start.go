package changelog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Start finds where a follower begins.
type Start struct {
	Log interface {
		State(ctx context.Context, set string) (State, error)
		Since(ctx context.Context, set string, after Cursor, limit int) (*Batch, error)
		Seek(ctx context.Context, set string, micros int64) (Cursor, error)
	}
	Parameter string                // what the client calls it, for errors
	Waits     func(set string) bool // whether a set that is not made can be followed
	Now       func() time.Time
	ClockSkew time.Duration // by how much a datetime may lie in the future
}

// Find returns the place that a client means by a cursor, a datetime (which is
// inclusive), "start" or "now", which empty means too: a batch without entries,
// Diverged where the log has lost its tail since the cursor. ErrNoSet, ErrGone,
// or a *resourcesync.Error with ErrInvalid.
func (s *Start) Find(ctx context.Context, set, since string) (*Batch, error) {
	if err := CheckSet(set); err != nil {
		return nil, err
	}
	state, err := s.Log.State(ctx, set)
	made := err == nil
	if !made && !(errors.Is(err, ErrNoSet) && s.Waits(set)) {
		return nil, err
	}
	cur := state.Head // in a set that is not made zero, before whatever comes
	switch since {
	case "", "now":
	case "start":
		cur = state.Floor
	default:
		// A plus that was not escaped in a query arrives as a space. A month,
		// 2026-01, is a datetime and no cursor.
		t, terr := resourcesync.ParseTime(strings.ReplaceAll(since, " ", "+"))
		asked, cerr := ParseCursor(since)
		switch {
		case terr == nil && future(t, state.Head, s.Now(), s.ClockSkew):
			return nil, Invalid("%s=%s lies in the future", s.Parameter, shorten(since))
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
			return &Batch{Set: set, After: b.After, Cursor: b.After, Diverged: b.Diverged}, nil
		default:
			return nil, Invalid("%s=%s: %s is a cursor (position-microseconds), a datetime (2026-01-31T12:00:00Z), start or now", s.Parameter, shorten(since), s.Parameter)
		}
	}
	return &Batch{Set: set, After: cur, Cursor: cur}, nil
}

// future reports whether a client's datetime lies behind the head and further
// in the future than clocks may differ.
func future(t time.Time, head Cursor, now time.Time, skew time.Duration) bool {
	return t.After(now.Add(skew)) && t.UnixMicro() > head.Micros
}
