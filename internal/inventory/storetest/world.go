package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/inventory"
)

// A World is a log and the inventories in its store.
type World struct {
	*testing.T
	Log   *MemoryLog
	Store *HookedStore
}

// InWorld runs a test in a bubble of fake time.
func InWorld(t *testing.T, test func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := NewMemoryLog()
		test(&World{t, log, &HookedStore{Store: Beside(inventory.NewMemory(), log)}})
	})
}

// OK ends the test if there is an error.
func (w *World) OK(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Pass lets time pass.
func (w *World) Pass(d time.Duration) {
	time.Sleep(d) // in fake time
	synctest.Wait()
}

// Updates returns updates of n resources, for MemoryLog.Publish.
func Updates(n int) []string {
	changes := make([]string, n)
	for i := range changes {
		changes[i] = fmt.Sprintf("+%06d", i)
	}
	return changes
}

// WantResources compares a state with resources, by loc and position.
func (w *World) WantResources(s *inventory.State, want map[string]uint64) {
	w.Helper()
	got := map[string]uint64{}
	for e, err := range s.Walk(w.Context(), inventory.Range{}) {
		w.OK(err)
		got[e.Change.Loc] = e.Position
	}
	if !maps.Equal(got, want) {
		extra, missing := maps.Clone(got), maps.Clone(want)
		maps.DeleteFunc(extra, func(loc string, at uint64) bool { return want[loc] == at })
		maps.DeleteFunc(missing, func(loc string, at uint64) bool { return got[loc] == at })
		w.Fatalf("state at %v: extra %.300q, missing %.300q", s.Cursor(), fmt.Sprint(extra), fmt.Sprint(missing))
	}
	if tally, err := s.Tally(w.Context(), inventory.Range{}); err != nil || tally.Count != uint64(len(want)) {
		w.Errorf("Tally() at %v = %d, %v, want %d", s.Cursor(), tally.Count, err, len(want))
	}
}

// RemoveLeaves removes all pages of a root except the one at the top.
func (w *World) RemoveLeaves(set string, r inventory.Root) {
	w.Helper()
	for _, n := range numbers(w.T, w.Store, set, r.Begin) {
		if n != r.Page {
			RemovePages(w.T, w.Store, set, n)
		}
	}
}

// RemovePages removes pages of a set, to damage its inventory.
func RemovePages(t testing.TB, s inventory.Store, set string, numbers ...uint64) {
	t.Helper()
	r, err := s.Load(t.Context(), set)
	if err == nil {
		err = s.Remove(t.Context(), set, r.Log.Begin, r.Term, numbers)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// numbers returns the numbers of the pages of a set, ascending.
func numbers(t testing.TB, s inventory.Store, set string, begin int64) (all []uint64) {
	t.Helper()
	for n, err := range s.Numbers(t.Context(), set, begin) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
