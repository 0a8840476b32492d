package inventory

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// peps yields n resources of the shape of Python's PEPs.
func peps(n int) iter.Seq[*feed.Entry] { return pointers(sourcetest.PEPs(n)) }

func pointers(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// commit makes the next root, which holds the first n PEPs.
func commit(t *testing.T, v *Inventory, n int) Root {
	t.Helper()
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := v.Commit(t.Context(), Changes{Base: head.Newest(), To: feed.Cursor{Position: uint64(n), Micros: 1}, Sorted: peps(n)})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// lives returns which roots live.
func lives(t *testing.T, v *Inventory) (upto []uint64) {
	t.Helper()
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range head.Roots {
		upto = append(upto, k.Upto)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return upto
}

// TestPinExpires lets a pin run out, and another be renewed.
func TestPinExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(NewMemory(), "set", Options{})
		first := commit(t, v, 10)
		for _, holder := range []string{"a", "b"} {
			if root, err := v.Pin(t.Context(), first.Upto, holder, time.Minute); err != nil || root != first {
				t.Fatalf("pin: %v, %v", root, err)
			}
		}
		if _, err := v.Pin(t.Context(), 0, "a", time.Second); err != nil { // does not shorten the pin
			t.Fatal(err)
		}
		second := commit(t, v, 20)
		time.Sleep(59 * time.Second)
		if err := v.Shrink(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := lives(t, v); !slices.Equal(got, []uint64{first.Upto, second.Upto}) {
			t.Fatalf("while the pin lasts %d live", got)
		}
		if _, err := v.Pin(t.Context(), first.Upto, "b", time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := v.Unpin(t.Context(), first.Upto, "b"); err != nil {
			t.Fatal(err)
		}
		if err := v.Shrink(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := lives(t, v); !slices.Equal(got, []uint64{second.Upto}) {
			t.Fatalf("when no pin lasts %d live", got)
		}
		if err := v.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, err := range v.Tree(first).Walk(t.Context(), Range{}) {
			if !errors.Is(err, feed.ErrGone) {
				t.Fatalf("reading a root that lives no more: %v", err)
			}
		}
	})
}

// TestRootsAreFew pins and lists more roots than may live.
func TestRootsAreFew(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	var roots []uint64
	for i := range 9 {
		root := commit(t, v, 100*(i+1))
		roots = append(roots, root.Upto)
		if err := v.List(t.Context(), root.Upto); i < 3 && err != nil {
			t.Fatal(err)
		}
		if _, err := v.Pin(t.Context(), root.Upto, "me", time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := lives(t, v); len(got) > MaxRoots {
			t.Fatalf("%d roots live", len(got))
		}
	}
	if got := lives(t, v); !slices.Equal(got, roots[5:]) {
		t.Fatalf("%d live of %d", got, roots)
	}
	if err := v.List(t.Context(), roots[0]); !errors.Is(err, feed.ErrGone) {
		t.Fatalf("listing a root that lives no more: %v", err)
	}
}

// TestListedRootsLive makes roots behind two of a Resource List.
func TestListedRootsLive(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	var listed []uint64
	for i := range 12 {
		root := commit(t, v, 50*(i+1))
		if i%3 == 0 {
			if err := v.List(t.Context(), root.Upto); err != nil {
				t.Fatal(err)
			}
			listed = append(listed, root.Upto)
		}
		want := slices.Clone(listed[max(0, len(listed)-2):])
		if i%3 == 0 && len(listed) > 2 {
			want = slices.Clone(listed[len(listed)-3:]) // the oldest dies with the next commit
		}
		if !slices.Contains(want, root.Upto) {
			want = append(want, root.Upto)
		}
		if got := lives(t, v); !slices.Equal(got, want) {
			t.Fatalf("after commit %d: %d live, want %d", i, got, want)
		}
	}
}

// TestPinNothing pins an inventory without a root.
func TestPinNothing(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	root, err := v.Pin(t.Context(), 0, "me", time.Hour)
	if err != nil || root != (Root{}) {
		t.Fatalf("pin: %v, %v", root, err)
	}
	for e, err := range v.Tree(root).Walk(t.Context(), Range{}) {
		t.Fatalf("there is %v, %v", e, err)
	}
}

// TestComplete says that an inventory is complete, and takes it back.
func TestComplete(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	at := feed.Cursor{Position: 5, Micros: 9}
	if err := v.SetComplete(t.Context(), at, ""); err != nil {
		t.Fatal(err)
	}
	root := commit(t, v, 10)
	_, head, err := v.Load(t.Context())
	if err != nil || !head.IsComplete(root.Cursor) || head.IsComplete(feed.Cursor{Position: 4, Micros: 1}) {
		t.Fatalf("complete as of %v (%v)", head.Complete, err)
	}
	if _, err := v.Forget(t.Context(), root, feed.Cursor{Position: 2, Micros: 1}, "the log was lost"); err != nil {
		t.Fatal(err)
	}
	if _, head, err = v.Load(t.Context()); err != nil || head.IsComplete(root.Cursor) || head.Why != "the log was lost" || head.Newest().Tally.Count != 2 {
		t.Fatalf("complete as of %v because of %q (%v)", head.Complete, head.Why, err)
	}
}

// TestCost compares what commits write with what Cost says.
func TestCost(t *testing.T) {
	v := New(NewMemory(), "set", Options{PageBytes: 1000})
	root := commit(t, v, 3000)
	for _, n := range []int{1, 10, 100, 1500, 3000} {
		all := sourcetest.PEPs(3000)
		var changed []feed.Entry
		for i := 0; i < len(all); i += len(all) / n {
			changed = append(changed, all[i])
		}
		var b Backlog
		b.Add(changed)
		cost, err := v.Tree(root).Cost(t.Context(), &b)
		if err != nil {
			t.Fatal(err)
		}
		counting := &counting{Store: v.store}
		next, err := New(counting, "set", Options{PageBytes: 1000}).Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(changed)})
		if err != nil {
			t.Fatal(err)
		}
		if cost < counting.bytes/2 || cost > counting.bytes*2 {
			t.Errorf("%d changes cost %d bytes, and Cost said %d", n, counting.bytes, cost)
		}
		root = next
	}
}

// TestOrder refuses changes that are not in order.
func TestOrder(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	root := commit(t, v, 10)
	all := sourcetest.PEPs(10)
	for _, wrong := range [][]feed.Entry{{all[3], all[2]}, {all[3], all[3]}, {{}}} {
		if _, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(wrong)}); err == nil {
			t.Errorf("changes in a wrong order were taken")
		}
	}
	failed := errors.New("no more")
	_, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(all), Step: func() error { return failed }})
	if !errors.Is(err, failed) {
		t.Errorf("changes that ended early: %v", err)
	}
	if got := lives(t, v); !slices.Equal(got, []uint64{root.Upto}) {
		t.Errorf("%d live", got)
	}
}

