package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// TestDamaged makes a damaged inventory anew.
func TestDamaged(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		l, stop := w.made(3_000, Options{})
		w.ok(l.Complete(t.Context(), "a", true))
		w.after(2 * time.Second)
		stop()
		var pages []uint64
		begin := w.head("a").Newest().Begin
		for n, err := range w.store.Numbers(t.Context(), "a", begin) {
			w.ok(err)
			pages = append(pages, n)
		}
		w.ok(w.store.Remove(t.Context(), "a", begin, pages[len(pages)/2:len(pages)/2+1]))

		w.log.Publish("a", many(3_000)...)
		l, _ = w.hub(Options{})
		w.after(10 * time.Second)
		if h := w.state(l, "a"); !h.Complete {
			t.Error("an inventory that was made anew from the whole log is not complete")
		}
		if !strings.Contains(w.text.String(), "rebuilding a damaged inventory") {
			t.Error("nothing was logged")
		}

		// A reader finds the damage, whatever it reads.
		ctx, all := t.Context(), inventory.Range{}
		for name, read := range map[string]func(*inventory.Pinned) error{
			"Walk": func(h *inventory.Pinned) (err error) {
				for _, err = range h.Walk(ctx, all) {
				}
				return err
			},
			"Nth": func(h *inventory.Pinned) error {
				_, _, err := h.Nth(ctx, 1_500)
				return err
			},
			"Answer": func(h *inventory.Pinned) error {
				_, err := audit.Answer(ctx, h.State, audit.Question{At: h.Cursor(), Ranges: []audit.RangeQuestion{{Range: inventory.Prefix("http://example.org/0015")}}})
				return err
			},
		} {
			h := w.got(l.Baseline(ctx, "a"))
			w.without("a", h.Tree.Root())
			h.Release()
			w.text.Reset()
			reader, stop := w.hub(Options{}) // which has no page in memory
			h = w.got(reader.Baseline(ctx, "a"))
			if err := read(h); !errors.Is(err, inventory.ErrDamaged) {
				t.Errorf("%s: missing pages are %v", name, err)
			}
			h.Release()
			w.after(10 * time.Second)
			if h = w.got(reader.Baseline(ctx, "a")); !h.Complete {
				t.Fatalf("%s: a baseline after a reader has found damage is not complete", name)
			}
			w.holds("a", h)
			h.Release()
			if n := strings.Count(w.text.String(), "rebuilding a damaged inventory"); n != 1 {
				t.Errorf("%s: it was made anew %d times", name, n)
			}
			stop()
		}
	})
}

// without removes all pages of a root but the one at the top.
func (w *world) without(set string, r inventory.Root) {
	w.t.Helper()
	var pages []uint64
	for n, err := range w.store.Numbers(w.t.Context(), set, r.Begin) {
		if w.ok(err); n != r.Page {
			pages = append(pages, n)
		}
	}
	w.ok(w.store.Remove(w.t.Context(), set, r.Begin, pages))
}

// finds lets a reader find damage.
func (w *world) finds(h *inventory.Pinned) {
	w.t.Helper()
	if _, _, err := h.Get(w.t.Context(), "http://example.org/001500"); !errors.Is(err, inventory.ErrDamaged) {
		w.t.Fatalf("missing pages are %v", err)
	}
	h.Release()
}

// TestDamagedAndTrimmed reads a damaged inventory that cannot be made anew. It is looked
// at now and then, and not for each reader.
func TestDamagedAndTrimmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, stop := w.made(3_000, Options{})
		stop()
		w.log.Trim("a", 3_000)
		w.without("a", w.head("a").Newest())
		metrics := prometheus.NewRegistry()
		l, _ := w.hub(Options{Metrics: metrics})
		for range 200 {
			w.finds(w.got(l.Baseline(ctx, "a")))
			w.after(100 * time.Millisecond)
		}
		if n := metricstest.Values(t, metrics)[`rshub_inventory_failures_total{kind="late"}`]; n < 2 || n > 10 {
			t.Errorf("repairs in 20 seconds: got %v, want 2 to 10", n)
		}
		if !strings.Contains(w.text.String(), "rebuild: the log does not reach back") {
			t.Error("nothing was logged")
		}
	})
}

// TestDamagedAndIncomplete makes an inventory anew. Meanwhile a publisher says that the hub
// does not know all resources.
func TestDamagedAndIncomplete(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, stop := w.made(3_000, Options{})
		w.ok(l.Complete(t.Context(), "a", true))
		w.after(2 * time.Second)
		stop()
		w.without("a", w.head("a").Newest())
		idle := w.idle(Options{})
		said := false
		w.store = &watched{Store: w.store, swapped: func(s inventory.Swap) {
			if !strings.Contains(string(s.Head), "roots") && !said { // the damaged pages are dropped
				said = true
				w.ok(idle.Complete(t.Context(), "a", false))
			}
		}}
		l, _ = w.hub(Options{})
		w.finds(w.got(l.Baseline(t.Context(), "a")))
		w.after(10 * time.Second)
		if h := w.state(l, "a"); h.Complete {
			t.Error("complete, although a publisher said that it is not")
		}
	})
}

// TestDamagedOldRoot loses a page that only the root of an older Resource List has, and the
// log does not reach back to its beginning. The inventory goes on.
func TestDamagedOldRoot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		l, stop := w.made(3_000, Options{})
		w.ok(l.Complete(ctx, "a", true))
		w.after(2 * time.Second)
		old := w.list(l, feed.Cursor{}).Cursor()
		w.log.Publish("a", "+000100", "+000101", "+000102")
		w.after(11 * time.Minute)
		stop()
		w.log.Trim("a", 3_000)
		roots := w.head("a").Roots
		if len(roots) != 2 || roots[0].Cursor != old {
			t.Fatalf("%d roots", len(roots))
		}
		w.ok(w.store.Remove(ctx, "a", roots[0].Begin, []uint64{roots[0].Page}))
		l, _ = w.hub(Options{})
		w.finds(w.list(l, old).Pinned)
		w.after(time.Minute)
		at := w.log.Publish("a", "+000103", "+new")
		w.after(12 * time.Minute)
		if newest := w.head("a").Newest().Cursor; newest != at {
			t.Errorf("the newest root is at %v, want %v\n%s", newest, at, w.text)
		}
	})
}

// TestDamagedHead turns an inventory off and on whose record cannot be read.
func TestDamagedHead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		l, _ := w.made(100, Options{})
		w.log.Trim("a", 50)
		rec, err := w.store.Load(ctx, "a")
		w.ok(err)
		w.ok(w.store.Swap(ctx, "a", inventory.Swap{Begin: rec.Log.Begin, Version: rec.Version, Head: []byte("{")}))
		if _, err := l.Baseline(ctx, "a"); !errors.Is(err, inventory.ErrDamaged) {
			t.Fatalf("a damaged record is %v", err)
		}
		w.after(10 * time.Second)
		w.log.SetNoInventory("a", true)
		w.after(2 * time.Minute)
		w.log.SetNoInventory("a", false)
		w.after(10 * time.Second)
		h := w.got(l.Baseline(ctx, "a"))
		if h.Complete || h.Cursor().Position != 100 {
			t.Errorf("a baseline at %v, complete is %v", h.Cursor(), h.Complete)
		}
		h.Release()
	})
}
