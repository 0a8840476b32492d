package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// onPut calls a function before the next write of pages, and returns whether that was done.
func (w *world) onPut(f func()) *atomic.Bool {
	var done atomic.Bool
	w.Store.Before(func(_, call string) error {
		if call == "put" && done.CompareAndSwap(false, true) {
			f()
		}
		return nil
	})
	return &done
}

// TestLost updates inventories whose log loses its newest entries.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		committed bool // whether the newest root has the lost entries
		trim      bool // whether the log no longer reaches back to its beginning
		why       string
		log       string
	}{
		{"pending", false, false, "", ""},
		{"pending, trimmed log", false, true, "", ""},
		{"committed", true, false, "", "the log lost its newest changes; rebuilding"},
		{"committed, trimmed log", true, true, whyLost, "an inventory is no longer complete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				h := w.completeHub(Options{})
				w.Pass(3 * time.Minute)
				want := w.Log.Resources("a", 3_000)
				w.Log.Publish("a", "+lost", "-000001")
				if tt.committed {
					h.Request("a", false)
				}
				w.Pass(time.Second)
				if tt.trim {
					w.Log.Trim("a", 2_000)
				}
				w.Log.Lose("a", 3_000)
				w.Pass(time.Minute)
				at := w.Log.Publish("a", "+other", "+000002")
				h.Request("a", false)
				w.Pass(20 * time.Second)

				want["http://example.org/other"], want["http://example.org/000002"] = 3_001, 3_002
				if tt.committed && tt.trim { // its older state cannot be restored
					delete(want, "http://example.org/000001")
				}
				w.wantResources("a", at, want)
				w.wantComplete(tt.why)
				if !strings.Contains(w.text.String(), tt.log) {
					t.Errorf("log = %s, want %q", w.text, tt.log)
				}
				root := w.newest().Upto
				w.Pass(time.Minute)
				if got := w.newest().Upto; got != root {
					t.Errorf("newest root = %d a minute later, want %d as before", got, root)
				}
			})
		})
	}
}

// TestLostPassed loses entries that the newest root has, and trims the log past the rest of what the root has.
func TestLostPassed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		want := w.Log.Resources("a", 2_000)
		w.Log.Lose("a", 2_000)
		at := w.Log.Publish("a", "+other", "+000001")
		w.Log.Trim("a", 2_001)
		h := w.hub(Options{})
		w.Pass(time.Second)
		w.request(h)
		want["http://example.org/000001"] = 2_002
		want["http://example.org/002000"] = 2_001 // a lost change whose position the log has again
		w.wantResources("a", at, want)
		w.wantComplete(whyLost)
		w.wantLog(whyLost, 1)
	})
}

// TestCompleteLost loses the cursor at which a set was declared complete.
func TestCompleteLost(t *testing.T) {
	for _, committed := range []bool{false, true} {
		run(t, fmt.Sprintf("committed %v", committed), func(t *testing.T, w *world) {
			h := w.hubWith(3_000, Options{})
			w.Log.Publish("a", "+b", "+c")
			w.setComplete(true)
			if committed {
				h.Request("a", false)
			}
			w.Pass(time.Second)
			w.Log.Lose("a", 3_000)
			at := w.Log.Publish("a", "+d", "+e", "+f")
			w.Pass(11 * time.Minute)
			w.wantRoot("a", at)
			w.wantComplete(whyUnknown)
		})
	}
}

// TestCompleteDuringCommit loses the cursor at which a set was declared complete. During the next commit, a
// publisher declares the set complete again.
func TestCompleteDuringCommit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		w.Log.Publish("a", "+b")
		w.setComplete(true)
		w.Log.Lose("a", 3_000)
		w.Pass(time.Second)
		w.Log.Publish("a", "+c")
		done := w.onPut(func() { w.setComplete(true) })
		w.hub(Options{})
		w.Pass(11 * time.Minute)
		if !done.Load() {
			t.Fatal("got no commit, want one")
		}
		w.wantComplete("")
	})
}

// TestPassed trims the log past the newest root.
func TestPassed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completeHub(Options{}).stop()
		want := w.Log.Resources("a", 3_000)
		at := w.Log.Publish("a", "+lost", "+kept", "-000000")
		w.Log.Trim("a", 3_001)
		h := w.hub(Options{})
		w.Pass(time.Second)
		w.request(h)
		want["http://example.org/kept"] = 3_002
		delete(want, "http://example.org/000000")
		w.wantResources("a", at, want)
		w.wantComplete(whyPassed)
	})
}

