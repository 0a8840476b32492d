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

func (failing) BeginEpoch(context.Context, string, uint64) error { return errors.New("not now") }

// A memory loses its newest entries and gets others. Whether the hub looks at all sets
// or at those that are followed, it begins an epoch, once. It does so, too, if it has not
// looked since the entries that are lost were added: then the store was restarted.
func TestLookBack(t *testing.T) {
	all := func(h *Hub) { h.trim(t.Context()) }
	followed := func(h *Hub) {
		if err := h.compare(t.Context(), h.looks(nil)); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		name   string
		look   func(*Hub)
		seen   bool   // whether the hub looked before the loss
		secret string // of the memory after the loss
		first  uint64 // the first list with another name
	}{
		{"all sets", all, true, "secret", 1},
		{"followed sets", followed, true, "secret", 1},
		{"all sets, after the last look", all, false, "another", 2},
		{"followed sets, after the last look", followed, false, "another", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
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

			log := &testLog{Log: disk, secret: "secret"}
			h := New(log, Options{Shared: time.Second})
			h.tails["set"] = &tail{moved: make(chan struct{})} // as if it were followed
			epochs := func() feed.Epochs {
				s, err := log.State(t.Context(), "set")
				if err != nil {
					t.Fatal(err)
				}
				return s.Epochs
			}
			test.look(h)
			add(disk, 4)
			if test.seen {
				test.look(h)
			}
			if e := epochs(); e != "" {
				t.Fatalf("a log that has grown has the epochs %q", e)
			}
			log.Log, log.secret = failing{replica}, test.secret
			add(replica, 10)
			test.look(h)
			log.Log = replica
			if e := epochs(); e != "" {
				t.Fatalf("the epochs are %q", e)
			}
			test.look(h)
			e := epochs()
			if e.Of(test.first) == "" || e.Of(test.first-1) != "" {
				t.Fatalf("the log lost its tail, and its epochs are %q", e)
			}
			add(replica, 1)
			test.look(h)
			if now := epochs(); now != e {
				t.Errorf("the epochs are %q, they were %q", now, e)
			}
		})
	}
}

// A damaged log is one of which nobody can say whether it lost its tail.
type damaged struct{ changelog.Log }

func (damaged) At(context.Context, string, uint64) (feed.Cursor, error) {
	return feed.Cursor{}, fmt.Errorf("block 7: %w", changelog.ErrCorrupt)
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
