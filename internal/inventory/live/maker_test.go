package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// TestCommits shows when roots are made.
func TestCommits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.log.Create("small")
		w.log.Create("large")
		w.log.Publish("large", many(20_000)...)
		l, _ := w.hub(Options{})
		w.after(2 * time.Second)
		if at := w.head("small").Newest(); at.Upto == 0 || at.Cursor.Position != 0 {
			t.Errorf("an empty set has the root %+v", at)
		}
		first := w.head("large").Newest()
		if first.Cursor.Position != 20_000 || first.Tally.Count != 20_000 {
			t.Errorf("the first root is %+v", first)
		}

		// A small set's root is always fresh.
		at := w.log.Publish("small", many(10)...)
		w.after(2 * time.Second)
		if got := w.head("small").Newest().Cursor; got != at {
			t.Errorf("a root of a small set is at %v, want %v", got, at)
		}

		// In a large set, few changes wait for ten minutes.
		at = w.log.Publish("large", "+000007", "-019999", "+zzz")
		w.after(9 * time.Minute)
		if got := w.head("large").Newest(); got.Upto != first.Upto {
			t.Errorf("three changes of 20,000 resources were committed before ten minutes were over")
		}
		w.state(l, "large") // which has them all the same
		w.after(2 * time.Minute)
		if got := w.head("large").Newest().Cursor; got != at {
			t.Errorf("a root of a large set is at %v after eleven minutes, want %v", got, at)
		}

		// Many do not.
		at = w.log.Publish("large", many(5_000)...)
		w.after(2 * time.Second)
		if got := w.head("large").Newest().Cursor; got != at {
			t.Errorf("a root of a large set is at %v after many changes, want %v", got, at)
		}
		w.state(l, "large")

		// Nothing is read and written for sets that do not change.
		before := w.log.Reads()
		root := w.head("large").Newest()
		w.after(time.Hour)
		if got := w.head("large").Newest(); got.Upto != root.Upto {
			t.Error("a root was made although nothing changed")
		}
		if w.log.Reads() != before {
			t.Errorf("%d reads of the logs although nothing changed", w.log.Reads()-before)
		}
	})
}

// TestWaiting shows that what waits is bounded, also when nothing can be committed.
func TestWaiting(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		w.log.Publish("a", many(20_000)...)
		w.log.Create("b")
		w.log.Publish("b", many(20_000)...)
		var full atomic.Bool
		full.Store(true)
		w.store = &watched{Store: w.store, before: func(context.Context, string) error {
			if full.Load() {
				return feed.ErrFull
			}
			return nil
		}}
		l, _ := w.hub(Options{WaitBytes: 600_000})
		for range 100 {
			w.after(time.Second)
			if n := w.waiting(l); n > 600_000+2*readEntries*250 {
				t.Fatalf("%d bytes wait", n)
			}
		}
		full.Store(false)
		w.after(3 * time.Minute)
		w.state(l, "a")
		w.state(l, "b")
		if n := w.waiting(l); n != 0 {
			t.Errorf("%d bytes wait although everything is committed", n)
		}
		if n := strings.Count(w.text.String(), "update of an inventory failed"); n != 2 {
			t.Errorf("the log has %d lines:\n%s", n, w.text)
		}
		if at := w.head("a").Newest().Cursor.Position; at != 20_000 {
			t.Errorf("the root is at %d", at)
		}
	})
}

