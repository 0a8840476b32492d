package inventory

import (
	"runtime"
	"testing"

	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/internal/testutil"
)

// The budgets of memory rely on the sizes that are reported.
func TestReportedMemory(t *testing.T) {
	const n = 50_000
	entries := sourcetest.PEPs(n)
	for name, fill := range map[string]func() (all any, bytes func() int){
		"backlog": func() (any, func() int) {
			b := new(Backlog)
			for i := 0; i < n; i += 1000 {
				b.Add(entries[i : i+1000])
			}
			b.order()
			return b, b.Bytes
		},
		"overlay": func() (any, func() int) {
			o := NewOverlay(New(NewMemory(), "set", Options{}).Tree(Root{}))
			for i := 0; i < n; i += 1000 {
				if err := o.Add(t.Context(), entries[i:i+1000]); err != nil {
					t.Fatal(err)
				}
			}
			o.State(entries[n-1].Cursor)
			return o, o.Bytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			var bytes func() int
			heap := testutil.RetainedBytes(t, func() (all any) {
				all, bytes = fill()
				return all
			})
			if got := int64(bytes()); got < heap*9/10 || got > heap*13/10 {
				t.Errorf("Bytes() = %d, want about %d", got, heap)
			}
		})
	}
	runtime.KeepAlive(entries) // so that it is not freed in between
}
