package reader

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// TestBaselines starts a baseline with each of many commits, and reads the first one for longer than an hour.
func TestBaselines(t *testing.T) {
	t.Parallel()
	inWorld(t, 50, func(t *testing.T, w *world) {
		a, _ := w.running(Options{})
		w.commit()
		first := w.got(a.Baseline(t.Context(), "a"))
		at := first.Cursor()
		for range 30 {
			w.Log.Publish("a", storetest.Updates(50)...)
			w.commit()
			w.result("Baseline() after another reader", nil, at)(a.Baseline(t.Context(), "a"))
			if n := len(w.roots()); n > inventory.MaxRoots {
				t.Fatalf("got %d roots, want %d at most", n, inventory.MaxRoots)
			}
			w.Pass(10 * time.Second)
		}

		b := w.reader(Options{}) // continues at another hub
		p := w.check(b.BaselineAt(t.Context(), "a", at))
		loc, ok, err := p.Nth(t.Context(), 7)
		w.OK(err)
		if before, err := p.Tally(t.Context(), inventory.Range{To: loc}); err != nil || before.Count != 7 || !ok {
			t.Errorf("Nth(7) = %q, %v with %d resources before it, %v", loc, ok, before.Count, err)
		}

		w.Pass(joinPeriod)
		w.Log.Publish("a", storetest.Updates(50)...)
		newest := w.commit().Cursor
		w.result("Baseline() after an old root", nil, newest)(a.Baseline(t.Context(), "a"))
		for range 40 {
			w.compare(first)
			w.Pass(time.Minute)
			w.Log.Publish("a", storetest.Updates(50)...)
			w.commit()
		}
		w.Pass(10 * time.Minute) // its hour ends
		w.Log.Publish("a", storetest.Updates(50)...)
		w.commit()
		if n := len(w.roots()); n != 1 {
			t.Errorf("after an hour: got %d roots, want 1", n)
		}
		w.fails("BaselineAt() of a dropped root", feed.ErrGone)(a.BaselineAt(t.Context(), "a", at))
		for _, err := range first.Walk(t.Context(), inventory.Range{}) {
			if err != nil {
				w.fails("Walk() of a dropped root", feed.ErrGone)(nil, err)
			}
		}
		w.OK(w.inv.Check(t.Context()))
	})
}

func TestFirstBaseline(t *testing.T) {
	for _, tt := range []struct {
		name      string
		resources int
		prepare   func(w *world)
		want      error
		position  uint64
		requests  int
	}{
		{"empty log", 0, nil, nil, 0, 0},
		{"root in time", 10, func(w *world) { time.AfterFunc(time.Second, func() { w.commit() }) }, nil, 10, 1},
		{"no root", 10, nil, nil, 0, 1},
		{"no root of a log without its beginning", 10, func(w *world) { w.Log.Trim("a", 5) }, ErrBehind, 0, 2},
	} {
		run(t, tt.name, tt.resources, func(t *testing.T, w *world) {
			if tt.prepare != nil {
				tt.prepare(w)
			}
			p, err := w.reader(Options{}).Baseline(t.Context(), "a")
			if tt.want != nil {
				w.fails("Baseline()", tt.want)(p, err)
			} else if w.check(p, err); p.Cursor().Position != tt.position {
				t.Errorf("Baseline() is at %v, want position %d", p.Cursor(), tt.position)
			}
			w.wantRequests(slices.Repeat([]request{{"a", false}}, tt.requests)...)
		})
	}
}

func TestBaselineAt(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   func(w *world, roots []inventory.Root) feed.Cursor
		want error
	}{
		{"newest root", func(_ *world, roots []inventory.Root) feed.Cursor { return roots[1].Cursor }, nil},
		{"older root", func(w *world, roots []inventory.Root) feed.Cursor { return roots[0].Cursor }, nil},
		{"older root with entries that the log has lost", func(w *world, roots []inventory.Root) feed.Cursor {
			w.Log.Lose("a", 5)
			rec, head, err := w.inv.Load(w.Context())
			w.OK(err)
			_, err = w.inv.Forget(w.Context(), head.Newest(), rec.Log.Head, "lost")
			w.OK(err)
			return roots[0].Cursor
		}, nil},
		{"zero", func(*world, []inventory.Root) feed.Cursor { return feed.Cursor{} }, nil},
		{"zero after retention", func(w *world, _ []inventory.Root) feed.Cursor {
			w.Log.Trim("a", 5)
			return feed.Cursor{}
		}, feed.ErrGone},
		{"no root", func(w *world, _ []inventory.Root) feed.Cursor { return w.Log.Publish("a", "+y") }, feed.ErrGone},
	} {
		run(t, tt.name, 10, func(t *testing.T, w *world) {
			r := w.reader(Options{})
			roots := []inventory.Root{w.commit()}
			w.got(r.Baseline(t.Context(), "a"))
			w.Log.Publish("a", "+x")
			at := tt.at(w, append(roots, w.commit()))
			p, err := r.BaselineAt(t.Context(), "a", at)
			if tt.want != nil {
				w.fails("BaselineAt()", tt.want)(p, err)
			} else if w.got(p, err); p.Cursor() != at {
				t.Errorf("BaselineAt(%v) is at %v", at, p.Cursor())
			}
		})
	}
}