// TestRoomOfAnother reads a set for which the backlog of another set has to be committed
// first. That fails, and is no failure of the set itself.
func TestRoomOfAnother(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(w *world, fails *atomic.Bool){
		"deleted": func(w *world, _ *atomic.Bool) { w.ok(w.log.Delete(w.t.Context(), "a")) },
		"damaged": func(_ *world, fails *atomic.Bool) { fails.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				var fails atomic.Bool
				w.store = &watched{Store: w.store, before: func(context.Context, string) error {
					if fails.Swap(false) {
						return inventory.ErrDamaged
					}
					return nil
				}}
				l := w.idle(Options{WaitBytes: 1})
				jobs := map[string]*job{}
				for _, set := range []string{"a", "b"} {
					w.log.Create(set)
					w.log.Publish(set, many(1_000)...)
					jobs[set] = newJob(l.maker, set)
					state, err := w.log.State(ctx, set)
					w.ok(err)
					jobs[set].saw(state, time.Now())
				}
				a, b := jobs["a"], jobs["b"]
				b.turn(ctx)
				root := w.head("b").Newest()

				l.maker.jobs = jobs
				w.ok(a.load(ctx))
				batch, err := w.log.Since(ctx, "a", feed.Cursor{}, 1_000)
				w.ok(err)
				a.add(batch)
				breaks(w, &fails)
				w.log.Publish("b", "+new")
				state, err := w.log.State(ctx, "b")
				w.ok(err)
				b.saw(state, time.Now())
				b.asked = true
				b.turn(ctx)
				roots := w.head("b").Roots
				if got := roots[len(roots)-1]; got.Cursor != state.Head || got.Upto <= root.Upto {
					t.Errorf("the newest root of the other set is at %v, want %v", got.Cursor, state.Head)
				}
				if l.maker.waiting != 0 {
					t.Errorf("%d bytes wait", l.maker.waiting)
				}
				if w.text.String() != "" {
					t.Errorf("the log has %s", w.text)
				}
			})
		})
	}
}

// TestLost makes inventories whose log loses its tail: before a commit, and after.
func TestLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(3_000, Options{})
		w.ok(l.Complete(t.Context(), "a", true))
		w.after(3 * time.Minute)
		old := w.state(l, "a")
		if !old.Complete {
			t.Error("it is not complete although somebody said so")
		}

		// What waits is lost, and other changes come.
		w.log.Publish("a", "+lost", "-000001")
		w.after(time.Second)
		w.state(l, "a")
		w.log.Lose("a", 3_000)
		w.log.Publish("a", "+other", "+000002", "+third")
		w.after(time.Second)
		if h := w.state(l, "a"); !h.Complete {
			t.Error("it is not complete although nothing is lost that was there when it was said")
		}
		w.after(11 * time.Minute)
		if h := w.state(l, "a"); !h.Complete || w.head("a").Newest().Cursor.Position != 3_003 {
			t.Errorf("complete is %v, the root is at %v", h.Complete, w.head("a").Newest().Cursor)
		}

		// What a root has is lost.
		w.after(time.Hour)
		w.log.Publish("a", many(2_000)...)
		w.after(11 * time.Minute)
		w.log.Lose("a", 4_000)
		at := w.log.Publish("a", "+fourth")
		w.after(20 * time.Second)
		h := w.state(l, "a")
		if !h.Complete || h.Cursor() != at || !strings.Contains(w.text.String(), "the log lost its newest changes") {
			t.Errorf("at %v, complete is %v", h.Cursor(), h.Complete)
		}

		// The same, and the log has no beginning any more.
		w.log.Publish("a", many(2_000)...)
		w.after(time.Hour)
		w.log.Trim("a", 3_500)
		w.log.Lose("a", 4_001)
		at = w.log.Publish("a", "+fifth")
		w.after(20 * time.Second)
		h = w.got(l.State(t.Context(), "a", feed.Cursor{}, 0))
		h.Release()
		if h.Complete || h.Cursor() != at || !strings.Contains(w.text.String(), "an inventory is no longer complete") {
			t.Errorf("at %v, complete is %v although a root has lost its log", h.Cursor(), h.Complete)
		}
		for _, want := range []string{"fifth", "fourth"} {
			if _, ok, err := h.Get(t.Context(), "http://example.org/"+want); err != nil || !ok {
				t.Errorf("%s: %v, %v", want, ok, err)
			}
		}
		w.ok(l.Complete(t.Context(), "a", true))
		if h, err := l.State(t.Context(), "a", feed.Cursor{}, 0); err != nil || !h.Complete {
			t.Errorf("it is not complete although somebody said so again: %v", err)
		}
	})
}

// TestCompleteLost says that a set is complete, and then its log loses the cursor of which
// that was said.
func TestCompleteLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(3_000, Options{})
		idle := w.idle(Options{}) // whoever is asked makes the root, so ask one that makes nothing
		w.log.Publish("a", "+b", "+c")
		w.ok(idle.Complete(t.Context(), "a", true))
		w.after(time.Second)
		w.log.Lose("a", 3_000)
		w.log.Publish("a", "+d")
		if h := w.state(l, "a"); h.Complete {
			t.Error("complete although that was said of a later cursor")
		}
		w.log.Publish("a", "+e", "+f")
		if h := w.state(l, "a"); h.Complete {
			t.Error("complete although the log lost changes since that was said")
		}
		w.after(11 * time.Minute)
		if h := w.state(l, "a"); h.Complete || !w.head("a").Complete.IsZero() {
			t.Error("complete after a commit, although the log lost changes since that was said")
		}
	})
}

