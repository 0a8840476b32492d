package subscribe

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// now is the default start: only what comes from here on.
const now = "now"

// A start is where a follower begins: an empty batch that says so.
func (s *Server) start(r *http.Request, set, since string) (*changelog.Batch, error) {
	if err := changelog.CheckSet(set); err != nil {
		return nil, err
	}
	ctx := r.Context()
	state, err := s.memory.State(ctx, set)
	made := !errors.Is(err, changelog.ErrNoSet)
	switch {
	case !made && !s.opts.Waits(set):
		return nil, err
	case made && err != nil:
		return nil, err
	}
	var cur changelog.Cursor
	switch since {
	case "", now:
		cur = state.Head
	case "start":
		cur = state.Floor
	default:
		// A plus that was not escaped in a query arrives as a space. A month,
		// 2026-01, is a datetime and no cursor.
		t, terr := resourcesync.ParseTime(strings.ReplaceAll(since, " ", "+"))
		asked, cerr := changelog.ParseCursor(since)
		switch {
		case terr == nil:
			cur, err = s.seek(ctx, state, made, t)
		case cerr == nil:
			return s.verify(ctx, set, asked)
		default:
			err = changelog.Invalid("since=%.80q: since is a cursor (position-microseconds), a datetime (2026-01-31T12:00:00Z), start or now", since)
		}
		if err != nil {
			return nil, err
		}
	}
	return &changelog.Batch{Set: set, After: cur, Cursor: cur}, nil
}

// verify asks the memory whether it knows a client's cursor.
func (s *Server) verify(ctx context.Context, set string, cur changelog.Cursor) (*changelog.Batch, error) {
	b, err := s.memory.Since(ctx, set, cur, 1)
	if err != nil {
		return nil, err
	}
	return &changelog.Batch{Set: set, After: b.After, Cursor: b.After, Diverged: b.Diverged}, nil
}

// seek finds the cursor before a datetime, which is inclusive.
func (s *Server) seek(ctx context.Context, state changelog.State, made bool, t time.Time) (changelog.Cursor, error) {
	if t.After(s.opts.Now().Add(s.opts.ClockSkew)) && t.After(state.Head.Time()) {
		return changelog.Cursor{}, changelog.Invalid("since=%s lies in the future", t.Format(time.RFC3339Nano))
	}
	if !made {
		return changelog.Cursor{}, nil
	}
	return s.memory.Seek(ctx, state.Set, t.UnixMicro())
}