// TestChooseRoot starts a baseline while another hub reads an older root.
func TestChooseRoot(t *testing.T) {
	const newest = -1
	for _, tt := range []struct {
		name  string
		after func(w *world)
		want  int // index of the root
	}{
		{"few changes", func(w *world) { w.Log.Publish("a", storetest.Updates(100)...) }, 0},
		{"many changes", func(w *world) { w.Log.Publish("a", storetest.Updates(joinMin+1)...) }, newest},
		{"old root", func(w *world) {
			w.Pass(joinPeriod)
			w.Log.Publish("a", "+x")
		}, newest},
		{"declared complete", func(w *world) {
			w.Log.Publish("a", "+x")
			w.OK(w.reader(Options{}).SetComplete(w.Context(), "a", true))
		}, newest},
		{"clock of the store set back", func(w *world) {
			w.Store.Ahead.Store(-int64(time.Second))
			w.Log.Publish("a", "+x")
		}, newest},
		{"lost entries", func(w *world) {
			w.Log.Lose("a", 9)
			w.Pass(time.Hour)
			w.Log.Publish("a", storetest.Updates(100)...)
		}, newest},
	} {
		run(t, tt.name, 10, func(t *testing.T, w *world) {
			other, _ := w.running(Options{})
			w.commit()
			w.got(other.Baseline(t.Context(), "a"))
			tt.after(w)
			w.commit()
			roots := w.roots()
			want := roots[(tt.want+len(roots))%len(roots)].Cursor
			if p := w.got(w.reader(Options{}).Baseline(t.Context(), "a")); p.Cursor() != want {
				t.Errorf("Baseline() is at %v, want %v", p.Cursor(), want)
			}
		})
	}
}

// TestPins counts the pins of a root over time.
func TestPins(t *testing.T) {
	inWorld(t, 50, func(t *testing.T, w *world) {
		r, stop := w.running(Options{})
		w.commit()
		pins := func(when string, want int) {
			t.Helper()
			if n := len(w.roots()[0].Pins); n != want {
				t.Errorf("%s: got %d pins, want %d", when, n, want)
			}
		}
		p := w.got(r.Baseline(t.Context(), "a"))
		for range 10 {
			w.Pass(time.Minute)
			pins("in use", 1)
		}
		p.Release()
		w.Pass(3 * time.Minute)
		pins("unused", 0)
		w.got(r.Baseline(t.Context(), "a"))
		pins("in use again", 1)
		stop()
		pins("stopped", 0)
	})
}

// TestPinFullStore reads a root that cannot be pinned, because the store is full.
func TestPinFullStore(t *testing.T) {
	inWorld(t, 50, func(t *testing.T, w *world) {
		w.commit()
		w.Store.Before(func(_, call string) error {
			if call == "update" {
				return feed.ErrFull
			}
			return nil
		})
		w.check(w.reader(Options{}).Baseline(t.Context(), "a"))
	})
}

// TestPinDroppedRoot drops a root just before a reader pins it.
func TestPinDroppedRoot(t *testing.T) {
	inWorld(t, 50, func(t *testing.T, w *world) {
		w.commit()
		var at feed.Cursor
		w.beforeUpdate(func() {
			at = w.Log.Publish("a", "+x")
			w.commit()
		})
		p, err := w.reader(Options{}).Baseline(t.Context(), "a")
		w.result("Baseline()", nil, at)(p, err)
	})
}

// TestPinBetweenPages reads a baseline page by page, without a reader between them, while roots are committed.
func TestPinBetweenPages(t *testing.T) {
	inWorld(t, 50, func(t *testing.T, w *world) {
		r, _ := w.running(Options{})
		w.commit()
		at := w.check(r.Baseline(t.Context(), "a")).Cursor()
		for i := range 90 {
			w.Pass(20 * time.Second)
			w.Log.Publish("a", fmt.Sprint("+x", i))
			w.commit()
			w.Pass(2 * time.Second)
			w.check(r.BaselineAt(t.Context(), "a", at))
		}
	})
}

// TestDamage reads damaged pages. The writer is notified, whichever method finds the damage.
func TestDamage(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, p *inventory.Pinned) error{
		"Get": func(ctx context.Context, p *inventory.Pinned) error {
			_, _, err := p.Get(ctx, "http://example.org/001500")
			return err
		},
		"Nth": func(ctx context.Context, p *inventory.Pinned) error { _, _, err := p.Nth(ctx, 1_500); return err },
		"Split": func(ctx context.Context, p *inventory.Pinned) error {
			_, err := p.Split(ctx, inventory.Prefix("http://example.org/0015"), 4)
			return err
		},
		"Walk": func(ctx context.Context, p *inventory.Pinned) (err error) {
			for _, err = range p.Walk(ctx, inventory.Range{}) {
			}
			return err
		},
	} {
		run(t, name, 3_000, func(t *testing.T, w *world) {
			w.RemoveLeaves("a", w.commit())
			p := w.got(w.reader(Options{}).Baseline(t.Context(), "a"))
			w.fails(name, inventory.ErrDamaged)(nil, read(t.Context(), p))
			if got := w.requested(); !slices.Contains(got, request{"a", true}) {
				t.Errorf("requests = %v, want one because of damage", got)
			}
		})
	}
}