// TestSizes makes inventories of some sizes, and empties them again.
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 70, 80, 5000, 49_999, 50_001} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n > 5000 {
				t.Skip("long")
			}
			v := New(NewMemory(), "set", Options{})
			root := commit(t, v, n)
			if root.Tally.Count != uint64(n) {
				t.Fatalf("%d resources", root.Tally.Count)
			}
			lives(t, v)
			empty, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: func(yield func(*feed.Entry) bool) {
				for e := range peps(n) {
					e.Change.Change = "deleted"
					if !yield(e) {
						return
					}
				}
			}})
			if err != nil || empty.Tally != (digest.Tally{}) || empty.Height != 0 || empty.Bytes != 0 || empty.Pages != 0 {
				t.Fatalf("the empty root is %+v, %v", empty, err)
			}
			lives(t, v)
		})
	}
}

// TestShrinksWithItsResources removes most resources: few pages are left, none nearly
// empty but the last of each level.
func TestShrinksWithItsResources(t *testing.T) {
	v := New(NewMemory(), "set", Options{})
	root := commit(t, v, 20_000)
	for keep := 2; root.Tally.Count > 100; keep++ {
		var gone []feed.Entry
		i := 0
		for e, err := range v.Tree(root).Walk(t.Context(), Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if i++; i%keep > 0 {
				e := *e
				e.Change.Change = "deleted"
				gone = append(gone, e)
			}
		}
		var err error
		if root, err = v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(gone)}); err != nil {
			t.Fatal(err)
		}
		lives(t, v)
		leaves := root.Pages - uint64(root.Height) + 1
		if most := 3 + root.Tally.Count*75/(pageBytes*2/5); leaves > most {
			t.Fatalf("%d resources on %d pages", root.Tally.Count, root.Pages)
		}
	}
}

// TestNeighboursMerge empties some pages nearly: their resources go to neighbours.
func TestNeighboursMerge(t *testing.T) {
	for _, every := range []int{3, 300} { // leaves that are emptied, or whole inner pages
		v := New(NewMemory(), "set", Options{PageBytes: 1000})
		root := commit(t, v, 20_000)
		var gone []feed.Entry
		i := 0
		for e := range peps(20_000) {
			if i++; i/(11*every/3)%3 == 0 && i%5 > 0 {
				e.Change.Change = "deleted"
				gone = append(gone, *e)
			}
		}
		root, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(gone)})
		if err != nil {
			t.Fatal(err)
		}
		lives(t, v)
		numbers := map[uint64]bool{}
		if err := v.Tree(root).mark(t.Context(), numbers); err != nil {
			t.Fatal(err)
		}
		pages, err := v.Tree(root).read(t.Context(), slices.Collect(maps.Keys(numbers)))
		if err != nil {
			t.Fatal(err)
		}
		small := 0
		for _, p := range pages {
			if len(p) < 1000*2/5-page.Frame {
				small++
			}
		}
		if small > root.Height {
			t.Errorf("%d pages of %d are nearly empty", small, root.Pages)
		}
	}
}

// A counting store counts the bytes that are put.
type counting struct {
	Store
	bytes uint64
}

func (c *counting) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []Page) error {
	for _, p := range pages {
		c.bytes += uint64(len(p.Bytes))
	}
	return c.Store.Put(ctx, set, begin, attempt, pages)
}