// TestCompleteMeanwhile commits changes of a log that has lost the cursor as of which a set
// was complete. During the commit a publisher says again that the set is complete.
func TestCompleteMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, stop := w.made(3_000, Options{})
		stop()
		idle := w.idle(Options{})
		w.log.Publish("a", "+b")
		w.ok(idle.Complete(t.Context(), "a", true))
		w.log.Lose("a", 3_000)
		w.after(time.Second)
		w.log.Publish("a", "+c")
		said := false
		w.store = &watched{Store: w.store, before: func(_ context.Context, call string) (err error) {
			if call == "put" && !said {
				said = true
				err = idle.Complete(t.Context(), "a", true)
			}
			return err
		}}
		l, _ := w.hub(Options{})
		w.after(11 * time.Minute)
		if h := w.state(l, "a"); !said || !h.Complete {
			t.Errorf("said %v, complete %v", said, h.Complete)
		}
	})
}

// TestPassed lets retention remove what an inventory has not got.
func TestPassed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, stop := w.made(3_000, Options{})
		w.ok(l.Complete(t.Context(), "a", true))
		stop()
		w.log.Publish("a", "+lost", "+kept", "-000000")
		w.log.Trim("a", 3_001)
		if _, err := l.State(t.Context(), "a", feed.Cursor{}, 0); !errors.Is(err, ErrBehind) {
			t.Errorf("a state without what retention removed: %v", err)
		}
		l, _ = w.hub(Options{})
		w.after(2 * time.Second)
		h := w.got(l.State(t.Context(), "a", feed.Cursor{}, 0))
		if h.Complete || h.Cursor().Position != 3_003 {
			t.Errorf("at %v, complete is %v although retention has passed the inventory", h.Cursor(), h.Complete)
		}
		want := map[string]uint64{"http://example.org/kept": 3_002}
		for i := 1; i < 3_000; i++ {
			want[fmt.Sprintf("http://example.org/%06d", i)] = uint64(i + 1)
		}
		w.has(h, want)
		h.Release()
		if w.head("a").Why != whyPassed {
			t.Errorf("it is not complete because of %q", w.head("a").Why)
		}

		// A log without its beginning.
		w.log.Create("b")
		w.log.Publish("b", many(10)...)
		w.log.Trim("b", 5)
		w.after(10 * time.Second)
		if h := w.state(l, "b"); h.Complete {
			t.Error("complete without the beginning")
		}
	})
}

// TestPassedWhatWaits lets retention remove what waits for a commit, with the cursor as of
// which the set is complete.
func TestPassedWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(3_000, Options{})
		idle := w.idle(Options{})
		w.log.Publish("a", "+b")
		w.ok(idle.Complete(t.Context(), "a", true))
		at := w.log.Publish("a", "+c", "+d")
		w.after(time.Second)
		w.log.Trim("a", 3_002)
		if _, err := l.State(t.Context(), "a", feed.Cursor{}, 0); !errors.Is(err, ErrBehind) {
			t.Errorf("a state without what retention removed: %v", err)
		}
		w.after(time.Second) // not until the root is ten minutes old
		if newest := w.head("a").Newest(); newest.Cursor != at || newest.Tally.Count != 3_003 {
			t.Errorf("the newest root is at %v, want %v\n%s", newest.Cursor, at, w.text)
		}
		h := w.got(l.State(t.Context(), "a", feed.Cursor{}, 0))
		if h.Complete {
			t.Error("complete as of a cursor that nobody can look up")
		}
		h.Release()
	})
}

