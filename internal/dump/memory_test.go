package dump

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// Ten times as many resources require no more memory.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("long: packs 100,000 resources")
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	used := func(n int) (most int64) {
		b := newBench(t)
		before := heap()
		for version := range 2 { // in the second run, all but the first tenth have changed
			list := func(context.Context) iter.Seq2[*Resource, error] {
				return func(yield func(*Resource, error) bool) {
					for i := range n {
						content := fmt.Sprint("content ", i)
						if i >= n/10 {
							content = fmt.Sprint(content, version)
						}
						if !yield(&Resource{Change: resourcesync.Change{Loc: fmt.Sprintf("%s%d/%09d", site, version*(i%2), i), Hash: sum(content)},
							Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}, nil) {
							return
						}
					}
					most = max(most, int64(heap())-int64(before))
				}
			}
			b.opts.Compare = func(x, y string) int { return strings.Compare(x[len(x)-9:]+x, y[len(y)-9:]+y) }
			if r, err := Update(t.Context(), b.dir, list, b.opts); err != nil || r.Listed != uint64(n) || version == 1 && r.Deleted != uint64(n/2) {
				t.Fatalf("Update() = %+v, %v", r, err)
			}
		}
		return most
	}
	few := used(10_000)
	many := used(100_000)
	t.Logf("10,000 resources: %d KiB, 100,000: %d KiB", few>>10, many>>10)
	if many > few+few/4+1<<20 {
		t.Errorf("memory for 10,000 resources: %d bytes, for 100,000: %d bytes; want about the same", few, many)
	}
}
