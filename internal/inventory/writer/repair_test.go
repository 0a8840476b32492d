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

// TestLost updates inventories whose log loses its newest entries.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		committed bool // whether the newest root has the lost entries
		trim      bool // whether the log no longer reaches back to its beginning
		complete  bool // whether the inventory is still complete
		log       string
	}{
		{"pending", false, false, true, ""},
		{"pending, trimmed log", false, true, true, ""},
		{"committed", true, false, true, "the log lost its newest changes; rebuilding"},
		{"committed, trimmed log", true, true, false, "an inventory is no longer complete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				h := w.hubWith(3_000, Options{})
				w.setComplete("a", true)
				h.Request("a", false)
				w.pass(3 * time.Minute)
				want := w.log.Resources("a", 3_000)
				w.log.Publish("a", "+lost", "-000001")
				if tt.committed {
					h.Request("a", false)
				}
				w.pass(time.Second)
				if tt.trim {
					w.log.Trim("a", 2_000)
				}
				w.log.Lose("a", 3_000)
				w.pass(time.Minute)
				at := w.log.Publish("a", "+other", "+000002")
				h.Request("a", false)
				w.pass(20 * time.Second)

				want["http://example.org/other"], want["http://example.org/000002"] = 3_001, 3_002
				if tt.committed && tt.trim { // its older state cannot be restored
					delete(want, "http://example.org/000001")
				}
				root := w.newest("a")
				if root.Cursor != at {
					t.Fatalf("newest root at %v, want %v\n%s", root.Cursor, at, w.text)
				}
				w.wantResources("a", root, want)
				w.wantComplete("a", tt.complete)
				if !strings.Contains(w.text.String(), tt.log) {
					t.Errorf("log = %s, want %q", w.text, tt.log)
				}
				w.pass(time.Minute)
				if got := w.newest("a").Upto; got != root.Upto {
					t.Errorf("newest root = %d a minute later, want %d as before", got, root.Upto)
				}
			})
		})
	}
}

// TestLostPassed loses entries that the newest root has, and trims the log past the rest of what the root has.
func TestLostPassed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		w.log.Lose("a", 2_000)
		w.log.Publish("a", "+other", "+000001")
		w.log.Trim("a", 2_001)
		h := w.hub(Options{})
		w.pass(time.Second)
		h.Request("a", false)
		w.pass(2 * time.Second)
		want := map[string]uint64{"http://example.org/000001": 2_002}
		for i := range 2_000 {
			if i != 1 {
				want[fmt.Sprintf("http://example.org/%06d", i)] = uint64(i + 1)
			}
		}
		want["http://example.org/002000"] = 2_001 // a lost change whose position the log has again
		w.wantResources("a", w.newest("a"), want)
		w.wantComplete("a", false)
		w.wantLog(whyLost, 1)
	})
}

// TestCompleteLost loses the cursor at which a set was declared complete.
func TestCompleteLost(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed %v", committed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				h := w.hubWith(3_000, Options{})
				w.log.Publish("a", "+b", "+c")
				w.setComplete("a", true)
				if committed {
					h.Request("a", false)
				}
				w.pass(time.Second)
				w.log.Lose("a", 3_000)
				at := w.log.Publish("a", "+d", "+e", "+f")
				w.pass(11 * time.Minute)
				w.wantRoot("a", at)
				if head := w.head("a"); !head.Complete.IsZero() || head.Why != whyUnknown {
					t.Errorf("complete from %v, because %q, want %q", head.Complete, head.Why, whyUnknown)
				}
			})
		})
	}
}

// TestCompleteDuringCommit loses the cursor at which a set was declared complete. During the next commit, a
// publisher declares the set complete again.
func TestCompleteDuringCommit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		w.log.Publish("a", "+b")
		w.setComplete("a", true)
		w.log.Lose("a", 3_000)
		w.pass(time.Second)
		w.log.Publish("a", "+c")
		var once atomic.Bool
		w.store.before = func(_, call string) error {
			if call == "put" && once.CompareAndSwap(false, true) {
				w.setComplete("a", true)
			}
			return nil
		}
		w.hub(Options{})
		w.pass(11 * time.Minute)
		if !once.Load() {
			t.Fatal("got no commit, want one")
		}
		w.wantComplete("a", true)
	})
}

