package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/loggedtest"
	"github.com/rshub/rshub/internal/memorytest"
)

// A failing log does not answer BeginEpoch.
type failing struct{ changelog.Log }

func (failing) BeginEpoch(context.Context, string, feed.Cursor) (bool, error) {
	return false, errors.New("not now")
}

// A memory loses its newest entries and gets others. Whether the hub looks at all sets
// or at those that are followed, it begins an epoch, once.
func TestLookBack(t *testing.T) {
	for name, look := range map[string]func(*Hub, context.Context){"all sets": (*Hub).trim, "followed sets": func(h *Hub, ctx context.Context) {
		if err := h.compare(ctx, h.looks(nil)); err != nil {
			t.Error(err)
		}
	}} {
		t.Run(name, func(t *testing.T) {
			disk, err := disklog.Open(filepath.Join(t.TempDir(), "log"), disklog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			add := func(log changelog.Log, n int) {
				for range n {
					if _, err := log.Append(t.Context(), "set", changelog.Publish{Changes: memorytest.Changes("a", 1)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := disk.Make(t.Context(), "set", feed.Description{}, 3); err != nil {
				t.Fatal(err)
			}
			add(disk, 4)
			dir := filepath.Join(t.TempDir(), "replica")
			if err := disk.Checkpoint(dir); err != nil {
				t.Fatal(err)
			}
			replica, err := disklog.Open(dir, disklog.Options{Existing: true}) // as a replica, so no epoch begins
			if err != nil {
				t.Fatal(err)
			}
			defer replica.Close()
			add(disk, 1)

			log := &testLog{Log: disk}
			h := New(log, Options{Shared: time.Second})
			h.tails["set"] = &tail{moved: make(chan struct{})} // as if it were followed
			epochs := func() feed.Epochs {
				s, err := log.State(t.Context(), "set")
				if err != nil {
					t.Fatal(err)
				}
				return s.Epochs
			}
			look(h, t.Context())
			add(disk, 3)
			look(h, t.Context())
			if e := epochs(); e != "" {
				t.Fatalf("a log that has grown has the epochs %q", e)
			}
			log.Log = failing{replica}
			add(replica, 10)
			look(h, t.Context())
			log.Log = replica
			if e := epochs(); e != "" {
				t.Fatalf("the epochs are %q", e)
			}
			look(h, t.Context())
			e := epochs()
			if e.Of(2) == "" {
				t.Fatalf("the log lost its tail, and its epochs are %q", e)
			}
			add(replica, 1)
			look(h, t.Context())
			if now := epochs(); now != e {
				t.Errorf("the epochs are %q, they were %q", now, e)
			}
		})
	}
}

// A damaged log is one of which nobody can say whether it lost its tail.
type damaged struct{ changelog.Log }

func (damaged) BeginEpoch(context.Context, string, feed.Cursor) (bool, error) {
	return false, fmt.Errorf("block 7: %w", changelog.ErrCorrupt)
}

// A set that is damaged is named once, and not at each look.
func TestLookBackAtDamage(t *testing.T) {
	var lines loggedtest.Log
	h, log := newHub(t, Options{Shared: time.Second, Logger: lines.Logger(slog.LevelInfo)})
	log.Log = damaged{log.Log}
	for range 2 {
		mustPublish(t, h, "set", changes("a", 1))
		for range 3 {
			h.trim(t.Context())
		}
	}
	if n := len(lines.Lines(t, "cannot find out whether the change memory lost changes")); n != 1 {
		t.Errorf("the log has %d lines:\n%s", n, lines.String())
	}
}
