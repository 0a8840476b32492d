package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// If the clock jumps years ahead, retention removes nothing because of its age, and the hub
// logs that. After a day the clock is trusted.
func TestClockAhead(t *testing.T) {
	// Not in a bubble of synctest: there the store's own tickers would fire all day.
	now := time.Now()
	var ahead time.Duration
	log, err := disklog.Open(t.Context(), filepath.Join(t.TempDir(), "log"), disklog.Options{Now: func() time.Time { return now.Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var logged bytes.Buffer
	reg := prometheus.NewRegistry()
	h := New(log, Options{ListSize: 10, Retention: changelog.Retention{Age: time.Hour}, Metrics: reg, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	defer h.Close()
	mustPublish(t, h, "demo", changes("a", 35))
	look := func(floor uint64, doubtful float64, says string) {
		t.Helper()
		h.maintain(t.Context())
		if got := mustState(t, log, "demo").Floor.Position; got != floor {
			t.Errorf("floor = %d, want %d", got, floor)
		}
		if got := metricstest.Values(t, reg)["rshub_clock_doubtful"]; got != doubtful {
			t.Errorf("rshub_clock_doubtful = %v, want %v", got, doubtful)
		}
		if text := logged.String(); (says == "") != (text == "") || !strings.Contains(text, says) {
			t.Errorf("log = %q, want it to contain %q", text, says)
		}
		logged.Reset()
	}
	look(0, 0, "")
	ahead = 10 * 365 * 24 * time.Hour
	look(0, 1, "the clock jumped ahead")
	for range 23 {
		now = now.Add(time.Hour)
		look(0, 1, "")
	}
	now = now.Add(time.Hour)
	look(20, 0, "trusted again")

	// Only a set that was published to in the meantime is refused.
	mustPublish(t, h, "demo", changes("b", 1))
	ahead = 0
	_, err = h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes("c", 1)})
	if !errors.Is(err, feed.ErrClock) {
		t.Errorf("got error %v", err)
	}
	mustPublish(t, h, "other", changes("c", 1))
	if err := log.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if a := mustPublish(t, h, "demo", changes("d", 1)); a.Cursor.Micros-now.UnixMicro() > time.Second.Microseconds() {
		t.Errorf("the new set starts at %v", a.Cursor.Time())
	}
}

// A damagedSets is a log with sets that retention cannot read.
type damagedSets struct {
	changelog.Log
	sets []string
}

func (s damagedSets) Trim(ctx context.Context, set string, r changelog.Retention) (int, error) {
	if slices.Contains(s.sets, set) {
		return 0, fmt.Errorf("block 7: %w", changelog.ErrCorrupt)
	}
	return s.Log.Trim(ctx, set, r)
}

// Damaged sets, however many, do not prevent retention of the others.
func TestRetentionSkipsDamagedSets(t *testing.T) {
	h, log := newHub(t, Options{ListSize: 10, Retention: changelog.Retention{Count: 10}})
	bad := []string{"a", "b", "c", "d"}
	log.Log = damagedSets{log.Log, bad}
	for _, set := range append(bad, "whole") {
		mustPublish(t, h, set, changes("a", 35))
	}
	h.applyRetention(t.Context())
	if got := mustState(t, log, "whole").Floor; got.Position != 20 {
		t.Errorf("floor = %v", got)
	}
}

// A laggingInventory has not read the entries after a cursor.
type laggingInventory struct {
	after feed.Cursor
	late  bool
	asked int
}

func (r *laggingInventory) Unread(context.Context, string) (feed.Cursor, bool) {
	r.asked++
	return r.after, r.late
}

// Retention waits for an inventory that has not read what it would remove.
func TestRetentionWaitsForInventory(t *testing.T) {
	log := memorytest.Open(t)
	r := &laggingInventory{late: true}
	h := New(log, Options{ListSize: 10, Retention: changelog.Retention{Count: 1}, Inventories: r})
	defer h.Close()
	mustPublish(t, h, "demo", changes("a", 15))
	look := func(floor uint64, asks int) {
		t.Helper()
		h.applyRetention(t.Context())
		if got := mustState(t, log, "demo").Floor.Position; got != floor || r.asked != asks {
			t.Errorf("floor = %d, want %d; Unread called %d times, want %d", got, floor, r.asked, asks)
		}
	}
	look(0, 0) // nothing would be removed, so there is no call
	mustPublish(t, h, "demo", changes("b", 30))
	look(0, 1)
	r.after.Position = 19
	look(10, 2)
	r.late = false
	look(30, 3)
}

// Retention waits for the inventory even if a set has grown since retention read its state,
// which may be minutes old when the set is processed.
func TestRetentionRechecksInventory(t *testing.T) {
	log := openLog(t)
	h := New(log, Options{ListSize: 10, Retention: changelog.Retention{Count: 1}, Inventories: &laggingInventory{late: true}})
	defer h.Close()
	mustPublish(t, h, "demo", changes("a", 15))
	log.onSets = func(states []feed.State, err error) ([]feed.State, error) {
		mustPublish(t, h, "demo", changes("b", 30))
		return states, err
	}
	h.applyRetention(t.Context())
	if got := mustState(t, log, "demo").Floor.Position; got != 0 {
		t.Errorf("floor = %d, want 0: the inventory has read nothing", got)
	}
}
