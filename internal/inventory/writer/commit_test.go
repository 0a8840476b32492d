package writer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

func TestReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		situation
		want string
	}{
		{"no root", situation{}, "first root"},
		{"root is current", situation{hasRoot: true, age: time.Hour}, ""},
		{"root is current, request", situation{hasRoot: true, requested: true}, ""},
		{"lost entries", situation{hasRoot: true, rebuilding: true}, "rebuild after lost entries"},
		{"runs", situation{hasRoot: true, hasRuns: true}, "changes in runs"},
		{"new root", situation{hasRoot: true, pending: 1, age: commitInterval - 1}, ""},
		{"new root, request", situation{hasRoot: true, pending: 1, requested: true}, "request"},
		{"new root, list due", situation{hasRoot: true, pending: 1, listDue: true}, "resource list due"},
		{"one second", situation{hasRoot: true, pending: 1, age: commitInterval}, cheap},
		{"ten minutes", situation{hasRoot: true, pending: 1, age: maxRootAge}, "old root"},
		{"clock set back", situation{hasRoot: true, pending: 1, age: -1}, "old root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.reason(); got != tt.want {
				t.Errorf("reason() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCommitEmptySet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		w.hub(Options{})
		w.pass(2 * time.Second)
		if root := w.newest("a"); root.Upto == 0 || root.Cursor.Position != 0 || root.Cursor.IsZero() {
			t.Errorf("root of an empty set = %+v, want one at the floor of the log", root)
		}
	})
}

// TestCommit publishes to a set with a root.
func TestCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		resources int
		publish   []string
		request   bool
		early     time.Duration // not committed after this time
		late      time.Duration // committed after this time
	}{
		{"small set", 0, updates(10), false, 0, 2 * time.Second},
		{"few changes of a large set", 20_000, []string{"+000007", "-019999", "+zzz"}, false, 9 * time.Minute, 11 * time.Minute},
		{"many changes of a large set", 20_000, updates(5_000), false, 0, 2 * time.Second},
		{"request", 20_000, []string{"+000007"}, true, 0, 10 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				h := w.hubWith(tt.resources, Options{})
				first := w.newest("a").Cursor
				at := w.log.Publish("a", tt.publish...)
				if tt.request {
					h.Request("a", false)
				}
				if tt.early > 0 {
					w.pass(tt.early)
					w.wantRoot("a", first)
				}
				w.pass(tt.late - tt.early)
				w.wantRoot("a", at)
			})
		})
	}
}

func TestIdleSet(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(1_000, Options{})
		root, reads := w.newest("a").Upto, w.log.Reads()
		w.pass(time.Hour)
		if got := w.newest("a").Upto; got != root {
			t.Errorf("newest root = %d, want %d as before", got, root)
		}
		if got := w.log.Reads() - reads; got != 0 {
			t.Errorf("read the log %d times, want 0", got)
		}
	})
}

// TestPendingBytes publishes more than fits into memory while the store is full.
func TestPendingBytes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		heads := map[string]feed.Cursor{}
		for _, set := range []string{"a", "b"} {
			w.log.Create(set)
			heads[set] = w.log.Publish(set, updates(20_000)...)
		}
		var full atomic.Bool
		full.Store(true)
		w.store.before = func(string, string) error {
			if full.Load() {
				return feed.ErrFull
			}
			return nil
		}
		metrics := prometheus.NewRegistry()
		pending := func() int { return int(metricstest.Values(t, metrics)["rshub_inventory_waiting_bytes"]) }
		w.hub(Options{PendingBytes: 600_000, Metrics: metrics})
		for range 100 {
			w.pass(time.Second)
			if got, most := pending(), 600_000+2*maxEntries*250; got > most {
				t.Fatalf("pending = %d bytes, want at most %d", got, most)
			}
		}
		w.wantLog("update of an inventory failed", 2)
		full.Store(false)
		w.pass(3 * time.Minute)
		if got := pending(); got != 0 {
			t.Errorf("pending = %d bytes after all commits, want 0", got)
		}
		for set, head := range heads {
			w.wantRoot(set, head)
		}
	})
}

