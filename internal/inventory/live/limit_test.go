package live

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
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

// Whoever asks for sets that there are not takes no memory.
func TestSetsThatThereAreNot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(10, Options{})
		w.state(l, "a")
		for _, set := range many(100) {
			if _, err := l.State(t.Context(), set, feed.Cursor{}, 0); !errors.Is(err, feed.ErrNoSet) {
				t.Errorf("%s: %v", set, err)
			}
		}
		if n := len(l.views); n != 1 {
			t.Errorf("%d views are kept", n)
		}
	})
}

// While the store has little room, that is said once a minute, and not for each set.
func TestScarceIsSaidOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.idle(Options{Scarce: func(context.Context) bool { return true }})
		for _, set := range many(50) {
			w.log.Create(set)
			w.log.Publish(set, "+a")
		}
		for range 3 {
			for _, set := range many(50) {
				if _, ok := l.Unread(t.Context(), set); ok {
					t.Errorf("retention waits for %s", set)
				}
			}
			w.after(time.Minute)
		}
		if n := strings.Count(w.text.String(), "\n"); n != 3 {
			t.Errorf("it is said %d times", n)
		}
	})
}
