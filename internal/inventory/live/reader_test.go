package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// pinned returns a state of a set, and checks it.
func (w *world) pinned(set string) func(*inventory.Pinned, error) *inventory.Pinned {
	return func(h *inventory.Pinned, err error) *inventory.Pinned {
		w.t.Helper()
		w.ok(err)
		w.holds(set, h)
		h.Release()
		return h
	}
}

// TestStates reads states of one set on several hubs.
func TestStates(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a, _ := w.made(4_000, Options{})
		b := w.idle(Options{})
		check := w.pinned("a")
		root := w.head("a").Newest().Cursor

		// The same state everywhere, also when it is not the newest any more.
		var cursors []feed.Cursor
		for i := range 20 {
			cursors = append(cursors, w.log.Publish("a", fmt.Sprintf("+%06d", i*190), fmt.Sprintf("-%06d", i*191), "+new"))
			h := check(a.State(ctx, "a", feed.Cursor{}, 0))
			if h.Cursor() != cursors[i] {
				t.Errorf("the newest state is at %v, want %v", h.Cursor(), cursors[i])
			}
			w.after(3 * time.Second)
		}
		for i := range cursors {
			at := cursors[len(cursors)-1-i]
			x, y := check(a.At(ctx, "a", at)), check(b.At(ctx, "a", at))
			tx, err := x.Tally(ctx, inventory.Range{})
			w.ok(err)
			ty, err := y.Tally(ctx, inventory.Range{})
			w.ok(err)
			if x.Cursor() != at || y.Cursor() != at || tx != ty {
				t.Errorf("at %v: %v %v, %v %v", at, x.Cursor(), tx.Count, y.Cursor(), ty.Count)
			}
		}
		check(b.At(ctx, "a", root))
		for _, at := range []feed.Cursor{{Position: 5, Micros: 5}, {Position: 1 << 30, Micros: 1 << 50}} {
			if _, err := b.At(ctx, "a", at); !errors.Is(err, feed.ErrGone) {
				t.Errorf("a state at %v, which the log does not know: %v", at, err)
			}
		}

		// A state at or behind a cursor, now or soon.
		last := cursors[len(cursors)-1]
		if h := check(b.State(ctx, "a", last, 0)); h.Cursor() != last {
			t.Errorf("a state from the head on is at %v", h.Cursor())
		}
		next := feed.Cursor{Position: last.Position + 1, Micros: time.Now().Add(2 * time.Second).UnixMicro()}
		if _, err := b.State(ctx, "a", next, time.Second); !errors.Is(err, feed.ErrGone) {
			t.Errorf("a state that does not come: %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			h, err := b.State(ctx, "a", next, 5*time.Second)
			if err != nil || h.Cursor() != next {
				t.Errorf("a state that comes: %v", err)
				return
			}
			h.Release()
		})
		w.after(time.Second)
		w.log.Publish("a", "+next")
		wg.Wait()
		if _, err := b.State(ctx, "a", feed.Cursor{Position: 100, Micros: 1}, 0); !errors.Is(err, feed.ErrGone) {
			t.Errorf("a state from a cursor that the log does not know: %v", err)
		}
		if _, err := b.State(ctx, "none", feed.Cursor{}, 0); !errors.Is(err, feed.ErrNoSet) {
			t.Errorf("a state of no set: %v", err)
		}
	})
}

// TestKeep shows for how long states are kept, and how many.
func TestKeep(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, _ = w.made(5_000, Options{})
		l, _ := w.hub(Options{StateBytes: 1 << 18})
		h := w.got(l.State(ctx, "a", feed.Cursor{}, 0))
		held := h.Cursor()
		for i := range 150 {
			w.log.Publish("a", fmt.Sprintf("+%06d", i), fmt.Sprintf("+%06d", 4_999-i))
			if h, err := l.State(ctx, "a", feed.Cursor{}, 0); i%10 == 0 {
				w.pinned("a")(h, err)
			} else {
				w.ok(err)
				h.Release()
			}
			if n, _ := w.kept(l, "a"); n > 1<<18+4*keptBytes { // the newest comes on top
				t.Fatalf("%d bytes are kept", n)
			}
		}
		_, kept := w.kept(l, "a")
		if n := len(kept); n < 10 || n > 149 {
			t.Errorf("%d states are kept in 256 KiB", n)
		}
		if kept[0] != held {
			t.Error("a state that is read was dropped before others")
		}
		h.Release()
		h.Release()
		w.after(9 * time.Minute)
		if _, kept = w.kept(l, "a"); len(kept) < 10 {
			t.Errorf("%d states are kept after nine minutes", len(kept))
		}
		w.after(6 * time.Minute)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.bytes != 0 || len(l.views) != 0 || l.reading != [2]int{} {
			t.Errorf("after fifteen minutes: %d bytes, %d views, readers %v", l.bytes, len(l.views), l.reading)
		}
	})
}