// TestCommitLargestFails updates a set when the memory is full of changes of another set, whose commit fails.
func TestCommitLargestFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail func(w *world) error // called before a page is written
		want error                // of the other set, then
	}{
		{"deleted", func(w *world) error { return w.log.Delete(w.t.Context(), "a") }, feed.ErrNoSet},
		{"damaged", func(*world) error { return inventory.ErrDamaged }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.log.Create("b")
				w.log.Publish("b", updates(5_000)...)
				var armed atomic.Bool
				w.store.before = func(set, call string) error {
					if set == "a" && call == "put" && armed.CompareAndSwap(true, false) {
						return tt.fail(w)
					}
					return nil
				}
				h := w.hubWith(5_000, Options{PendingBytes: 1})
				w.pass(time.Minute)
				w.log.Publish("a", "+x")
				w.pass(time.Second) // it is pending
				armed.Store(true)
				at := w.log.Publish("b", "+y")
				h.Request("b", false)
				w.pass(time.Second)
				if armed.Load() {
					t.Error("no commit of the other set, want one to free memory")
				}
				w.wantRoot("b", at)
				w.wantLog("level=", 0)
				if _, err := w.log.State(t.Context(), "a"); err != tt.want {
					t.Errorf("State() = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestRuns builds an inventory from a log that is much longer than the memory for pending changes. With runs,
// that takes few commits.
func TestRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails int64 // number of the write that fails; zero means none
	}{
		{"no failure", 0},
		{"write of a run fails", 7},
		{"write of a root fails", 18},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				var roots, puts atomic.Int64
				w.store.updated = func(u inventory.Update, _ inventory.Record) {
					if !u.At.IsZero() {
						roots.Add(1)
					}
				}
				w.store.before = func(_, call string) error {
					if call == "put" && puts.Add(1) == tt.fails {
						return feed.ErrUnavailable
					}
					return nil
				}
				w.log.Create("a")
				w.log.Publish("a", updates(15_000)...)
				w.log.Publish("a", updates(15_000)[5_000:10_000]...)
				at := w.log.Publish("a", "-000001", "-014999", "+000001")
				w.hub(Options{PendingBytes: 300_000})
				w.pass(20 * time.Second)
				w.wantRoot("a", at)
				if n := roots.Load(); n > 2 {
					t.Errorf("committed %d roots, want at most 2", n)
				}
				if n := puts.Load(); n <= tt.fails {
					t.Errorf("got %d writes, want more than %d", n, tt.fails)
				}
				var pages uint64
				for _, err := range w.store.Numbers(t.Context(), "a", w.newest("a").Begin) {
					w.ok(err)
					pages++
				}
				if used := w.newest("a").Pages; pages > used+used/2+20 {
					t.Errorf("the store has %d pages of a root with %d, want the runs removed", pages, used)
				}
			})
		})
	}
}

func TestResourceList(t *testing.T) {
	t.Parallel()
	const interval = 12 * time.Minute
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(300, Options{ListInterval: interval})
		if at := w.listed("a"); !at.IsZero() {
			t.Errorf("list at %v of a set that is not complete, want none", at)
		}
		at := w.log.Publish("a", "+last")
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(time.Second)
		if got := w.listed("a"); got != at {
			t.Errorf("first list at %v, want %v", got, at)
		}
		made := w.head("a").Roots[0].Listed
		w.pass(3 * interval)
		if got := w.head("a").Roots[0]; got.Cursor != at || got.Listed != made {
			t.Errorf("list at %v made %d without a change, want %v made %d as before", got.Cursor, got.Listed, at, made)
		}
		lists := map[feed.Cursor]bool{}
		for range 50 {
			w.log.Publish("a", "+x", "-y")
			w.pass(time.Minute)
			lists[w.listed("a")] = true
			if n := len(w.head("a").Roots); n > 3 {
				t.Fatalf("got %d roots, want at most two lists and the newest", n)
			}
		}
		if n := len(lists); n < 4 || n > 6 {
			t.Errorf("got %d lists in fifty minutes, want 4 to 6", n)
		}
	})
}

// TestResourceListAgain declares a set not complete, and complete again. That ends the former list, so the next
// one does not wait for the interval.
func TestResourceListAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(300, Options{})
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(time.Second)
		w.setComplete("a", false)
		at := w.log.Publish("a", "+x")
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(time.Second)
		if got := w.listed("a"); got != at {
			t.Errorf("list at %v, want %v", got, at)
		}
	})
}

func TestResourceListEmptySet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(0, Options{})
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(time.Second)
		if at := w.listed("a"); at.IsZero() || at.Position != 0 {
			t.Errorf("list at %v, want one at the floor of the log", at)
		}
	})
}

// TestClockBack sets the clock of the store back by a year, after a root and a Resource List.
func TestClockBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.ahead.Store(int64(365 * 24 * time.Hour))
		h := w.hubWith(20_000, Options{})
		w.setComplete("a", true)
		h.Request("a", false)
		w.pass(3 * time.Second)
		if w.listed("a").IsZero() {
			t.Fatal("got no list, want one")
		}
		w.store.ahead.Store(0)
		w.pass(time.Hour) // until the record is loaded again
		at := w.log.Publish("a", "+000100")
		w.pass(12 * time.Minute)
		w.wantRoot("a", at)
		w.pass(time.Hour)
		if got := w.listed("a"); got != at {
			t.Errorf("list at %v, want %v", got, at)
		}
	})
}

// TestCommitPinned publishes while a reader holds an old root.
func TestCommitPinned(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(500, Options{})
		old, err := w.inv("a").Pin(t.Context(), 0, "reader", time.Hour)
		w.ok(err)
		want := w.log.Resources("a", old.Cursor.Position)
		for i := range 30 {
			w.log.Publish("a", fmt.Sprintf("-%06d", i), fmt.Sprintf("+new%d", i))
			w.pass(time.Minute)
		}
		if n := len(w.head("a").Roots); n != 2 {
			t.Errorf("got %d roots, want the pinned and the newest", n)
		}
		w.wantResources("a", old, want)
		w.pass(time.Hour)
		if n := len(w.head("a").Roots); n != 1 {
			t.Errorf("got %d roots after the pin expired, want 1", n)
		}
	})
}