func TestPassedFirstRoot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Log.Create("a")
		at := w.Log.Publish("a", storetest.Updates(10)...)
		w.Log.Trim("a", 5)
		w.hub(Options{})
		w.Pass(10 * time.Second)
		w.wantRoot("a", at)
		w.wantComplete(whyPassed)
		w.wantLog("inventory starts without the changes that retention removed", 1)
	})
}

// TestPassedPending trims the log past changes that are pending, and past the cursor at which the set is complete.
func TestPassedPending(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{})
		w.Log.Publish("a", "+b")
		w.setComplete(true)
		at := w.Log.Publish("a", "+c", "+d")
		want := w.Log.Resources("a", at.Position)
		w.Pass(time.Second)
		w.Log.Trim("a", 3_002)
		w.Pass(11 * time.Minute)
		w.wantResources("a", at, want)
		w.wantComplete(whyUnknown)
	})
}

// TestCreatedAgain deletes a set and creates it again.
func TestCreatedAgain(t *testing.T) {
	for _, tt := range []struct {
		name         string
		duringCommit bool
	}{
		{"while changes are pending", false},
		{"during a commit", true},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			h := w.hubWith(3_000, Options{})
			w.Log.Publish("a", "+x")
			w.Pass(time.Second)
			var at feed.Cursor
			recreate := func() {
				w.OK(w.Log.Delete(t.Context(), "a"))
				w.Log.Create("a")
				at = w.Log.Publish("a", "+new")
			}
			if tt.duringCommit {
				w.onPut(recreate)
				h.Request("a", false)
			} else {
				recreate()
			}
			w.Pass(10 * time.Second)
			w.wantRoot("a", at)
			w.wantLog("level=", 0)
		})
	}
}

func TestInventoryOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(100, Options{})
		at := w.newest().Cursor
		w.Log.SetNoInventory("a", true)
		w.Pass(10 * time.Second)
		if n := len(w.head().Roots); n > 0 {
			t.Errorf("got %d roots of an inventory that is off, want 0", n)
		}
		if at, ok := h.Unread(t.Context(), "a"); ok {
			t.Errorf("Unread() = %v, want retention not to wait", at)
		}
		w.Log.SetNoInventory("a", false)
		w.Pass(10 * time.Second)
		w.wantRoot("a", at)
	})
}

// A trimmedOffLog turns the inventory of a set off after it has returned ErrGone.
type trimmedOffLog struct{ *storetest.MemoryLog }

func (l trimmedOffLog) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := l.MemoryLog.Since(ctx, set, after, limit)
	if errors.Is(err, feed.ErrGone) {
		l.SetNoInventory(set, true)
	}
	return b, err
}

// TestInventoryOffPassed turns the inventory of a set off while an update repairs it.
func TestInventoryOffPassed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(100, Options{}).stop()
		w.Log.Publish("a", "+x", "+y")
		w.Log.Trim("a", 101)
		writer := w.writer(Options{})
		writer.log = trimmedOffLog{w.Log}
		start(t, writer)
		w.Pass(10 * time.Second)
		if n := len(w.head().Roots); n > 0 {
			t.Errorf("got %d roots of an inventory that is off, want 0", n)
		}
	})
}

// damagedHub returns a hub whose cache has no pages, after the set a has lost all pages of its root but one.
func (w *world) damagedHub(h *hub, o Options) *hub {
	h.stop()
	w.RemoveLeaves("a", w.newest())
	h = w.hub(o)
	w.Pass(time.Second)
	return h
}

// findDamage reads a root as a reader does, which finds damage and notifies the hub.
func (w *world) findDamage(h *hub, r inventory.Root) {
	w.Helper()
	v := inventory.New(w.Store, "a", inventory.Options{Damaged: func(error) { h.Request("a", true) }})
	if _, _, err := v.Tree(r).Get(w.Context(), "http://example.org/001500"); !errors.Is(err, inventory.ErrDamaged) {
		w.Fatalf("Get() = %v, want %v", err, inventory.ErrDamaged)
	}
}