// TestAnew deletes a set and makes it anew while its inventory is made and read.
func TestAnew(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(3_000, Options{})
		base := w.got(l.Baseline(t.Context(), "a"))
		defer base.Release()
		old := w.got(l.State(t.Context(), "a", feed.Cursor{}, 0))
		old.Release()
		w.log.Publish("a", "+x")
		w.ok(w.log.Delete(t.Context(), "a"))
		refuses(t, l, old.Cursor(), feed.ErrNoSet)
		w.log.Create("a")
		w.log.Publish("a", "+new")
		if _, err := l.At(t.Context(), "a", old.Cursor()); !errors.Is(err, feed.ErrGone) {
			t.Errorf("a state of the set before: %v", err)
		}
		w.state(l, "a")
		if _, err := l.BaselineAt(t.Context(), "a", base.Cursor()); !errors.Is(err, feed.ErrGone) {
			t.Errorf("a baseline of the set before: %v", err)
		}
		w.after(10 * time.Second)
		w.state(l, "a")
		if n := w.head("a").Newest().Tally.Count; n != 1 {
			t.Errorf("the new set has %d resources", n)
		}
		for _, err := range base.Walk(t.Context(), inventory.Range{}) {
			if err != nil && !errors.Is(err, feed.ErrGone) {
				t.Errorf("a baseline under which the set was made anew: %v", err)
			}
		}
	})
}

// refuses checks that every question about the set is answered with an error.
func refuses(t *testing.T, l *Live, at feed.Cursor, want error) {
	t.Helper()
	ctx := t.Context()
	_, state := l.State(ctx, "a", feed.Cursor{}, 0)
	_, exactly := l.At(ctx, "a", at)
	_, baseline := l.Baseline(ctx, "a")
	_, list := l.ResourceList(ctx, "a", feed.Cursor{})
	for i, err := range []error{state, exactly, baseline, list, l.Complete(ctx, "a", true)} {
		if !errors.Is(err, want) {
			t.Errorf("question %d is answered with %v, want %v", i, err, want)
		}
	}
}

// TestTogether lets two hubs make the same inventories at the same time.
func TestTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		a, _ := w.hub(Options{})
		b, _ := w.hub(Options{Poll: 700 * time.Millisecond})
		rounds := 200
		if testing.Short() {
			rounds = 80
		}
		for i := range rounds {
			w.log.Publish("a", many(50+i)...)
			w.after(400 * time.Millisecond)
			w.state(a, "a")
			w.state(b, "a")
		}
		w.after(10 * time.Second)
		if got, want := w.head("a").Newest().Cursor, w.state(a, "a").Cursor(); got != want {
			t.Errorf("the root is at %v, want %v", got, want)
		}
		w.ok(inventory.New(w.store, "a", inventory.Options{}).Check(t.Context()))
	})
}

// TestOff turns the inventory of a set off, and on again.
func TestOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.made(100, Options{})
		w.log.SetNoInventory("a", true)
		w.after(10 * time.Second)
		if n := len(w.head("a").Roots); n > 0 {
			t.Errorf("%d roots of a set whose source wants no inventory", n)
		}
		refuses(t, l, feed.Cursor{}, feed.ErrNoInventory)
		if _, err := l.BaselineAt(t.Context(), "a", feed.Cursor{}); !errors.Is(err, feed.ErrNoInventory) {
			t.Errorf("a baseline of a set without an inventory: %v", err)
		}
		if _, ok := l.Unread(t.Context(), "a"); ok {
			t.Error("retention waits for an inventory that is off")
		}
		w.log.SetNoInventory("a", false)
		w.after(10 * time.Second)
		w.state(l, "a")
		if n := w.head("a").Newest().Tally.Count; n != 100 {
			t.Errorf("%d resources after it was turned on again", n)
		}
	})
}

// TestSweepDeleted removes what deleted sets have left: soon, some at a time, and then
// each hour.
func TestSweepDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex // guards these
		left, calls, fail := 250, 0, error(nil)
		l := w.idle(Options{SweepDeleted: func(_ context.Context, most int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			n := min(left, most)
			left -= n
			return n, fail
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		is := func(wantCalls int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if left != 0 || calls != wantCalls {
				t.Errorf("%d sets are left, in %d rounds, want %d", left, calls, wantCalls)
			}
		}
		w.after(50 * time.Second)
		is(3)
		w.after(10 * time.Minute)
		is(3) // nothing was left
		mu.Lock()
		left, fail = 5, errors.New("the store is away")
		mu.Unlock()
		w.after(time.Hour)
		is(4)
		if !strings.Contains(w.text.String(), "the store is away") {
			t.Error("nothing was logged")
		}
	})
}
