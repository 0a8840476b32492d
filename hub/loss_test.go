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
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// A failingLog fails At.
type failingLog struct{ changelog.Log }

func (failingLog) At(context.Context, string, uint64) (feed.Cursor, error) {
	return feed.Cursor{}, errors.New("not now")
}

// A memory loses its newest entries and gets different ones. Whether the hub checks all sets
// or only those with followers, it logs the loss once, and drops its cached pages.
func TestDetectLoss(t *testing.T) {
	all := func(h *Hub) { h.applyRetention(t.Context()) }
	followed := func(h *Hub) {
		if err := h.checkHeads(t.Context(), h.startChecks(nil)); err != nil {
			t.Error(err)
		}
	}
	for name, look := range map[string]func(*Hub){"all sets": all, "followed sets": followed} {
		t.Run(name, func(t *testing.T) {
			disk := memorytest.Open(t)
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
			replica, err := disklog.Open(t.Context(), dir, disklog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer replica.Close()

			var lines testutil.Log
			log := &testLog{Log: disk}
			h := New(log, Options{PollInterval: time.Second, Logger: lines.Logger(slog.LevelInfo)})
			h.tails["set"] = &tail{changed: make(chan struct{})} // as if it were followed
			losses := func(what string, want uint64) {
				t.Helper()
				look(h)
				if n, said := h.pages.generation.Load(), len(lines.Lines(t, "the change memory lost its newest changes: followers are notified")); n != want || uint64(said) != want {
					t.Fatalf("%s: pages were dropped %d times, and %d losses logged, want %d:\n%s", what, n, said, want, lines.String())
				}
			}
			losses("at first", 0)
			add(disk, 4)
			losses("it has grown", 0)
			log.Log = failingLog{replica}
			add(replica, 10)
			losses("unknown", 0)
			log.Log = replica
			losses("it lost its tail", 1)
			add(replica, 1)
			losses("it has grown again", 1)
		})
	}
}

// A damagedLog cannot tell whether it lost its newest entries.
type damagedLog struct{ changelog.Log }

func (damagedLog) At(context.Context, string, uint64) (feed.Cursor, error) {
	return feed.Cursor{}, fmt.Errorf("block 7: %w", changelog.ErrCorrupt)
}

// A damaged set is logged once, and not at each check.
func TestDetectLossInDamagedLog(t *testing.T) {
	var lines testutil.Log
	h, log := newHub(t, Options{PollInterval: time.Second, Logger: lines.Logger(slog.LevelInfo)})
	log.Log = damagedLog{log.Log}
	for range 2 {
		mustPublish(t, h, "set", changes("a", 1))
		for range 3 {
			h.applyRetention(t.Context())
		}
	}
	if n := len(lines.Lines(t, "cannot check whether the change memory lost changes")); n != 1 {
		t.Errorf("the log has %d lines:\n%s", n, lines.String())
	}
}