// TestPassed trims the log past the newest root.
func TestPassed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(3_000, Options{})
		w.setComplete("a", true)
		h.stop()
		w.log.Publish("a", "+lost", "+kept", "-000000")
		w.log.Trim("a", 3_001)
		h = w.hub(Options{})
		w.pass(time.Second)
		h.Request("a", false)
		w.pass(2 * time.Second)
		want := map[string]uint64{"http://example.org/kept": 3_002}
		for i := 1; i < 3_000; i++ {
			want[fmt.Sprintf("http://example.org/%06d", i)] = uint64(i + 1)
		}
		root := w.newest("a")
		if root.Cursor.Position != 3_003 {
			t.Fatalf("newest root at %v, want position 3003", root.Cursor)
		}
		w.wantResources("a", root, want)
		w.wantComplete("a", false)
		if why := w.head("a").Why; why != whyPassed {
			t.Errorf("Why = %q, want %q", why, whyPassed)
		}
	})
}

func TestPassedFirstRoot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		at := w.log.Publish("a", updates(10)...)
		w.log.Trim("a", 5)
		w.hub(Options{})
		w.pass(10 * time.Second)
		w.wantRoot("a", at)
		w.wantComplete("a", false)
		w.wantLog("inventory starts without the changes that retention removed", 1)
	})
}

// TestPassedPending trims the log past changes that are pending, and past the cursor at which the set is complete.
func TestPassedPending(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{})
		w.log.Publish("a", "+b")
		w.setComplete("a", true)
		at := w.log.Publish("a", "+c", "+d")
		w.pass(time.Second)
		w.log.Trim("a", 3_002)
		w.pass(11 * time.Minute)
		if root := w.newest("a"); root.Cursor != at || root.Tally.Count != 3_003 {
			t.Errorf("newest root at %v with %d resources, want %v with 3003", root.Cursor, root.Tally.Count, at)
		}
		w.wantComplete("a", false)
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
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var at feed.Cursor
				recreate := func() {
					w.ok(w.log.Delete(t.Context(), "a"))
					w.log.Create("a")
					at = w.log.Publish("a", "+new")
				}
				var armed atomic.Bool
				w.store.before = func(_, call string) error {
					if call == "put" && armed.CompareAndSwap(true, false) {
						recreate()
					}
					return nil
				}
				h := w.hubWith(3_000, Options{})
				w.log.Publish("a", "+x")
				w.pass(time.Second)
				if armed.Store(tt.duringCommit); tt.duringCommit {
					h.Request("a", false)
				} else {
					recreate()
				}
				w.pass(10 * time.Second)
				w.wantRoot("a", at)
				w.wantLog("level=", 0)
			})
		})
	}
}

func TestInventoryOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(100, Options{})
		at := w.newest("a").Cursor
		w.log.SetNoInventory("a", true)
		w.pass(10 * time.Second)
		if n := len(w.head("a").Roots); n > 0 {
			t.Errorf("got %d roots of an inventory that is off, want 0", n)
		}
		if at, ok := h.Unread(t.Context(), "a"); ok {
			t.Errorf("Unread() = %v, want retention not to wait", at)
		}
		w.log.SetNoInventory("a", false)
		w.pass(10 * time.Second)
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
		w.log.Publish("a", "+x", "+y")
		w.log.Trim("a", 101)
		writer := w.writer("hub", 24*time.Hour, Options{})
		writer.log = trimmedOffLog{w.log}
		w.start(writer)
		w.pass(10 * time.Second)
		if n := len(w.head("a").Roots); n > 0 {
			t.Errorf("got %d roots of an inventory that is off, want 0", n)
		}
	})
}

// removePages removes all pages of a root except the one at the top.
func (w *world) removePages(set string, r inventory.Root) {
	w.t.Helper()
	var pages []uint64
	for n, err := range w.store.Numbers(w.t.Context(), set, r.Begin) {
		if w.ok(err); n != r.Page {
			pages = append(pages, n)
		}
	}
	storetest.RemovePages(w.t, w.store, set, pages...)
}

// findDamage reads a root as a reader does, which finds damage and notifies the hub.
func (w *world) findDamage(h *hub, set string, r inventory.Root) {
	w.t.Helper()
	v := inventory.New(w.store, set, inventory.Options{Damaged: func(error) { h.Request(set, true) }})
	if _, _, err := v.Tree(r).Get(w.t.Context(), "http://example.org/001500"); !errors.Is(err, inventory.ErrDamaged) {
		w.t.Fatalf("Get() = %v, want %v", err, inventory.ErrDamaged)
	}
}

