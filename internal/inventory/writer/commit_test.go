package writer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
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
		{"small set", 0, storetest.Updates(10), false, 0, 2 * time.Second},
		{"few changes of a large set", 20_000, []string{"+000007", "-019999", "+zzz"}, false, 9 * time.Minute, 11 * time.Minute},
		{"many changes of a large set", 20_000, storetest.Updates(5_000), false, 0, 2 * time.Second},
		{"request", 20_000, []string{"+000007"}, true, 0, 10 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				h := w.hubWith(tt.resources, Options{})
				first := w.newest().Cursor
				at := w.Log.Publish("a", tt.publish...)
				if tt.request {
					h.Request("a", false)
				}
				if tt.early > 0 {
					w.Pass(tt.early)
					w.wantRoot("a", first)
				}
				w.Pass(tt.late - tt.early)
				w.wantRoot("a", at)
			})
		})
	}
}

func TestIdleSet(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(1_000, Options{})
		root, reads := w.newest().Upto, w.Log.Reads()
		w.Pass(time.Hour)
		if got := w.newest().Upto; got != root {
			t.Errorf("newest root = %d, want %d as before", got, root)
		}
		if got := w.Log.Reads() - reads; got != 0 {
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
			w.Log.Create(set)
			heads[set] = w.Log.Publish(set, storetest.Updates(20_000)...)
		}
		var full atomic.Bool
		full.Store(true)
		w.Store.Before(func(_, call string) error {
			if full.Load() && (call == "put" || call == "update") {
				return feed.ErrFull
			}
			return nil
		})
		metrics := prometheus.NewRegistry()
		pending := func() int { return int(metricstest.Values(t, metrics)["rshub_inventory_waiting_bytes"]) }
		w.hub(Options{PendingBytes: 600_000, Metrics: metrics})
		for range 100 {
			w.Pass(time.Second)
			if got, most := pending(), 600_000+2*maxEntries*250; got > most {
				t.Fatalf("pending = %d bytes, want at most %d", got, most)
			}
		}
		w.wantLog("update of an inventory failed", 2)
		full.Store(false)
		w.Pass(3 * time.Minute)
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
		{"deleted", func(w *world) error { return w.Log.Delete(w.Context(), "a") }, feed.ErrNoSet},
		{"damaged", func(*world) error { return inventory.ErrDamaged }, nil},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Log.Create("b")
			w.Log.Publish("b", storetest.Updates(5_000)...)
			var armed atomic.Bool
			w.Store.Before(func(set, call string) error {
				if set == "a" && call == "put" && armed.CompareAndSwap(true, false) {
					return tt.fail(w)
				}
				return nil
			})
			h := w.hubWith(5_000, Options{PendingBytes: 1})
			w.Pass(time.Minute)
			w.Log.Publish("a", "+x")
			w.Pass(time.Second) // it is pending
			armed.Store(true)
			at := w.Log.Publish("b", "+y")
			h.Request("b", false)
			w.Pass(time.Second)
			if armed.Load() {
				t.Error("no commit of the other set, want one to free memory")
			}
			w.wantRoot("b", at)
			w.wantLog("level=", 0)
			if _, err := w.Log.State(t.Context(), "a"); err != tt.want {
				t.Errorf("State() = %v, want %v", err, tt.want)
			}
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
				var puts atomic.Int64
				w.Store.Before(func(_, call string) error {
					if call == "put" && puts.Add(1) == tt.fails {
						return feed.ErrUnavailable
					}
					return nil
				})
				metrics := prometheus.NewRegistry()
				w.Log.Create("a")
				w.Log.Publish("a", storetest.Updates(15_000)...)
				w.Log.Publish("a", storetest.Updates(15_000)[5_000:10_000]...)
				at := w.Log.Publish("a", "-000001", "-014999", "+000001")
				w.hub(Options{PendingBytes: 300_000, Metrics: metrics})
				w.Pass(20 * time.Second)
				w.wantRoot("a", at)
				if n := metricstest.Values(t, metrics)["rshub_inventory_commits_total"]; n > 2 {
					t.Errorf("committed %v roots, want at most 2", n)
				}
				if n := puts.Load(); n <= tt.fails {
					t.Errorf("got %d writes, want more than %d", n, tt.fails)
				}
				var pages uint64
				for _, err := range w.Store.Numbers(t.Context(), "a", w.newest().Begin) {
					w.OK(err)
					pages++
				}
				if used := w.newest().Pages; pages > used+used/2+20 {
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
		w.wantListed(feed.Cursor{}) // not complete
		at := w.Log.Publish("a", "+last")
		w.setComplete(true)
		w.request(h)
		w.wantListed(at)
		made := w.head().Roots[0].Listed
		w.Pass(3 * interval)
		if got := w.head().Roots[0]; got.Cursor != at || got.Listed != made {
			t.Errorf("list at %v made %d without a change, want %v made %d as before", got.Cursor, got.Listed, at, made)
		}
		lists := map[feed.Cursor]bool{}
		for range 50 {
			w.Log.Publish("a", "+x", "-y")
			w.Pass(time.Minute)
			lists[w.listed()] = true
			if n := len(w.head().Roots); n > 3 {
				t.Fatalf("got %d roots, want at most two lists and the newest", n)
			}
		}
		if n := len(lists); n < 4 || n > 6 {
			t.Errorf("got %d lists in fifty minutes, want 4 to 6", n)
		}
		w.setComplete(false) // ends the former list, so the next one does not wait for the interval
		at = w.Log.Publish("a", "+x")
		w.setComplete(true)
		w.request(h)
		w.wantListed(at)
	})
}

func TestResourceListEmptySet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.hubWith(0, Options{})
		floor := w.newest().Cursor
		if floor.Position != 0 || floor.IsZero() {
			t.Errorf("root of an empty set at %v, want the floor of the log", floor)
		}
		w.setComplete(true)
		w.request(h)
		w.wantListed(floor)
	})
}

// TestClockBack sets the clock of the store back by a year, after a root and a Resource List.
func TestClockBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Store.Ahead.Store(int64(365 * 24 * time.Hour))
		h := w.hubWith(20_000, Options{})
		w.setComplete(true)
		w.request(h)
		w.wantListed(w.newest().Cursor)
		w.Store.Ahead.Store(0)
		w.Pass(time.Hour) // until the record is loaded again
		at := w.Log.Publish("a", "+000100")
		w.Pass(12 * time.Minute)
		w.wantRoot("a", at)
		w.Pass(time.Hour)
		w.wantListed(at)
	})
}

// TestPinExpires drops a root after its reader has stopped, although nothing changes.
func TestPinExpires(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hubWith(500, Options{})
		_, err := w.inv("a").Pin(t.Context(), 0, "reader", time.Hour)
		w.OK(err)
		w.Log.Publish("a", storetest.Updates(500)...)
		w.Pass(time.Minute)
		if n := len(w.head().Roots); n != 2 {
			t.Errorf("got %d roots, want the pinned and the newest", n)
		}
		w.Pass(2 * time.Hour)
		if n := len(w.head().Roots); n != 1 {
			t.Errorf("got %d roots after the pin expired, want 1", n)
		}
	})
}
