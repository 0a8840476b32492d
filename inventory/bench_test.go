package inventory

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/sourcetest"
)

// peps yields n resources of the shape of Python's PEPs.
func peps(n int) iter.Seq[*feed.Entry] { return pointers(sourcetest.PEPs(n)) }

// bigTree returns a tree of a million resources, in memory.
func bigTree(b *testing.B) (*Inventory, Root, []feed.Entry) {
	const n = 1_000_000
	all := sourcetest.PEPs(n)
	v := New(NewMemory(nil), "set", Options{Cache: NewCache(32 << 20)})
	root, err := v.Commit(b.Context(), Changes{To: feed.Cursor{Position: n, Micros: 1}, Sorted: pointers(all)})
	if err != nil {
		b.Fatal(err)
	}
	return v, root, all
}

func pointers(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// timer measures how much processor time a benchmark takes for each of n things. Other
// programs on the machine change it less than the time that passes.
func timer(b *testing.B, unit string) (done func(n int)) {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	begin := used()
	return func(n int) { b.ReportMetric(float64(used()-begin)/float64(n), "cpu-ns/"+unit) }
}

// BenchmarkBuild builds a tree of a million resources.
func BenchmarkBuild(b *testing.B) {
	_, _, all := bigTree(b)
	b.ReportAllocs()
	done := timer(b, "resource")
	for b.Loop() {
		v := New(NewMemory(nil), "set", Options{})
		root, err := v.Commit(b.Context(), Changes{To: feed.Cursor{Position: 1, Micros: 1}, Sorted: pointers(all)})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(root.Bytes)/float64(root.Tally.Count), "B/resource")
		b.ReportMetric(float64(root.Bytes)/float64(root.Pages), "B/page")
		b.ReportMetric(float64(root.Height), "height")
	}
	done(len(all) * b.N)
	b.ReportMetric(float64(len(all)*b.N)/b.Elapsed().Seconds(), "resources/s")
}

// BenchmarkWalk reads all of a million resources.
func BenchmarkWalk(b *testing.B) {
	v, root, _ := bigTree(b)
	b.ReportAllocs()
	n := 0
	done := timer(b, "resource")
	for b.Loop() {
		for _, err := range v.Tree(root).Walk(b.Context(), Range{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
	}
	done(n)
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "resources/s")
}

// BenchmarkMerge commits changes at random places of a million resources.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{100, 5_000, 85_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v, root, all := bigTree(b)
			b.ReportAllocs()
			done := timer(b, "change")
			for b.Loop() {
				changed := make([]feed.Entry, n)
				for i := range changed {
					changed[i] = all[rand.IntN(len(all))]
					changed[i].Position += 1_000_000
				}
				slices.SortFunc(changed, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
				changed = slices.CompactFunc(changed, func(a, b feed.Entry) bool { return a.Change.Loc == b.Change.Loc })
				var err error
				if root, err = v.Commit(b.Context(), Changes{Base: root, To: feed.Cursor{Position: 1, Micros: 1}, Sorted: pointers(changed)}); err != nil {
					b.Fatal(err)
				}
			}
			done(n * b.N)
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// BenchmarkOverlay adds changes at random places of a million resources.
func BenchmarkOverlay(b *testing.B) {
	v, root, all := bigTree(b)
	src := sourcetest.New(1, 1)
	batch := make([]feed.Entry, 80_000)
	for i := range batch {
		batch[i] = src.Existing(all[src.IntN(len(all))].Change.Loc)
		batch[i].Position += root.Cursor.Position
	}
	b.ReportAllocs()
	done := timer(b, "change")
	for b.Loop() {
		o := NewOverlay(v.Tree(root))
		for i := 0; i < len(batch); i += 1000 {
			if err := o.Add(b.Context(), batch[i:i+1000]); err != nil {
				b.Fatal(err)
			}
			o.State(batch[i+999].Cursor)
		}
		b.ReportMetric(float64(o.Bytes())/float64(o.Len()), "B/change")
	}
	done(len(batch) * b.N)
	b.ReportMetric(float64(len(batch)*b.N)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkFind looks up 5,000 of a million resources.
func BenchmarkFind(b *testing.B) {
	v, root, all := bigTree(b)
	locs := make([]string, 5000)
	b.ReportAllocs()
	done := timer(b, "resource")
	for b.Loop() {
		for i := range locs {
			locs[i] = all[rand.IntN(len(all))].Change.Loc
		}
		slices.Sort(locs)
		n := 0
		if err := v.Tree(root).Find(b.Context(), locs, func(int, *feed.Entry) { n++ }); err != nil || n != len(locs) {
			b.Fatal(n, err)
		}
	}
	done(len(locs) * b.N)
	b.ReportMetric(float64(len(locs)*b.N)/b.Elapsed().Seconds(), "resources/s")
}

// BenchmarkTally takes the tally of a range in the middle of a million resources.
func BenchmarkTally(b *testing.B) {
	v, root, all := bigTree(b)
	b.ReportAllocs()
	for b.Loop() {
		r := Range{all[rand.IntN(500_000)].Change.Loc, all[500_000+rand.IntN(500_000)].Change.Loc}
		if _, err := v.Tree(root).Tally(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