// TestDamaged rebuilds a damaged inventory from the log.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		find func(w *world, h *hub) // finds the damage
	}{
		{"found by an update", func(w *world, _ *hub) { w.log.Publish("a", updates(3_000)...) }},
		{"found by a reader", func(w *world, h *hub) { w.findDamage(h, "a", w.newest("a")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				h := w.hubWith(3_000, Options{})
				w.setComplete("a", true)
				h.Request("a", false)
				w.pass(2 * time.Second)
				h.stop()
				w.removePages("a", w.newest("a"))
				h = w.hub(Options{}) // its cache has no pages
				w.pass(time.Second)
				tt.find(w, h)
				w.pass(10 * time.Second)
				state, err := w.log.State(t.Context(), "a")
				w.ok(err)
				w.wantRoot("a", state.Head)
				w.wantComplete("a", true)
				w.wantLog("rebuilding a damaged inventory", 1)
			})
		})
	}
}

// TestDamagedTrimmed reads a damaged inventory that cannot be rebuilt. It is verified sometimes, but not for
// each reader.
func TestDamagedTrimmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		w.log.Trim("a", 3_000)
		root := w.newest("a")
		w.removePages("a", root)
		metrics := prometheus.NewRegistry()
		h := w.hub(Options{Metrics: metrics})
		w.pass(time.Second)
		for range 200 {
			w.findDamage(h, "a", root)
			w.pass(100 * time.Millisecond)
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
		h := w.hubWith(3_000, Options{})
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(2 * time.Second)
		h.stop()
		w.removePages("a", w.newest("a"))
		var once atomic.Bool
		w.store.updated = func(_ inventory.Update, r inventory.Record) {
			if !strings.Contains(string(r.Head), "roots") && once.CompareAndSwap(false, true) { // the damaged pages are dropped
				w.setComplete("a", false)
			}
		}
		h = w.hub(Options{})
		w.pass(time.Second)
		w.findDamage(h, "a", w.newest("a"))
		w.pass(10 * time.Second)
		if !once.Load() {
			t.Fatal("roots were not dropped, want a rebuild")
		}
		w.wantComplete("a", false)
	})
}

// TestDamagedOldRoot loses a page that only the root of an older Resource List has, of an inventory that
// cannot be rebuilt. New changes are committed anyway.
func TestDamagedOldRoot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(3_000, Options{})
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(2 * time.Second)
		w.log.Publish("a", "+000100", "+000101", "+000102")
		w.pass(11 * time.Minute)
		h.stop()
		w.log.Trim("a", 3_000)
		roots := w.head("a").Roots
		if len(roots) != 2 {
			t.Fatalf("got %d roots, want 2", len(roots))
		}
		storetest.RemovePages(t, w.store, "a", roots[0].Page)
		h = w.hub(Options{})
		w.pass(time.Second)
		w.findDamage(h, "a", roots[0].Root)
		w.pass(time.Minute)
		at := w.log.Publish("a", "+000103", "+new")
		w.pass(12 * time.Minute)
		if got := w.newest("a").Cursor; got != at {
			t.Errorf("newest root at %v, want %v\n%s", got, at, w.text)
		}
	})
}

// TestDamageReportKept lets the store fail while it verifies what a reader has reported.
func TestDamageReportKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(3_000, Options{}).stop()
		root := w.newest("a")
		w.removePages("a", root)
		h := w.hub(Options{})
		w.pass(time.Second)
		w.store.failLoads.Store(1)
		h.Request("a", true)
		w.pass(10 * time.Second)
		w.wantRoot("a", root.Cursor)
		w.wantLog("rebuilding a damaged inventory", 1)
	})
}

// TestDamagedRecord turns an inventory off and on whose record cannot be read.
func TestDamagedRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		h := w.hubWith(100, Options{})
		w.log.Trim("a", 50)
		w.ok(w.store.Update(ctx, "a", inventory.Update{Change: func(r *inventory.Record) error {
			r.Head = []byte("{")
			return nil
		}}))
		if at, ok := h.Unread(ctx, "a"); ok { // notifies the hub of the damage
			t.Errorf("Unread() = %v, want retention not to wait", at)
		}
		w.pass(10 * time.Second)
		w.log.SetNoInventory("a", true)
		w.pass(2 * time.Minute)
		w.log.SetNoInventory("a", false)
		w.pass(10 * time.Second)
		if root := w.newest("a"); root.Cursor.Position != 100 || root.Upto == 0 {
			t.Errorf("newest root = %+v, want position 100", root)
		}
		w.wantComplete("a", false)
	})
}
