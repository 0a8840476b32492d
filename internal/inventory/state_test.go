package inventory

import (
	"context"
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// wantSplit fails the test unless the parts of a range are together the range, about
// equal and exactly tallied.
func wantSplit(t *testing.T, s *State, in Range, want *sorted) {
	t.Helper()
	ctx := context.Background()
	all, _ := want.Tally(ctx, in)
	count := all.Count
	for _, n := range []int{4, 64, 256} {
		parts, err := s.Split(ctx, in, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) > n || len(parts) == 0 || count > 1 && len(parts) < 2 || count < 2 && len(parts) != 1 {
			t.Fatalf("%d resources in %d parts of %d", count, len(parts), n)
		}
		if parts[0].From != in.From || parts[len(parts)-1].To != in.To {
			t.Fatal("the parts are not the range")
		}
		for i, p := range parts {
			if i > 0 && (p.From != parts[i-1].To || p.From == "") || p.To != "" && p.From >= p.To {
				t.Fatalf("part %d, %q, does not follow %q", i, p.Range, parts[max(0, i-1)].Range)
			}
			if most := (count + uint64(n) - 1) / uint64(n); count <= splitByWalk && p.Tally.Count > most {
				t.Fatalf("part %d of %d resources has %d", i, count, p.Tally.Count)
			}
			sum, _ := want.Tally(ctx, p.Range)
			wantTally(t, fmt.Sprint("part ", i), p.Tally, sum)
		}
	}
}

// TestSplitLopsided splits states without changes, with all changes in one place, with nothing but
// changes, and with most resources deleted.
func TestSplitLopsided(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct{ base, changes, deletions int }{
		{2_000, 0, 0}, {2_000, 1_800, 0}, {10, 2_000, 10}, {4_000, 0, 3_900}, {4_000, 0, 2_200},
	} {
		src := sourcetest.New(1, 10)
		entry := func(loc string, exists bool) feed.Entry {
			for {
				if e := src.Change(loc); Exists(&e) == exists {
					return e
				}
			}
		}
		now := sourcetest.Set{}
		for i := range test.base {
			now.Add(entry(fmt.Sprintf("https://example.org/b/%06d", i), true))
		}
		base := newSorted(now.Entries())
		o := newOverlay(base, base.total(), src.Head)
		var log []feed.Entry
		for i := range test.changes {
			log = append(log, entry(fmt.Sprintf("https://example.org/b/000100/%06d", i), true))
		}
		for i := range test.deletions {
			log = append(log, entry(fmt.Sprintf("https://example.org/b/%06d", i), false))
		}
		for _, e := range log {
			now.Add(e)
		}
		if err := o.Add(ctx, log); err != nil {
			t.Fatal(err)
		}
		s := o.State(src.Head)
		wantSplit(t, s, Range{}, newSorted(now.Entries()))

		// However lopsided, each split comes closer.
		for _, n := range []int{64, 256} {
			most := s.total.Count
			in := Range{}
			for rounds := 0; most > 64; rounds++ {
				parts, err := s.Split(ctx, in, n)
				if err != nil || rounds > 5 {
					t.Fatalf("%+v: %d resources are left after %d rounds (%v)", test, most, rounds, err)
				}
				most = 0
				for _, p := range parts {
					if p.Tally.Count >= most {
						most, in = p.Tally.Count, p.Range
					}
				}
			}
		}
	}
}

// TestStateOfTree holds states of trees, with changes behind them and without, against a
// plain map.
func TestStateOfTree(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{0, 1, 50, 1_500, 6_000} {
		now := sourcetest.Set{}
		for _, e := range sourcetest.PEPs(n) {
			now.Add(e)
		}
		src := sourcetest.New(uint64(n), 1)
		src.Head = feed.Cursor{Position: 100_000, Micros: 1_790_000_000_000_000}
		v := New(NewMemory(), "demo", Options{})
		root, err := v.Writer(1).Commit(ctx, Changes{To: src.Head, Sorted: pointers(now.Entries())})
		if err != nil {
			t.Fatal(err)
		}
		tree := v.Tree(root)
		wantState(t, tree.State(), now, src.Rand)
		parts, err := tree.State().Split(ctx, Range{}, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if most := uint64(n/64 + 200); p.Tally.Count > most { // 200: a part begins where a page does
				t.Errorf("a part of %d resources has %d", n, p.Tally.Count)
			}
		}
		o := NewOverlay(tree)
		var log []feed.Entry
		for range n / 10 {
			e := src.Change(sourcetest.PEP(src.IntN(n + n/10)))
			now.Add(e)
			log = append(log, e)
		}
		if err := o.Add(ctx, log); err != nil {
			t.Fatal(err)
		}
		wantState(t, o.State(src.Head), now, src.Rand)

		// A commit of what waits changes nothing.
		newer, err := v.Writer(1).Commit(ctx, Changes{Base: root, To: src.Head, Sorted: o.Changes()})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, v.Tree(newer).State(), now, src.Rand)
	}
}
