package inventory

import (
	"runtime"
	"testing"

	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// heapOf returns the memory of what make returns, in bytes.
func heapOf[T any](t *testing.T, make func() T) (T, int) {
	t.Helper()
	live := func() int {
		runtime.GC()
		runtime.GC() // frees what finalizers have kept
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := live()
	made := make()
	n := live() - before
	runtime.KeepAlive(made)
	return made, n
}

// The budgets of memory rely on the sizes that are reported.
func TestReportedMemory(t *testing.T) {
	const n = 50_000
	entries := sourcetest.PEPs(n)
	check := func(t *testing.T, got, heap int) {
		t.Helper()
		if got < heap*9/10 || got > heap*13/10 {
			t.Errorf("reported memory: got %d bytes, want about %d", got, heap)
		}
	}
	t.Run("backlog", func(t *testing.T) {
		b, heap := heapOf(t, func() *Backlog {
			b := new(Backlog)
			for i := 0; i < n; i += 1000 {
				b.Add(entries[i : i+1000])
			}
			b.order()
			return b
		})
		check(t, b.Bytes(), heap)
	})
	t.Run("overlay", func(t *testing.T) {
		tree := New(NewMemory(), "set", Options{}).Tree(Root{})
		o, heap := heapOf(t, func() *Overlay {
			o := NewOverlay(tree)
			for i := 0; i < n; i += 1000 {
				if err := o.Add(t.Context(), entries[i:i+1000]); err != nil {
					t.Fatal(err)
				}
			}
			o.State(entries[n-1].Cursor)
			return o
		})
		check(t, o.Bytes(), heap)
	})
	runtime.KeepAlive(entries) // so that it is not freed in between
}