// TestKeptOfLost reads states of a log that loses its newest changes and has as many again.
func TestKeptOfLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		w.log.Publish("a", many(100)...)
		l := w.idle(Options{})
		w.state(l, "a")
		lost := w.log.Publish("a", "+lost", "+lost too")
		w.state(l, "a")
		w.log.Lose("a", 100)
		w.after(time.Second)
		head := w.log.Publish("a", "+found", "-000007")
		if h := w.state(l, "a"); h.Cursor() != head {
			t.Errorf("the newest state is at %v, want %v", h.Cursor(), head)
		}
		if _, err := l.At(t.Context(), "a", lost); !errors.Is(err, feed.ErrGone) {
			t.Errorf("a state of what was lost: %v", err)
		}
		w.log.Lose("a", 90)
		head, _ = w.log.At(t.Context(), "a", 90)
		if h := w.state(l, "a"); h.Cursor() != head {
			t.Errorf("the newest state is at %v, want %v", h.Cursor(), head)
		}
	})
}

// TestLimits lets too many read.
func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		l, _ := w.made(100, Options{States: 2, Baselines: 3})
		for _, kind := range []struct {
			n    int
			read func() (*inventory.Pinned, error)
		}{
			{2, func() (*inventory.Pinned, error) { return l.State(ctx, "a", feed.Cursor{}, 0) }},
			{3, func() (*inventory.Pinned, error) { return l.Baseline(ctx, "a") }},
		} {
			var readers []*inventory.Pinned
			for range kind.n {
				h := w.got(kind.read())
				readers = append(readers, h)
			}
			if _, err := kind.read(); !errors.Is(err, ErrTooMany) {
				t.Errorf("one too many: %v", err)
			}
			readers[0].Release()
			h := w.got(kind.read())
			for _, h := range append(readers, h) {
				h.Release()
			}
		}
		if _, err := l.At(ctx, "a", feed.Cursor{Position: 7}); !errors.Is(err, feed.ErrGone) {
			t.Errorf("At: %v", err)
		}
		if l.reading != [2]int{} || len(l.of) > 0 {
			t.Errorf("readers %v, %v", l.reading, l.of)
		}
	})
}

// TestBaselines reads baselines while roots are made.
func TestBaselines(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.log.Create("a")
		a, _ := w.hub(Options{})
		first := w.got(a.Baseline(ctx, "a"))
		w.holds("a", first) // nothing
		first.Release()
		w.after(11 * time.Minute)

		w.log.Publish("a", many(50)...)
		var readers []*inventory.Pinned
		for i := range 30 {
			w.log.Publish("a", many(50)...)
			w.after(10 * time.Second)
			h := w.got(a.Baseline(ctx, "a"))
			readers = append(readers, h)
			if i > 0 && h.Cursor() != readers[0].Cursor() {
				t.Fatalf("a baseline at %v while one at %v is read", h.Cursor(), readers[0].Cursor())
			}
			if n := len(w.head("a").Roots); n > inventory.MaxRoots {
				t.Fatalf("%d roots live", n)
			}
		}
		at := readers[0].Cursor()
		if newest := w.head("a").Newest().Cursor; newest == at {
			t.Error("no root was made meanwhile")
		}

		// Another hub goes on with it.
		b := w.idle(Options{})
		h := w.got(b.BaselineAt(ctx, "a", at))
		w.holds("a", h)
		loc, ok, err := h.Tree.Nth(ctx, 7)
		w.ok(err)
		if before, err := h.Tally(ctx, inventory.Range{To: loc}); err != nil || before.Count != 7 || !ok {
			t.Errorf("the eighth resource is %q, and %d come before it, %v", loc, before.Count, err)
		}
		h.Release()

		// After ten minutes, new readers get a newer root. After an hour, the pin ends.
		w.after(10 * time.Minute)
		w.log.Publish("a", many(50)...)
		w.after(10 * time.Second)
		h = w.got(a.Baseline(ctx, "a"))
		if h.Cursor() == at {
			t.Error("new readers get an old root")
		}
		h.Release()
		for _, h := range readers[1:] {
			h.Release()
		}
		for range 40 {
			w.holds("a", readers[0])
			w.after(time.Minute)
			w.log.Publish("a", many(50)...)
		}
		for range 20 {
			w.after(time.Minute)
			w.log.Publish("a", many(50)...)
		}
		if n := len(w.head("a").Roots); n != 1 {
			t.Errorf("%d roots live after more than an hour", n)
		}
		if _, err := a.BaselineAt(ctx, "a", at); !errors.Is(err, feed.ErrGone) {
			t.Errorf("BaselineAt of a root that is gone: %v", err)
		}
		for _, err := range readers[0].Walk(ctx, inventory.Range{}) {
			if err != nil && !errors.Is(err, feed.ErrGone) {
				t.Errorf("reading a root that is gone: %v", err)
			}
		}
		readers[0].Release()
		w.ok(inventory.New(w.store, "a", inventory.Options{}).Check(ctx))
	})
}

