package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// A pin keeps a root until it expires.
func TestPinExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter(t, Options{})
		first := w.peps(10)
		pin := func(upto uint64, holder string, lasts time.Duration) {
			t.Helper()
			if root, err := w.Pin(t.Context(), upto, holder, lasts); err != nil || root != first {
				t.Fatalf("Pin() = %v, %v, want %v", root, err, first)
			}
		}
		pin(first.Upto, "a", time.Minute)
		pin(first.Upto, "b", time.Minute)
		pin(0, "a", time.Second) // does not shorten the pin
		second := w.peps(20)
		time.Sleep(59 * time.Second)
		w.ok(w.Shrink(t.Context()))
		if got := w.roots(); !slices.Equal(got, []uint64{first.Upto, second.Upto}) {
			t.Fatalf("roots with a pin: got %d, want 2", got)
		}
		pin(first.Upto, "b", time.Minute)
		time.Sleep(2 * time.Second)
		w.ok(w.Unpin(t.Context(), first.Upto, "b"))
		w.ok(w.Shrink(t.Context()))
		if got := w.roots(); !slices.Equal(got, []uint64{second.Upto}) {
			t.Fatalf("roots without a pin: got %d, want 1", got)
		}
		if err := w.List(t.Context(), first.Upto); !errors.Is(err, feed.ErrGone) {
			t.Errorf("List() of a dropped root = %v, want %v", err, feed.ErrGone)
		}
		w.ok(w.Sweep(t.Context()))
		for _, err := range w.Tree(first).Walk(t.Context(), Range{}) {
			if !errors.Is(err, feed.ErrGone) {
				t.Fatalf("walk of a dropped root: got error %v, want %v", err, feed.ErrGone)
			}
		}
	})
}

// A commit keeps the newest root, the roots of the two newest Resource Lists, and pinned ones up to MaxRoots in all.
func TestNeededRoots(t *testing.T) {
	for _, tt := range []struct{ roots, want string }{ // L: listed, P: pinned, E: expired pin; n: needed
		{"", ""},
		{"-", "n"},
		{"--E-", "---n"},
		{"P-P-", "n-nn"},
		{"PPPP-", "-nnnn"},
		{"LLL-", "-nnn"},
		{"LPLPL", "-nnnn"},
		{"LLPP-", "nn-nn"},
		{"PLPLP", "-nnnn"},
	} {
		var h Head
		for _, c := range tt.roots {
			h.Roots = append(h.Roots, map[rune]Kept{'-': {}, 'L': {Listed: 1}, 'P': {Pins: []Pin{{"a", 3}, {"b", 6}}}, 'E': {Pins: []Pin{{"a", 5}}}}[c])
		}
		got := ""
		for _, needed := range h.neededRoots(5) {
			got += map[bool]string{false: "-", true: "n"}[needed]
		}
		if got != tt.want {
			t.Errorf("needed of the roots %s: got %s, want %s", tt.roots, got, tt.want)
		}
	}
}

// Cost predicts how many bytes a commit writes.
func TestCost(t *testing.T) {
	w := newTestWriter(t, Options{PageBytes: 1000})
	root := w.peps(3000)
	for _, n := range []int{1, 10, 100, 1500, 3000} {
		var changed []feed.Entry
		for i, e := range sourcetest.PEPs(3000) {
			if i%(3000/n) == 0 {
				changed = append(changed, e)
			}
		}
		var b Backlog
		b.Add(changed)
		cost, err := w.Tree(root).Cost(t.Context(), &b)
		w.ok(err)
		written := uint64(0)
		w.store.before = func(_ string, pages []Page) error {
			for _, p := range pages {
				written += uint64(len(p.Bytes))
			}
			return nil
		}
		if root = w.commit(changed); cost < written/2 || cost > written*2 {
			t.Errorf("Cost() of %d changes = %d, want about %d", n, cost, written)
		}
	}
}

// Commit refuses changes that are not in order.
func TestCommitOrder(t *testing.T) {
	w := newTestWriter(t, Options{})
	root := w.peps(10)
	all := sourcetest.PEPs(10)
	for _, wrong := range [][]feed.Entry{{all[3], all[2]}, {all[3], all[3]}, {{}}} {
		if _, err := w.Commit(t.Context(), w.changesOf(wrong)); err == nil {
			t.Errorf("Commit() of %v: got no error", wrong)
		}
	}
	failed := errors.New("interrupted")
	c := w.changesOf(all)
	c.Step = func() error { return failed }
	if _, err := w.Commit(t.Context(), c); !errors.Is(err, failed) {
		t.Errorf("Commit() of interrupted changes = %v, want %v", err, failed)
	}
	if got := w.roots(); !slices.Equal(got, []uint64{root.Upto}) {
		t.Errorf("roots: got %d, want %d", got, root.Upto)
	}
}

// Inventories of all sizes can be filled and emptied.
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 70, 80, 5000, 49_999, 50_001} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n > 5000 {
				t.Skip("long")
			}
			w := newTestWriter(t, Options{})
			if root := w.peps(n); root.Tally.Count != uint64(n) {
				t.Fatalf("resources: got %d, want %d", root.Tally.Count, n)
			}
			w.roots()
			empty := w.commit(deletions(sourcetest.PEPs(n), func(int) bool { return true }))
			if empty.Tally != (digest.Tally{}) || empty.Height != 0 || empty.Bytes != 0 || empty.Pages != 0 {
				t.Fatalf("empty root: got %+v", empty)
			}
			w.roots()
		})
	}
}

// When most resources are deleted, few pages remain, and at most the last of each level is nearly
// empty.
func TestDeletions(t *testing.T) {
	w := newTestWriter(t, Options{})
	root := w.peps(20_000)
	for keep := 2; root.Tally.Count > 100; keep++ {
		var all []feed.Entry
		for e, err := range w.Tree(root).Walk(t.Context(), Range{}) {
			w.ok(err)
			all = append(all, *e)
		}
		root = w.commit(deletions(all, func(i int) bool { return (i+1)%keep > 0 }))
		w.roots()
		leaves := root.Pages - uint64(root.Height) + 1
		if most := 3 + root.Tally.Count*75/(pageBytes*2/5); leaves > most {
			t.Fatalf("pages of %d resources: got %d, want at most %d leaves", root.Tally.Count, root.Pages, most)
		}
	}
}

// The resources of pages that become nearly empty move to neighbouring pages.
func TestMergeNeighbours(t *testing.T) {
	for _, every := range []int{11, 1100} { // leaves that are emptied, or whole inner pages
		w := newTestWriter(t, Options{PageBytes: 1000})
		w.peps(20_000)
		root := w.commit(deletions(sourcetest.PEPs(20_000), func(i int) bool { return (i+1)/every%3 == 0 && (i+1)%5 > 0 }))
		w.roots()
		numbers := map[uint64]bool{}
		w.ok(w.Tree(root).mark(t.Context(), numbers))
		pages, err := w.Tree(root).read(t.Context(), slices.Collect(maps.Keys(numbers)))
		w.ok(err)
		small := 0
		for _, p := range pages {
			if len(p) < 1000*2/5-page.Frame {
				small++
			}
		}
		if small > root.Height {
			t.Errorf("nearly empty pages: got %d of %d, want at most %d", small, root.Pages, root.Height)
		}
	}
}
