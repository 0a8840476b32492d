package local

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

// A countingMemory counts the entries that are read from a log.
type countingMemory struct {
	changelog.Log
	read int
}

func (m *countingMemory) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := m.Log.Since(ctx, set, after, limit)
	if err == nil {
		m.read += len(b.Entries)
	}
	return b, err
}

// A fixedInventory is the inventory of an empty set, at one cursor.
type fixedInventory struct {
	Inventories
	state *inventory.State
}

func (i fixedInventory) pinned() *inventory.Pinned {
	return &inventory.Pinned{State: i.state, Release: func() {}}
}

func (i fixedInventory) State(context.Context, string, feed.Cursor, time.Duration) (*inventory.Pinned, error) {
	return i.pinned(), nil
}

func (i fixedInventory) At(context.Context, string, feed.Cursor) (*inventory.Pinned, error) {
	return i.pinned(), nil
}

type noTrail struct{}

func (noTrail) Fetched(ctx context.Context, _ string) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func stateAt(t *testing.T, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	return storetest.Holding(t, inventory.Options{}, at, entries)
}

// Differences leaves out resources that others have published since its first state, whether the
// log names them before or after the difference is found. It reads the publishes of others, but not
// its own.
func TestDifferencesWithOtherPublishers(t *testing.T) {
	const n = 25_000
	log := &countingMemory{Log: memorytest.Open(t)}
	if err := log.Make(t.Context(), "demo", feed.Description{}, 1000); err != nil {
		t.Fatal(err)
	}
	h := hub.New(log, hub.Options{})
	defer h.Close()
	loc := func(i int) string { return fmt.Sprintf("https://example.org/%06d", i) }
	change := func(i int) resourcesync.Change {
		return resourcesync.Change{Loc: loc(i), Change: resourcesync.Created, Hash: "md5:00000000000000000000000000000000"}
	}
	own := make([]feed.Entry, n)
	for i := range own {
		own[i] = feed.Entry{Change: change(i)}
	}
	start, err := log.State(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{Name: "demo", Hub: &Hub{Memory: log, Publisher: h, Trail: noTrail{}, Inventories: fixedInventory{state: stateAt(t, start.Head, nil)}}}
	mine := stateAt(t, feed.Cursor{}, own)

	var found []string
	others := map[string]bool{} // locs
	publishOther := func(i int) {
		t.Helper()
		if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: []resourcesync.Change{change(i)}}); err != nil {
			t.Fatal(err)
		}
		others[loc(i)] = true
	}
	var batch []resourcesync.Change
	tally := func(context.Context) (digest.Tally, error) { return mine.Tally(t.Context(), inventory.Range{}) }
	for d, err := range s.Differences(t.Context(), tally, auditor.FixedState(mine), func(audit.Summary) { publishOther(0); publishOther(n - 1) }) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, d.Loc)
		if batch = append(batch, d.Own.Change); len(batch) == 1000 {
			if _, err := s.Publish(t.Context(), fmt.Sprint(len(found)), batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
		if len(found) == 5000 { // in the first part; the others are in this part or a later one
			for i := range 20 {
				publishOther(1 + i*n/20)
			}
		}
	}
	if len(found) < n-len(others) {
		t.Errorf("got %d differences, want at least %d", len(found), n-len(others))
	}
	for i, l := range found {
		if others[l] && (i >= 10_000 || l == loc(0) || l == loc(n-1)) {
			t.Errorf("got %s as difference %d, after another publisher had published it", l, i)
		}
	}
	// The log is read once for each of the four or five parts.
	if most := 5 * len(others); log.read > most {
		t.Errorf("read %d entries, want at most %d", log.read, most)
	}
}

// If the log no longer has the first state, Differences restarts only if nothing was yielded.
func TestDifferencesLogIsGone(t *testing.T) {
	log := memorytest.Open(t)
	if err := log.Make(t.Context(), "demo", feed.Description{}, 1000); err != nil {
		t.Fatal(err)
	}
	s := &Set{Name: "demo", Hub: &Hub{Memory: log, Inventories: fixedInventory{state: stateAt(t, feed.Cursor{Position: 7, Micros: 1}, nil)}}}
	mine := stateAt(t, feed.Cursor{}, []feed.Entry{{Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created}}})
	looks := 0
	tally := func(context.Context) (digest.Tally, error) { return mine.Tally(t.Context(), inventory.Range{}) }
	for _, err := range s.Differences(t.Context(), tally, auditor.FixedState(mine), func(audit.Summary) { looks++ }) {
		if !errors.Is(err, feed.ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	}
	if looks != maxAudits {
		t.Errorf("got %d looks, want %d", looks, maxAudits)
	}
}
