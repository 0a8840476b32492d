package live

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/inventory"
)

// TestRuns makes an inventory of a log that is much longer than what may wait. It takes
// one commit. When somebody else ends the runs, the next commit is without, so that it
// gets on.
func TestRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		races int64
		least int64 // roots
		most  int64
	}{
		{"alone", 0, 1, 2}, // the maker may look while the log is filled
		{"another begins once", 1, 2, 3},
		{"another begins again and again", 4, 2, 5},
	} {
		if testing.Short() && test.races == 1 {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var roots, begun atomic.Int64
				inner := w.store
				// Before some Puts, somebody else begins a commit.
				w.store = &watched{Store: inner, before: func(ctx context.Context, call string) error {
					if call != "put" || begun.Load() == test.races {
						return nil
					}
					begun.Add(1)
					other := inventory.New(inner, "a", inventory.Options{})
					_, head, err := other.Load(ctx)
					if err == nil {
						_, err = other.NewRuns(ctx, head.Newest())
					}
					return err
				}, swapped: func(s inventory.Swap) {
					if !s.At.IsZero() {
						roots.Add(1)
					}
				}}
				w.log.Create("a")
				w.log.Publish("a", many(15_000)...)
				w.log.Publish("a", many(15_000)[5_000:10_000]...)
				w.log.Publish("a", "-000001", "-014999", "+000001")
				l, _ := w.hub(Options{WaitBytes: 300_000})
				for i := 0; w.head("a").Newest().Cursor.Position < 20_003; i++ {
					if i == 100 {
						t.Fatalf("the root is at %v\n%s", w.head("a").Newest().Cursor, w.text)
					}
					w.after(time.Second)
				}
				w.state(l, "a")
				if n := begun.Load(); n != test.races {
					t.Errorf("somebody else began %d times", n)
				}
				if n := roots.Load(); n < test.least || n > test.most {
					t.Errorf("it took %d roots, want %d to %d", n, test.least, test.most)
				}
				left := 0
				for _, err := range w.store.Numbers(t.Context(), "a", w.head("a").Newest().Begin) {
					w.ok(err)
					left++
				}
				w.ok(inventory.New(w.store, "a", inventory.Options{}).Shrink(t.Context()))
				if root := w.head("a").Newest(); uint64(left) > root.Pages+root.Pages/2+20 {
					t.Errorf("%d pages are left, of which the root has %d", left, root.Pages)
				}
			})
		})
	}
}
