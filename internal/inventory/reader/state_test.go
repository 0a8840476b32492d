package reader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// TestStates compares the states of two hubs. One extends its overlay, the other also makes older states.
func TestStates(t *testing.T) {
	t.Parallel()
	inWorld(t, 4_000, func(t *testing.T, w *world) {
		a, b := w.reader(Options{}), w.reader(Options{})
		root := w.commit()
		cursors := []feed.Cursor{root.Cursor}
		for i := range 20 {
			if i%7 == 6 {
				w.commit()
			}
			cursors = append(cursors, w.Log.Publish("a", fmt.Sprintf("+%06d", i*190), fmt.Sprintf("-%06d", i*191), "+new"))
			w.result("State()", nil, cursors[i+1])(w.head(a))
			w.Pass(3 * time.Second)
		}
		for _, at := range slices.Backward(cursors) {
			p, q := w.check(a.At(t.Context(), "a", at)), w.check(b.At(t.Context(), "a", at))
			x, errX := p.Tally(t.Context(), inventory.Range{})
			y, errY := q.Tally(t.Context(), inventory.Range{})
			if w.OK(errors.Join(errX, errY)); p.Cursor() != at || q.Cursor() != at || x != y {
				t.Errorf("At(%v) is at %v and %v with equal tallies: %v", at, p.Cursor(), q.Cursor(), x == y)
			}
		}
	})
}

func TestStateFrom(t *testing.T) {
	for _, tt := range []struct {
		name string
		from func(w *world, head feed.Cursor) feed.Cursor
		want error
	}{
		{"head", func(_ *world, head feed.Cursor) feed.Cursor { return head }, nil},
		{"older entry", func(w *world, _ feed.Cursor) feed.Cursor { return w.at(7) }, nil},
		{"next entry", func(w *world, head feed.Cursor) feed.Cursor {
			time.AfterFunc(time.Second, func() { w.Log.Publish("a", "+next") })
			return feed.Cursor{Position: head.Position + 1, Micros: time.Now().Add(time.Second).UnixMicro()}
		}, nil},
		{"entry that does not come", func(_ *world, head feed.Cursor) feed.Cursor {
			return feed.Cursor{Position: head.Position + 1, Micros: head.Micros + 1}
		}, feed.ErrGone},
		{"later position of an earlier time", func(_ *world, head feed.Cursor) feed.Cursor {
			return feed.Cursor{Position: head.Position + 1, Micros: head.Micros}
		}, feed.ErrGone},
		{"position of another time", func(_ *world, head feed.Cursor) feed.Cursor { return feed.Cursor{Position: 7, Micros: head.Micros} }, feed.ErrGone},
		{"removed by retention", func(w *world, head feed.Cursor) feed.Cursor {
			at := w.at(7)
			w.Log.Trim("a", 50)
			return at
		}, feed.ErrGone},
		{"deleted set", func(w *world, head feed.Cursor) feed.Cursor {
			w.OK(w.Log.Delete(w.Context(), "a"))
			return head
		}, feed.ErrNoSet},
		{"inventory turned off", func(w *world, head feed.Cursor) feed.Cursor {
			w.Log.SetNoInventory("a", true)
			return head
		}, feed.ErrNoInventory},
	} {
		run(t, tt.name, 100, func(t *testing.T, w *world) {
			w.Pass(time.Second)
			r, root := w.reader(Options{}), w.commit()
			w.check(w.head(r)) // something is cached
			from := tt.from(w, root.Cursor)
			start := time.Now()
			p, err := r.State(t.Context(), "a", from, 5*time.Second)
			if tt.want != nil {
				w.fails("State()", tt.want)(p, err)
			} else if w.check(p, err); p.Cursor().Position < from.Position {
				t.Errorf("State(%v) is at %v", from, p.Cursor())
			}
			if d := time.Since(start); d > 5*time.Second+earlyInterval {
				t.Errorf("State() took %v, want 5 seconds at most", d)
			}
		})
	}
}

