package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// usage returns the bytes of the files below a directory.
func usage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// The reserved space includes the sorted list and the changes, which are all new.
func TestReservedSpaceIncludesChanges(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 30_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	l := func(context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			for i := range n {
				e := entry(fmt.Sprint(random.Int64(), "-", i), "")
				e.Change.Hash = fmt.Sprintf("md5:%016x%016x", random.Uint64(), random.Uint64()) // not compressible
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	dir := t.TempDir()
	var room, used int64
	s := New(newHub(t), l, Options{
		Dir:         dir,
		ReserveDisk: func(bytes int64) error { room = max(room, bytes); return nil },
		DryRun:      func(*resourcesync.Change) error { return nil },
		OnPlan:      func(Result) { used = usage(t, dir) },
	})
	defer s.Close()
	if _, err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used > room || used < room/4 {
		t.Errorf("files use %d bytes, but only %d are reserved", used, room)
	}
}

// A poll ends if there is no space for the changes, although there was for the list.
func TestNoSpaceForChanges(t *testing.T) {
	h := &vastHub{n: 30_000}
	s := New(h, list{"a": "1"}.listing(&Gap{Err: errors.New("unreadable")}), Options{Dir: t.TempDir(), ReserveDisk: func(bytes int64) error {
		if bytes > 9<<20 {
			return feed.ErrFull
		}
		return nil
	}})
	defer s.Close()
	if _, err := s.Sync(t.Context()); !errors.Is(err, feed.ErrFull) {
		t.Errorf("Sync() = %v, want %v", err, feed.ErrFull)
	}
}
