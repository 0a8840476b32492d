package reader

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

func TestCache(t *testing.T) {
	t.Parallel()
	inWorld(t, 5_000, func(t *testing.T, w *world) {
		const budget = 256 << 10
		r, _ := w.running(Options{StateBytes: budget})
		w.commit()
		used, err := w.head(r)
		w.OK(err)
		for i := range 150 {
			w.Log.Publish("a", fmt.Sprintf("+%06d", i), fmt.Sprintf("+%06d", 4_999-i))
			w.check(w.head(r))
			if n, _ := memory(r); n > budget {
				t.Fatalf("memory: got %d bytes, want %d at most", n, budget)
			}
		}
		_, cached := memory(r)
		if n := len(cached); n < 10 || n > 149 {
			t.Errorf("got %d cached states, want some", n)
		}
		if cached[0] != used.Cursor() {
			t.Errorf("state in use at %v was dropped before others", used.Cursor())
		}
		used.Release()
		used.Release() // has no effect
		w.Pass(9 * time.Minute)
		if _, got := memory(r); len(got) != len(cached) {
			t.Errorf("after 9 minutes: got %d cached states, want %d", len(got), len(cached))
		}
		w.Pass(6 * time.Minute)
		if n, _ := memory(r); n != 0 || len(r.views) != 0 {
			t.Errorf("after 15 minutes: got %d bytes and %d views, want none", n, len(r.views))
		}
	})
}

// TestCacheShared drops an overlay and its states in several orders. The rest is charged for the changes it shares.
func TestCacheShared(t *testing.T) {
	const changes = 1_000 // of the overlay; each needs at least 200 bytes
	for _, tt := range []struct {
		name string
		drop string // o: the overlay; 0, 1, 2: the oldest, second, third state
	}{
		{"overlay", "o"},
		{"states", "012"},
		{"overlay first", "o21"},
		{"oldest first", "01o"},
		{"newest first", "21o"},
		{"middle first", "1o2"},
	} {
		run(t, tt.name, changes, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.commit()
			w.Log.Publish("a", storetest.Updates(changes)...)
			w.check(w.head(r))
			for range 2 {
				w.Log.Publish("a", storetest.Updates(changes)...) // replaces all changes of the overlay
				w.check(w.head(r))
			}
			v := r.views["a"]
			all := append([]*cachedState(nil), v.states...)
			r.mu.Lock()
			for _, c := range tt.drop {
				if c == 'o' {
					v.discardLocked(v.overlay)
					continue
				}
				for i, s := range v.states {
					if s == all[c-'0'] {
						v.removeLocked(i)
					}
				}
			}
			r.mu.Unlock()
			remaining := 4 - len(tt.drop) // each has changes of its own
			n, _ := memory(r)
			if low, high := remaining*changes*200, remaining*changes*450; n < low || n > high {
				t.Errorf("memory of %d states or overlays: got %d bytes, want %d to %d", remaining, n, low, high)
			}
			r.expire(time.Now().Add(time.Hour))
			if n, _ := memory(r); n != 0 {
				t.Errorf("memory without states: got %d bytes, want none", n)
			}
		})
	}
}

// TestCacheOfDeletedSet holds a state of a set that was deleted. Its memory counts until it is released.
func TestCacheOfDeletedSet(t *testing.T) {
	for _, tt := range []struct {
		name   string
		again  bool // whether the set is created again
		err    error
		cached int
	}{
		{"deleted", false, feed.ErrNoSet, 0},
		{"created again", true, nil, 1}, // the state of the new set
	} {
		run(t, tt.name, 1_000, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			p, err := w.head(r) // of 1,000 changes after the zero root
			w.OK(err)
			w.OK(w.Log.Delete(t.Context(), "a"))
			if tt.again {
				w.Log.Create("a")
			}
			w.fails("State()", tt.err)(w.head(r))
			if n, cached := memory(r); n < 200_000 || len(cached) != tt.cached {
				t.Errorf("with a state in use: got %d bytes and %d cached states, want 200,000 at least and %d", n, len(cached), tt.cached)
			}
			p.Release()
			if n, _ := memory(r); n > tt.cached*2_000 {
				t.Errorf("after its release: got %d bytes, want none for it", n)
			}
		})
	}
}

func TestCanceledWait(t *testing.T) {
	inWorld(t, 10, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		v, err := r.lockView(t.Context(), "a")
		w.OK(err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.fails("State()", context.DeadlineExceeded)(r.State(ctx, "a", feed.Cursor{}, 0))
		v.unlock()
		if n := len(r.views); n != 0 {
			t.Errorf("got %d views, want none", n)
		}
	})
}

func TestNonexistentSets(t *testing.T) {
	inWorld(t, 10, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		w.check(w.head(r))
		for _, set := range storetest.Updates(100) {
			w.fails("State() of a nonexistent set", feed.ErrNoSet)(r.State(t.Context(), set, feed.Cursor{}, 0))
		}
		if n := len(r.views); n != 1 {
			t.Errorf("got %d views, want 1", n)
		}
	})
}

// TestRetainedNames checks that cached pages and states do not retain the request that the name of the set is part of.
func TestRetainedNames(t *testing.T) {
	for _, tt := range []struct {
		name string
		read func(w *world, r *Reader, set string) (*inventory.Pinned, error)
	}{
		{"State", func(w *world, r *Reader, set string) (*inventory.Pinned, error) {
			return r.State(w.Context(), set, feed.Cursor{}, 0)
		}},
		{"ResourceList", func(w *world, r *Reader, set string) (*inventory.Pinned, error) {
			list, err := r.ResourceList(w.Context(), set, feed.Cursor{})
			w.OK(err)
			return list.Pinned, nil
		}},
	} {
		run(t, tt.name, 3_000, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.OK(r.SetComplete(t.Context(), "a", true))
			w.list()
			line := "a" + strings.Repeat("x", 1<<20)
			request := weak.Make(unsafe.StringData(line))
			p, err := tt.read(w, r, line[:1])
			w.OK(err)
			_, _, err = p.Get(t.Context(), "http://example.org/001500")
			w.OK(err)
			p.Release()
			line = ""
			runtime.GC()
			if request.Value() != nil {
				t.Error("the request is still in memory")
			}
			runtime.KeepAlive(r)
		})
	}
}