func TestAt(t *testing.T) {
	entry := func(position uint64) func(w *world) feed.Cursor {
		return func(w *world) feed.Cursor {
			return w.at(position)
		}
	}
	for _, tt := range []struct {
		name   string
		at     func(w *world) feed.Cursor
		before func(w *world, r *Reader, at feed.Cursor)
		want   error
	}{
		{"before the first root", entry(50), nil, nil},
		{"root", entry(100), nil, nil},
		{"between root and overlay", entry(110), nil, nil},
		{"head", entry(120), nil, nil},
		{"after the overlay", func(w *world) feed.Cursor { return w.Log.Publish("a", "+x") }, nil, nil},
		{"floor", entry(0), nil, nil},
		{"zero", func(*world) feed.Cursor { return feed.Cursor{} }, nil, nil},
		{"position of another time", func(*world) feed.Cursor { return feed.Cursor{Position: 5, Micros: 5} }, nil, feed.ErrGone},
		{"future", func(*world) feed.Cursor { return feed.Cursor{Position: 1 << 30, Micros: 1 << 60} }, nil, feed.ErrGone},
		{"removed by retention", entry(50), func(w *world, _ *Reader, _ feed.Cursor) { w.Log.Trim("a", 60) }, feed.ErrGone},
		{"no root at or before it", entry(50), func(w *world, _ *Reader, _ feed.Cursor) { w.Log.Trim("a", 40) }, feed.ErrGone},
		{"deleted set", entry(50), func(w *world, _ *Reader, _ feed.Cursor) { w.OK(w.Log.Delete(w.Context(), "a")) }, feed.ErrNoSet},
		{"set created again", entry(50), func(w *world, r *Reader, at feed.Cursor) {
			w.check(r.At(w.Context(), "a", at)) // is cached
			w.OK(w.Log.Delete(w.Context(), "a"))
			w.Log.Create("a")
			w.Log.Publish("a", storetest.Updates(100)...)
		}, feed.ErrGone},
	} {
		run(t, tt.name, 100, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.commit()
			w.Log.Publish("a", storetest.Updates(20)...)
			w.check(w.head(r))
			at := tt.at(w)
			if tt.before != nil {
				tt.before(w, r, at)
			}
			reads := w.Log.Reads()
			p, err := r.At(t.Context(), "a", at)
			if n := w.Log.Reads() - reads; n > 2 {
				t.Errorf("At() read the log %d times, want at most 2", n)
			}
			if at.IsZero() {
				at = w.at(0)
			}
			w.result("At()", tt.want, at)(p, err)
		})
	}
}

// TestRecentState shows how long a cached state suffices for a cursor at or before it.
func TestRecentState(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		from  uint64
		want  uint64 // position of the state
	}{
		{"recent", recentPeriod - time.Millisecond, 100, 100},
		{"recent, but before the cursor", time.Second, 101, 101},
		{"not recent", recentPeriod, 100, 101},
	} {
		run(t, tt.name, 100, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.check(w.head(r))
			w.Log.Publish("a", "+x")
			w.Pass(tt.after)
			from := w.at(tt.from)
			p, err := r.State(t.Context(), "a", from, 0)
			w.result("State()", nil, w.at(tt.want))(p, err)
		})
	}
}

// TestAtRetainsOverlay reads an older state. The next state at the head needs nothing from the log anyway.
func TestAtRetainsOverlay(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		w.check(w.head(r))
		w.check(r.At(t.Context(), "a", w.at(50)))
		reads := w.Log.Reads()
		w.check(w.head(r))
		if n := w.Log.Reads() - reads; n != 0 {
			t.Errorf("State() after At() read the log %d times, want none", n)
		}
	})
}

// TestDroppedRoot reads states whose root was dropped, and its pages removed, since they were cached.
func TestDroppedRoot(t *testing.T) {
	for _, tt := range []struct {
		name string
		read func(w *world, r *Reader, at feed.Cursor) (*inventory.Pinned, error)
	}{
		{"State", func(w *world, r *Reader, at feed.Cursor) (*inventory.Pinned, error) {
			return r.State(w.Context(), "a", at, 0)
		}},
		{"State at the head", func(w *world, r *Reader, _ feed.Cursor) (*inventory.Pinned, error) { return w.head(r) }},
		{"At a cached state", func(w *world, r *Reader, at feed.Cursor) (*inventory.Pinned, error) {
			return r.At(w.Context(), "a", at)
		}},
		{"At the next cursor", func(w *world, r *Reader, _ feed.Cursor) (*inventory.Pinned, error) {
			return r.At(w.Context(), "a", w.Log.Publish("a", "+y"))
		}},
	} {
		run(t, tt.name, 1_000, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.commit()
			at := w.Log.Publish("a", "+x")
			w.check(w.head(r))
			w.OK(w.inv.Reset(t.Context(), ""))
			w.check(tt.read(w, r, at))
			if _, cached := memory(r); len(slices.Compact(cached)) != len(cached) {
				t.Errorf("got two cached states at one cursor: %v", cached)
			}
		})
	}
}

// TestAtCached reads a cached state after retention has removed its cursor from the log.
func TestAtCached(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		at := w.commit().Cursor
		w.check(w.head(r))
		w.Log.Publish("a", storetest.Updates(20)...)
		w.Log.Trim("a", 110)
		if p := w.got(r.At(t.Context(), "a", at)); p.Cursor() != at {
			t.Errorf("At(%v) is at %v", at, p.Cursor())
		}
	})
}