// TestUnpin takes pins away that nobody needs.
func TestUnpin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, stop := w.made(50, Options{})
		pins := func() int { return len(w.head("a").Roots[0].Pins) }
		h := w.got(l.Baseline(t.Context(), "a"))
		for range 10 {
			w.after(time.Minute)
			if pins() != 1 {
				t.Fatalf("%d pins while a root is read", pins())
			}
		}
		h.Release()
		w.after(3 * time.Minute)
		if pins() != 0 {
			t.Errorf("%d pins when nobody reads", pins())
		}
		_ = w.got(l.Baseline(t.Context(), "a"))
		if pins() != 1 {
			t.Errorf("%d pins", pins())
		}
		stop()
		if pins() != 0 {
			t.Errorf("%d pins of a hub that has stopped", pins())
		}
	})
}

// TestResourceLists makes Resource Lists.
func TestResourceLists(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.log.Create("a")
		w.log.Create("empty")
		w.log.Publish("a", many(300)...)
		a, _ := w.hub(Options{List: 12 * time.Minute})
		b := w.idle(Options{List: 12 * time.Minute})
		w.after(time.Minute)
		if _, err := a.ResourceList(ctx, "a", feed.Cursor{}); !errors.Is(err, ErrIncomplete) {
			t.Errorf("a Resource List of an inventory that may not be complete: %v", err)
		}
		at := w.log.Publish("a", "+last")
		for _, set := range []string{"a", "empty"} {
			w.ok(a.Complete(ctx, set, true))
		}
		w.after(time.Second)
		if l, err := b.ResourceList(ctx, "empty", feed.Cursor{}); err != nil || l.Cursor().Position != 0 || l.Cursor().IsZero() {
			t.Errorf("a Resource List of an empty set: %v", err)
		}
		list := func(l *Live, cursor feed.Cursor) *List {
			t.Helper()
			got, err := l.ResourceList(ctx, "a", cursor)
			w.ok(err)
			w.holds("a", got.Pinned)
			got.Release()
			return got
		}
		first := list(a, feed.Cursor{})
		if first.Cursor() != at || first.Completed.Before(at.Time()) || first.Completed.After(time.Now()) {
			t.Errorf("a Resource List at %v, completed %v; want one at %v", first.Cursor(), first.Completed, at)
		}
		if other := list(b, feed.Cursor{}); other.Cursor() != first.Cursor() || !other.Completed.Equal(first.Completed) {
			t.Errorf("another hub has a Resource List at %v, completed %v", other.Cursor(), other.Completed)
		}

		// Without a change it stays. With one it is renewed each twelve minutes, and one before it is kept.
		w.after(36 * time.Minute)
		if got := list(b, feed.Cursor{}); got.Cursor() != at {
			t.Error("a Resource List was renewed although nothing changed")
		}
		var lists []feed.Cursor
		for range 50 {
			w.log.Publish("a", "+x", "-y")
			w.after(time.Minute)
			now := list(b, feed.Cursor{}).Cursor()
			if len(lists) == 0 || lists[len(lists)-1] != now {
				lists = append(lists, now)
			}
			if n := len(lists); n > 1 {
				list(b, lists[n-2])
			}
			if n := len(lists); n > 2 {
				if _, err := b.ResourceList(ctx, "a", lists[n-3]); !errors.Is(err, feed.ErrGone) {
					t.Errorf("the third newest Resource List: %v", err)
				}
			}
		}
		if n := len(lists); n < 4 || n > 6 {
			t.Errorf("%d Resource Lists in fifty minutes", n)
		}
		w.ok(b.Complete(ctx, "a", false))
		if _, err := a.ResourceList(ctx, "a", feed.Cursor{}); !errors.Is(err, ErrIncomplete) {
			t.Errorf("a Resource List of a set that is said to be incomplete: %v", err)
		}
	})
}

