package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

// The temporary files of looks leave room for the change memory, and count as what the sets
// of their maker keep.
func TestSpools(t *testing.T) {
	free := uint64(1000)
	store := &store{
		kept:  func(_ context.Context, set string) (int64, error) { return 300, nil },
		maker: func(_ context.Context, set string) (string, error) { return set[:1], nil },
	}
	q := newQuota(store, 800, slog.New(slog.DiscardHandler))
	q.grew("a1")
	q.look(t.Context(), time.Now())
	s := newSpools(store, q)
	s.space = func() (uint64, uint64, error) { return free, 100, nil }
	take := func(set string, bytes int64, want string) {
		t.Helper()
		err := s.take(t.Context(), set, bytes)
		if want == "" && err != nil || want != "" && (!errors.Is(err, feed.ErrFull) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s takes %d: %v, want %q", set, bytes, err, want)
		}
	}
	take("a2", 200, "")
	take("a3", 200, "")
	take("a2", 350, "that one set may") // 300 + 200 + 350
	take("b1", 700, "")                 // another one
	take("a3", 0, "")
	take("a2", 350, "")
	free = 300
	take("c1", 101, "the disk has")
	take("c1", 100, "")
	take("a2", 350, "") // it takes no more than it has

	s = newSpools(store, q) // in Redis
	take("a1", maxSpools/2, "")
	take("b1", maxSpools/2, "")
	take("c1", 1, "at once")
	take("a1", 0, "")
	take("c1", 1, "")
}
