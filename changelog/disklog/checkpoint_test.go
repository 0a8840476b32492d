package disklog

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
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
		says(t, l.Checkpoint(copied), copied, "exist")
		c := start(t, copied, Options{})
		if c.ID() != l.ID() {
			t.Errorf("identity is %q, want %q", c.ID(), l.ID())
		}
		entries(t, c, "set")
		if s := state(t, c, "set"); s.Head.Position < before {
			t.Errorf("the copy ends at %v, %d was acknowledged before", s.Head, before)
		}
		add(t, c, "set", "copy", 3) // it is a memory of its own
		stop(t, c)
	}
	done.Store(true)
	running.Wait()
	entries(t, l, "set")
}

// Every start of a backup begins an epoch of its own, and only its first. The original
// is not affected.
func TestCheckpointBeginsEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := filled(t, filepath.Join(dir, "data"), Options{})
	before := state(t, l, "set")
	backup := filepath.Join(dir, "backup")
	ok(t, l.Checkpoint(backup))
	_, open := before.Lists()
	seen := map[string]bool{"": true}
	for i := range 3 {
		restored := filepath.Join(dir, fmt.Sprint("restored", i))
		ok(t, os.CopyFS(restored, os.DirFS(backup)))
		source := start(t, restored, Options{Existing: true}) // to copy from it
		if s := state(t, source, "set"); s != before {
			t.Errorf("a backup that no hub has started on is %+v, want %+v", s, before)
		}
		stop(t, source)
		var epochs feed.Epochs
		for range 3 {
			c := start(t, restored, Options{})
			s := state(t, c, "set")
			if epochs == "" {
				epochs = s.Epochs
			}
			if name := s.Epochs.Of(open); s.Epochs != epochs || seen[name] || s.Epochs.Of(open-1) != "" {
				t.Errorf("the epochs are %q, want %q; others had %v", s.Epochs, epochs, seen)
			}
			stop(t, c)
		}
		seen[epochs.Of(open)] = true
	}
	stop(t, l)
	l = start(t, filepath.Join(dir, "data"), Options{})
	defer stop(t, l)
	if s := state(t, l, "set"); s != before {
		t.Errorf("the original is %+v, want %+v", s, before)
	}
}