// TestDamaged rebuilds a damaged inventory from the log.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		find func(w *world, h *hub) // finds the damage
	}{
		{"found by an update", func(w *world, _ *hub) { w.Log.Publish("a", storetest.Updates(3_000)...) }},
		{"found by a reader", func(w *world, h *hub) { w.findDamage(h, w.newest()) }},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			h := w.damagedHub(w.completeHub(Options{}), Options{})
			tt.find(w, h)
			w.Pass(10 * time.Second)
			state, err := w.Log.State(t.Context(), "a")
			w.OK(err)
			w.wantRoot("a", state.Head)
			w.wantComplete("")
			w.wantLog("rebuilding a damaged inventory", 1)
		})
	}
}

// TestDamagedTrimmed reads a damaged inventory that cannot be rebuilt. It is verified sometimes, but not for
// each reader.
func TestDamagedTrimmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		metrics := prometheus.NewRegistry()
		h := w.hubWith(3_000, Options{})
		w.Log.Trim("a", 3_000)
		h = w.damagedHub(h, Options{Metrics: metrics})
		root := w.newest()
		for range 200 {
			w.findDamage(h, root)
			w.Pass(100 * time.Millisecond)
		}
		if n := metricstest.Values(t, metrics)[`rshub_inventory_failures_total{kind="late"}`]; n < 2 || n > 10 {
			t.Errorf("failed %v times in 20 seconds, want 2 to 10", n)
		}
		w.wantLog("the log does not reach back", 1)
	})
}

// TestDamagedIncomplete rebuilds an inventory. In the meantime a publisher declares that it is not complete.
func TestDamagedIncomplete(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.damagedHub(w.completeHub(Options{}), Options{})
		done := w.onPut(func() { w.setComplete(false) })
		w.findDamage(h, w.newest())
		w.Pass(10 * time.Second)
		if !done.Load() {
			t.Fatal("no page was written, want a rebuild")
		}
		w.wantComplete("declared by a publisher")
	})
}

// TestDamagedOldRoot loses a page that only the root of an older Resource List has, of an inventory that
// cannot be rebuilt. New changes are committed anyway.
func TestDamagedOldRoot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.completeHub(Options{})
		w.Log.Publish("a", "+000100", "+000101", "+000102")
		w.Pass(11 * time.Minute)
		h.stop()
		w.Log.Trim("a", 3_000)
		roots := w.head().Roots
		if len(roots) != 2 {
			t.Fatalf("got %d roots, want 2", len(roots))
		}
		storetest.RemovePages(t, w.Store, "a", roots[0].Page)
		h = w.hub(Options{})
		w.Pass(time.Second)
		w.findDamage(h, roots[0].Root)
		w.Pass(time.Minute)
		at := w.Log.Publish("a", "+000103", "+new")
		w.Pass(12 * time.Minute)
		if got := w.newest().Cursor; got != at {
			t.Errorf("newest root at %v, want %v\n%s", got, at, w.text)
		}
	})
}

// TestDamageReportKept lets the store fail while it verifies what a reader has reported.
func TestDamageReportKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.damagedHub(w.hubWith(3_000, Options{}), Options{})
		at := w.newest().Cursor
		var failed atomic.Bool
		w.Store.Before(func(_, call string) error {
			if call == "load" && failed.CompareAndSwap(false, true) {
				return feed.ErrUnavailable
			}
			return nil
		})
		h.Request("a", true)
		w.Pass(10 * time.Second)
		w.wantRoot("a", at)
		w.wantLog("rebuilding a damaged inventory", 1)
	})
}

// TestDamagedRecord turns an inventory off and on whose record cannot be read.
func TestDamagedRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(100, Options{})
		at := w.newest().Cursor
		w.Log.Trim("a", 50)
		w.OK(w.Store.Update(t.Context(), "a", inventory.Update{Change: func(r *inventory.Record) error {
			r.Head = []byte("{")
			return nil
		}}))
		if at, ok := h.Unread(t.Context(), "a"); ok { // notifies the hub of the damage
			t.Errorf("Unread() = %v, want retention not to wait", at)
		}
		w.Pass(10 * time.Second)
		w.Log.SetNoInventory("a", true)
		w.Pass(2 * time.Minute)
		w.Log.SetNoInventory("a", false)
		w.Pass(10 * time.Second)
		w.wantRoot("a", at)
		w.wantComplete(whyPassed)
	})
}
