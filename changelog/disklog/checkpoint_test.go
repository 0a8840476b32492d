package disklog

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/changelog"
)

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := filled(t, filepath.Join(dir, "data"), Options{tune: small})
	defer stop(t, l)
	var running sync.WaitGroup
	var done atomic.Bool
	var acked atomic.Uint64
	running.Go(func() {
		for i := 0; !done.Load(); i++ {
			a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes(fmt.Sprint(i), 30)})
			if err != nil {
				t.Error(err)
				return
			}
			acked.Store(a[0].Cursor.Position)
			if i%10 == 0 {
				if _, err := l.Trim(t.Context(), "set", changelog.Retention{Count: 500}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 5 {
		for before := acked.Load(); acked.Load() < before+300 && !t.Failed(); {
			if _, err := l.Sets(t.Context()); err != nil {
				t.Error(err)
			}
		}
		copied := filepath.Join(dir, fmt.Sprint("copy", i))
		before := acked.Load()
		ok(t, l.Checkpoint(copied))
		wantWords(t, l.Checkpoint(copied), copied, "exist")
		c := start(t, copied, Options{})
		if c.ID() != l.ID() {
			t.Errorf("ID() = %q, want %q", c.ID(), l.ID())
		}
		entries(t, c, "set")
		if s := state(t, c, "set"); s.Head.Position < before {
			t.Errorf("copy ends at %v, want at least %d as acknowledged before", s.Head, before)
		}
		add(t, c, "set", "copy", 3) // the copy is independent
		stop(t, c)
	}
	done.Store(true)
	running.Wait()
	entries(t, l, "set")
}