// TestComplete shows of which states it is said that they are complete.
func TestComplete(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.log.Create("a")
		before := w.log.Publish("a", many(5_000)...)
		l, _ := w.hub(Options{})
		w.after(3 * time.Second)
		base := w.got(l.Baseline(ctx, "a"))
		defer base.Release()
		said := w.log.Publish("a", "+x")
		w.ok(l.Complete(ctx, "a", true))
		later := w.log.Publish("a", "+y")
		for _, test := range []struct {
			at   feed.Cursor
			want bool
		}{{before, false}, {said, true}, {later, true}} {
			h := w.got(l.At(ctx, "a", test.at))
			if h.Complete != test.want {
				t.Errorf("complete at %v is %v", test.at, h.Complete)
			}
			h.Release()
		}
		h := w.got(l.BaselineAt(ctx, "a", before))
		if h.Complete {
			t.Error("a baseline from before is complete")
		}
		h.Release()
		w.after(3 * time.Second)
		h = w.got(l.Baseline(ctx, "a"))
		if !h.Complete {
			t.Error("a new baseline is not complete, because another one is read that is not")
		}
		h.Release()
	})
}

// TestUnread shows what retention waits for.
func TestUnread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.log.Create("a")
		w.log.Publish("a", many(5_000)...)
		scarce := false
		l := w.idle(Options{Scarce: func(context.Context) bool { return scarce }})
		if at, ok := l.Unread(ctx, "a"); !ok || at.Position != 0 {
			t.Errorf("without a root: %v, %v", at, ok)
		}
		_, stop := w.hub(Options{})
		w.after(3 * time.Second)
		stop()
		root := w.head("a").Newest().Cursor
		if at, ok := l.Unread(ctx, "a"); !ok || at != root {
			t.Errorf("with a root at the head: %v, %v", at, ok)
		}
		w.after(48 * time.Hour)
		w.log.Publish("a", "+x")
		w.after(23 * time.Hour)
		w.log.Publish("a", "+y")
		if at, ok := l.Unread(ctx, "a"); !ok || at != root {
			t.Errorf("23 hours behind: %v, %v", at, ok)
		}
		scarce = true
		if _, ok := l.Unread(ctx, "a"); ok {
			t.Error("retention waits although the store has little room")
		}
		scarce = false
		w.after(2 * time.Hour)
		if _, ok := l.Unread(ctx, "a"); ok {
			t.Error("retention waits for more than a day")
		}
		if _, ok := l.Unread(ctx, "none"); ok {
			t.Error("retention waits for a set that does not exist")
		}
	})
}

// list returns the Resource List of the set a at a cursor.
func (w *world) list(l *Live, at feed.Cursor) *List {
	w.t.Helper()
	list, err := l.ResourceList(w.t.Context(), "a", at)
	w.ok(err)
	return list
}

// TestResourceListLost makes Resource Lists of a log that loses its newest changes.
func TestResourceListLost(t *testing.T) {
	for _, trimmed := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			ctx := t.Context()
			l, _ := w.made(100, Options{})
			w.ok(l.Complete(ctx, "a", true))
			w.after(time.Hour)
			w.log.Publish("a", "+lost")
			w.after(time.Minute)
			w.log.Publish("a", "+lost too")
			w.after(time.Hour)
			if at := w.list(l, feed.Cursor{}).Cursor(); at.Position != 102 {
				t.Fatalf("the Resource List is at %v", at)
			}
			if trimmed {
				w.log.Trim("a", 50)
			}
			w.log.Lose("a", 100)
			w.log.Publish("a", "+found")
			w.after(time.Minute)
			if trimmed {
				w.ok(l.Complete(ctx, "a", true))
				w.after(time.Minute)
			}
			list := w.list(l, feed.Cursor{})
			if _, ok, err := list.Get(ctx, "http://example.org/lost"); err != nil || ok {
				t.Errorf("trimmed %v: the Resource List at %v has what the log has lost: %v", trimmed, list.Cursor(), err)
			}
		})
	}
}

// TestClockBack sets the clock of the store back by a year, when a root and a Resource
// List were made.
func TestClockBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		store := &watched{Store: w.store}
		w.store = store
		store.ahead.Store(int64(365 * 24 * time.Hour))
		l, _ := w.made(20_000, Options{})
		w.ok(l.Complete(t.Context(), "a", true))
		w.after(3 * time.Second)
		w.list(l, feed.Cursor{})
		store.ahead.Store(0)
		w.after(time.Hour) // until the hub knows the new time
		at := w.log.Publish("a", "+000100")
		w.after(12 * time.Minute)
		if newest := w.head("a").Newest().Cursor; newest != at {
			t.Errorf("the newest root is at %v, want %v", newest, at)
		}
		w.after(time.Hour)
		if list := w.list(l, feed.Cursor{}).Cursor(); list != at {
			t.Errorf("the Resource List is at %v, want %v", list, at)
		}
	})
}
