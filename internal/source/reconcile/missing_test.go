package reconcile

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/resourcesync"
)

// A vastHub holds resources that no list has. It accepts no changes.
type vastHub struct {
	Hub
	n int
}

func vastLoc(i int) string {
	return fmt.Sprintf("https://example.org/%s/%09d", strings.Repeat("long", 100), i)
}

func (h *vastHub) Differences(ctx context.Context, tally TallyFunc, _ auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error] {
	return func(yield func(audit.Difference, error) bool) {
		look(audit.Summary{Set: "demo", Cursor: feed.Cursor{Position: uint64(h.n), Micros: 1}, Count: uint64(h.n)})
		if _, err := tally(ctx); err != nil {
			yield(audit.Difference{}, err)
			return
		}
		for i := range h.n {
			loc := vastLoc(i)
			if !yield(audit.Difference{Kind: audit.Missing, Loc: loc, Theirs: &feed.Entry{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}}}, nil) {
				return
			}
		}
	}
}

// Resources that must not be deleted yet use no memory: a repository may lose all its records for a
// while.
func TestMissingUsesNoMemory(t *testing.T) {
	const n = 100_000 // with 400 bytes each
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, took, asked := heap(), int64(0), 0
	o := Options{
		Dir:    t.TempDir(),
		DryRun: func(*resourcesync.Change) error { return nil },
		KeepMissing: func() (func(string) bool, bool) {
			return func(string) bool { asked++; return true }, true
		},
		OnPlan: func(Result) { took = heap() - before },
	}
	s := New(&vastHub{n: n}, list{"a": "1"}.listing(), o)
	defer s.Close()
	r, err := s.Sync(t.Context())
	if err != nil || r.Kept != n || r.Deleted != 0 || asked != n {
		t.Fatalf("Sync() = %+v, %v after %d calls of keep; want %d resources kept", r, err, asked, n)
	}
	if took > 16<<20 {
		t.Errorf("%d missing resources use %d MiB, want at most 16", n, took>>20)
	}
}
