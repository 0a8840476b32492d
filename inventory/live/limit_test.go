package live

import (
	"context"
	"errors"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/limit"
)

// One user who reads slowly does not take the places of all.
func TestLimitOfOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(100, Options{States: 4, Baselines: 3})
		users := limit.New(limit.Options{})
		one, other := limit.NewContext(t.Context(), users.Caller("one", nil)), limit.NewContext(t.Context(), users.Caller("other", nil))
		for _, read := range []func(ctx context.Context) (*inventory.Pinned, error){
			func(ctx context.Context) (*inventory.Pinned, error) { return l.State(ctx, "a", feed.Cursor{}, 0) },
			func(ctx context.Context) (*inventory.Pinned, error) { return l.Baseline(ctx, "a") },
		} {
			for range 2 {
				defer w.got(read(one)).Release()
			}
			if _, err := read(one); !errors.Is(err, ErrTooMany) {
				t.Errorf("more than half: %v", err)
			}
			w.got(read(other)).Release()
			w.got(read(t.Context())).Release()
		}
		w.got(l.State(t.Context(), "a", feed.Cursor{}, 0)).Release()
	})
}