// TestStateAfterLoss reads states of a log that loses its newest entries, and then has other entries at the same
// positions.
func TestStateAfterLoss(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		r := w.reader(Options{})
		w.check(w.head(r))
		lost := w.Log.Publish("a", "+lost", "+lost too")
		w.check(w.head(r))
		w.Log.Lose("a", 100)
		w.Log.Publish("a", "+x", "+y")
		w.fails("At(lost)", feed.ErrGone)(r.At(t.Context(), "a", lost)) // is cached
		w.Log.Lose("a", 100)
		w.Pass(time.Second)
		head := w.Log.Publish("a", "+found", "-000007")
		w.result("State()", nil, head)(w.head(r))
		w.fails("At(lost)", feed.ErrGone)(r.At(t.Context(), "a", lost))

		w.Log.Lose("a", 90) // the overlay is after the head
		head = w.at(90)
		w.result("State()", nil, head)(w.head(r))
		w.fails("At(lost)", feed.ErrGone)(r.At(t.Context(), "a", lost))
	})
}

// TestRootOfLostEntries reads a set whose only root has entries that the log has lost, until the writer repairs it.
func TestRootOfLostEntries(t *testing.T) {
	for _, tt := range []struct {
		name string
		read func(w *world, r *Reader) (*inventory.Pinned, error)
		want error
	}{
		{"State", func(w *world, r *Reader) (*inventory.Pinned, error) { return w.head(r) }, ErrBehind},
		{"Baseline", func(w *world, r *Reader) (*inventory.Pinned, error) { return r.Baseline(w.Context(), "a") }, ErrBehind},
		{"At", func(w *world, r *Reader) (*inventory.Pinned, error) { return r.At(w.Context(), "a", w.at(100)) }, feed.ErrGone},
	} {
		run(t, tt.name, 100, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			w.commit()
			w.Log.Lose("a", 99)
			w.Pass(time.Hour)
			w.Log.Publish("a", "+x", "+y")
			w.fails(tt.name, tt.want)(tt.read(w, r))
			if got, want := w.requested(), tt.want == error(ErrBehind); slices.Contains(got, request{"a", false}) != want {
				t.Errorf("requests: got %v, want one: %v", got, want)
			}
		})
	}
}

// TestOverlayRoot shows which root the next states are made from after another root was committed.
func TestOverlayRoot(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after func(w *world)
		moves bool
	}{
		{"young", func(w *world) { w.Pass(5 * time.Minute) }, false},
		{"old", func(w *world) { w.Pass(joinPeriod) }, true},
		{"large", func(w *world) { w.Log.Publish("a", "+"+strings.Repeat("x", largeOverlay)) }, true},
		{"dropped", func(w *world) { w.OK(w.inv.Reset(w.Context(), "")) }, true},
	} {
		run(t, tt.name, 10, func(t *testing.T, w *world) {
			r, _ := w.running(Options{})
			want := w.commit().Upto
			w.Log.Publish("a", "+x")
			w.got(w.head(r))
			tt.after(w)
			w.got(w.head(r))
			newest := w.commit().Upto
			w.Log.Publish("a", "+y")
			if tt.moves {
				want = newest
			}
			if p := w.check(w.head(r)); p.Tree.Root().Upto != want {
				t.Errorf("State() is based on root %d, want %d; the newest is %d", p.Tree.Root().Upto, want, newest)
			}
		})
	}
}

// TestMemoryLimit reads more changes after a root than memory allows.
func TestMemoryLimit(t *testing.T) {
	large := func(n, bytes int) []string {
		changes := make([]string, n)
		for i := range changes {
			changes[i] = fmt.Sprint("+", i, strings.Repeat("x", bytes))
		}
		return changes
	}
	for _, tt := range []struct {
		name            string
		stateBytes      int
		changes         []string
		stateErr, atErr error
	}{
		{"one set", 0, large(65, 1<<20), ErrBehind, feed.ErrGone},
		{"all sets", 1 << 20, large(1_100, 1<<10), ErrTooMany, ErrTooMany},
	} {
		run(t, tt.name, 10, func(t *testing.T, w *world) {
			r := w.reader(Options{StateBytes: tt.stateBytes})
			w.commit()
			at := w.Log.Publish("a", tt.changes...)
			w.fails("State()", tt.stateErr)(w.head(r))
			if got := w.requested(); (len(got) == 1) != (tt.stateErr == error(ErrBehind)) {
				t.Errorf("State() made the requests %v", got)
			}
			_, err := r.At(t.Context(), "a", at)
			w.fails("At()", tt.atErr)(nil, err)
			if errors.Is(err, ErrBehind) {
				t.Errorf("At() = %v, which is also ErrBehind", err)
			}
			if bytes, _ := memory(r); bytes != 0 {
				t.Errorf("memory: got %d bytes, want none", bytes)
			}
			w.commit()
			w.check(w.head(r))
		})
	}
}
