package reader

import (
	"errors"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

func TestResourceList(t *testing.T) {
	inWorld(t, 300, func(t *testing.T, w *world) {
		a, b := w.reader(Options{}), w.reader(Options{})
		fails := func(when string, at feed.Cursor, want error) {
			t.Helper()
			if _, err := a.ResourceList(t.Context(), "a", at); !errors.Is(err, want) {
				t.Errorf("%s: ResourceList() = %v, want %v", when, err, want)
			}
		}
		w.list()
		fails("before the set is complete", feed.Cursor{}, ErrIncomplete)
		w.Log.Publish("a", "+x")
		w.OK(a.SetComplete(t.Context(), "a", true))
		fails("before the first list", feed.Cursor{}, ErrIncomplete)

		var lists []feed.Cursor
		for range 4 {
			w.Pass(time.Hour)
			w.Log.Publish("a", "+x", "-y")
			lists = append(lists, w.list().Cursor)
			for i, at := range lists[max(0, len(lists)-2):] {
				x, err := a.ResourceList(t.Context(), "a", at)
				w.OK(err)
				w.check(x.Pinned, nil)
				if !x.Complete || x.Cursor() != at {
					t.Errorf("ResourceList(%v) is at %v, complete %v", at, x.Cursor(), x.Complete)
				}
				if y, err := b.ResourceList(t.Context(), "a", at); err != nil || y.Cursor() != at || !y.Completed.Equal(x.Completed) {
					t.Errorf("list %d: at two hubs, ResourceList(%v) was completed at %v and %v", i, at, x.Completed, y.Completed)
				}
			}
		}
		newest, err := a.ResourceList(t.Context(), "a", feed.Cursor{})
		if w.OK(err); newest.Cursor() != lists[3] || !newest.Completed.Equal(time.Now()) {
			t.Errorf("ResourceList() is at %v, completed at %v, want %v and now", newest.Cursor(), newest.Completed, lists[3])
		}
		fails("third newest list", lists[1], feed.ErrGone)
		w.OK(b.SetComplete(t.Context(), "a", false))
		fails("set declared incomplete", feed.Cursor{}, ErrIncomplete)
		w.Log.SetNoInventory("a", true)
		fails("inventory turned off", feed.Cursor{}, feed.ErrNoInventory)
		w.OK(w.Log.Delete(t.Context(), "a"))
		fails("deleted set", feed.Cursor{}, feed.ErrNoSet)
	})
}

func TestSetComplete(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(w *world)
		want    error
	}{
		{"set", func(*world) {}, nil},
		{"log that loses its head", func(w *world) { w.beforeUpdate(func() { w.Log.Lose("a", 5) }) }, nil},
		{"inventory turned off", func(w *world) { w.Log.SetNoInventory("a", true) }, feed.ErrNoInventory},
		{"deleted set", func(w *world) { w.OK(w.Log.Delete(w.Context(), "a")) }, feed.ErrNoSet},
	} {
		run(t, tt.name, 10, func(t *testing.T, w *world) {
			tt.prepare(w)
			if err := w.reader(Options{}).SetComplete(t.Context(), "a", true); !errors.Is(err, tt.want) {
				t.Errorf("SetComplete() = %v, want %v", err, tt.want)
			}
			var want []request
			if tt.want == nil {
				want = []request{{"a", false}}
			}
			w.wantRequests(want...)
		})
	}
}

// TestComplete shows which states are complete after a publisher has declared the set complete.
func TestComplete(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		before := w.commit().Cursor
		w.got(r.Baseline(t.Context(), "a")) // new readers would join it
		declared := w.Log.Publish("a", "+x")
		w.OK(r.SetComplete(t.Context(), "a", true))
		after := w.Log.Publish("a", "+y")
		for at, want := range map[feed.Cursor]bool{before: false, declared: true, after: true} {
			if p := w.check(r.At(t.Context(), "a", at)); p.Complete != want {
				t.Errorf("At(%v) is complete: %v, want %v", at, p.Complete, want)
			}
		}
		if p := w.check(r.BaselineAt(t.Context(), "a", before)); p.Complete {
			t.Error("BaselineAt(before) is complete")
		}
		w.commit()
		if p := w.check(r.Baseline(t.Context(), "a")); !p.Complete {
			t.Error("Baseline() is not complete")
		}
	})
}

// TestCompleteLost loses the entry at which the set was declared complete.
func TestCompleteLost(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		w.commit()
		w.Log.Publish("a", "+lost")
		w.OK(r.SetComplete(t.Context(), "a", true))
		w.Log.Lose("a", 100)
		w.Pass(time.Hour)
		w.Log.Publish("a", "+x", "+y")
		if p := w.check(w.head(r)); p.Complete {
			t.Error("State() is complete, although the log has lost that entry")
		}
	})
}
