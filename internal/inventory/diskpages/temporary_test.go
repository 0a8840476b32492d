package diskpages

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// What Collect has collected is gone when it is done, or when it has failed.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := func() int {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	broken := errors.New("broken")
	for _, fails := range []error{nil, broken} {
		s, done, err := Collect(t.Context(), "list", func(yield func(*feed.Entry, error) bool) {
			for i := range uint64(500) {
				loc := fmt.Sprintf("urn:%d", i*7919%500)
				if !yield(&feed.Entry{Cursor: feed.Cursor{Position: i + 1}, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}}, nil) {
					return
				}
			}
			if fails != nil {
				yield(nil, fails)
			}
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		if err == nil {
			if tally, err := s.Tally(t.Context(), inventory.Range{}); err != nil || tally.Count != 500 || left() != 1 {
				t.Errorf("%d resources in %d directories, %v", tally.Count, left(), err)
			}
			if err := done(); err != nil {
				t.Error(err)
			}
		}
		if n := left(); n > 0 {
			t.Errorf("%d directories are left after %v", n, err)
		}
	}
}
