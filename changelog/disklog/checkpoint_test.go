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
		if err := l.Checkpoint(copied); err != nil {
			t.Fatal(err)
		}
		says(t, l.Checkpoint(copied), copied, "exist")
		c := start(t, copied, Options{})
		if c.ID() != l.ID() {
			t.Errorf("identity is %q, want %q", c.ID(), l.ID())
		}
		entries(t, c, "set")
		s, err := c.State(t.Context(), "set")
		if err != nil || s.Head.Position < before {
			t.Errorf("the copy ends at %v, %d was acknowledged before, %v", s.Head, before, err)
		}
		if _, err := c.Append(t.Context(), "set", changelog.Publish{Changes: changes("copy", 3)}); err != nil {
			t.Error(err) // it is a memory of its own
		}
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
	before, err := l.State(t.Context(), "set")
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "backup")
	if err := l.Checkpoint(backup); err != nil {
		t.Fatal(err)
	}
	_, open := before.Lists()
	seen := map[string]bool{"": true}
	for i := range 3 {
		restored := filepath.Join(dir, fmt.Sprint("restored", i))
		if err := os.CopyFS(restored, os.DirFS(backup)); err != nil {
			t.Fatal(err)
		}
		source := start(t, restored, Options{Existing: true}) // to copy from it
		if s, err := source.State(t.Context(), "set"); err != nil || s != before {
			t.Errorf("a backup that no hub has started on is %+v, want %+v, %v", s, before, err)
		}
		stop(t, source)
		var epochs feed.Epochs
		for range 3 {
			c := start(t, restored, Options{})
			s, err := c.State(t.Context(), "set")
			if err != nil {
				t.Fatal(err)
			}
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
	if s, err := l.State(t.Context(), "set"); err != nil || s != before {
		t.Errorf("the original is %+v, want %+v, %v", s, before, err)
	}
}
