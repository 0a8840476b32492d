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
func commit(t *testing.T, v *Writer, n int) Root {
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

// keptRoots checks an inventory, and returns its roots by Root.Upto.
func keptRoots(t *testing.T, v *Writer) (upto []uint64) {
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

// A pin keeps a root until it expires.
func TestPinExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(NewMemory(), "set", Options{}).Writer(1)
		first := commit(t, v, 10)
		for _, holder := range []string{"a", "b"} {
			if root, err := v.Pin(t.Context(), first.Upto, holder, time.Minute); err != nil || root != first {
				t.Fatalf("Pin() = %v, %v, want %v", root, err, first)
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
		if got := keptRoots(t, v); !slices.Equal(got, []uint64{first.Upto, second.Upto}) {
			t.Fatalf("roots with a pin: got %d, want 2", got)
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
		if got := keptRoots(t, v); !slices.Equal(got, []uint64{second.Upto}) {
			t.Fatalf("roots without a pin: got %d, want 1", got)
		}
		if err := v.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, err := range v.Tree(first).Walk(t.Context(), Range{}) {
			if !errors.Is(err, feed.ErrGone) {
				t.Fatalf("walk of a dropped root: got error %v, want %v", err, feed.ErrGone)
			}
		}
	})
}

// At most MaxRoots roots are kept, even if more are pinned and listed.
func TestMaxRoots(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
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
		if got := keptRoots(t, v); len(got) > MaxRoots {
			t.Fatalf("roots: got %d, want at most %d", len(got), MaxRoots)
		}
	}
	if got := keptRoots(t, v); !slices.Equal(got, roots[5:]) {
		t.Fatalf("roots: got %d, want the newest of %d", got, roots)
	}
	if err := v.List(t.Context(), roots[0]); !errors.Is(err, feed.ErrGone) {
		t.Fatalf("List() of a dropped root: got error %v, want %v", err, feed.ErrGone)
	}
}

// The roots of the two newest Resource Lists are kept.
func TestListedRoots(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
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
			want = slices.Clone(listed[len(listed)-3:]) // the next commit drops the oldest
		}
		if !slices.Contains(want, root.Upto) {
			want = append(want, root.Upto)
		}
		if got := keptRoots(t, v); !slices.Equal(got, want) {
			t.Fatalf("roots after commit %d: got %d, want %d", i, got, want)
		}
	}
}

// An inventory without a root can be pinned and read.
func TestPinWithoutRoot(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
	root, err := v.Pin(t.Context(), 0, "me", time.Hour)
	if err != nil || root != (Root{}) {
		t.Fatalf("Pin() = %v, %v, want the zero Root", root, err)
	}
	for e, err := range v.Tree(root).Walk(t.Context(), Range{}) {
		t.Fatalf("walk: got %v, %v, want nothing", e, err)
	}
}

// Forget ends the completeness of an inventory.
func TestComplete(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
	at := feed.Cursor{Position: 5, Micros: 9}
	if err := v.SetComplete(t.Context(), at, ""); err != nil {
		t.Fatal(err)
	}
	root := commit(t, v, 10)
	_, head, err := v.Load(t.Context())
	if err != nil || !head.IsComplete(root.Cursor) || head.IsComplete(feed.Cursor{Position: 4, Micros: 1}) {
		t.Fatalf("complete: got %v, %v, want %v", head.Complete, err, at)
	}
	if _, err := v.Forget(t.Context(), root, feed.Cursor{Position: 2, Micros: 1}, "the log was lost"); err != nil {
		t.Fatal(err)
	}
	if _, head, err = v.Load(t.Context()); err != nil || head.IsComplete(root.Cursor) || head.Why != "the log was lost" || head.Newest().Tally.Count != 2 {
		t.Fatalf("after Forget: got complete %v, why %q, error %v", head.Complete, head.Why, err)
	}
}

// Cost predicts how many bytes a commit writes.
func TestCost(t *testing.T) {
	v := New(NewMemory(), "set", Options{PageBytes: 1000}).Writer(1)
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
		next, err := New(counting, "set", Options{PageBytes: 1000}).Writer(1).Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(changed)})
		if err != nil {
			t.Fatal(err)
		}
		if cost < counting.bytes/2 || cost > counting.bytes*2 {
			t.Errorf("Cost() of %d changes: got %d, want about %d", n, cost, counting.bytes)
		}
		root = next
	}
}

// Commit refuses changes that are not in order.
func TestCommitOrder(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
	root := commit(t, v, 10)
	all := sourcetest.PEPs(10)
	for _, wrong := range [][]feed.Entry{{all[3], all[2]}, {all[3], all[3]}, {{}}} {
		if _, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(wrong)}); err == nil {
			t.Errorf("Commit() of %v: got no error", wrong)
		}
	}
	failed := errors.New("interrupted")
	_, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(all), Step: func() error { return failed }})
	if !errors.Is(err, failed) {
		t.Errorf("Commit() of interrupted changes: got error %v, want %v", err, failed)
	}
	if got := keptRoots(t, v); !slices.Equal(got, []uint64{root.Upto}) {
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
			v := New(NewMemory(), "set", Options{}).Writer(1)
			root := commit(t, v, n)
			if root.Tally.Count != uint64(n) {
				t.Fatalf("resources: got %d, want %d", root.Tally.Count, n)
			}
			keptRoots(t, v)
			empty, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: func(yield func(*feed.Entry) bool) {
				for e := range peps(n) {
					e.Change.Change = "deleted"
					if !yield(e) {
						return
					}
				}
			}})
			if err != nil || empty.Tally != (digest.Tally{}) || empty.Height != 0 || empty.Bytes != 0 || empty.Pages != 0 {
				t.Fatalf("empty root: got %+v, %v", empty, err)
			}
			keptRoots(t, v)
		})
	}
}

// When most resources are deleted, few pages remain, and at most the last of each level is nearly
// empty.
func TestDeletions(t *testing.T) {
	v := New(NewMemory(), "set", Options{}).Writer(1)
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
		keptRoots(t, v)
		leaves := root.Pages - uint64(root.Height) + 1
		if most := 3 + root.Tally.Count*75/(pageBytes*2/5); leaves > most {
			t.Fatalf("pages of %d resources: got %d, want at most %d leaves", root.Tally.Count, root.Pages, most)
		}
	}
}

// The resources of pages that become nearly empty move to neighbouring pages.
func TestMergeNeighbours(t *testing.T) {
	for _, every := range []int{3, 300} { // leaves that are emptied, or whole inner pages
		v := New(NewMemory(), "set", Options{PageBytes: 1000}).Writer(1)
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
		keptRoots(t, v)
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
			t.Errorf("nearly empty pages: got %d of %d, want at most %d", small, root.Pages, root.Height)
		}
	}
}

// A counting store counts the bytes that are put.
type counting struct {
	Store
	bytes uint64
}

func (c *counting) Put(ctx context.Context, set string, begin int64, term uint64, pages []Page) error {
	for _, p := range pages {
		c.bytes += uint64(len(p.Bytes))
	}
	return c.Store.Put(ctx, set, begin, term, pages)
}
