package storetest

import (
	"slices"
	"testing"

	"github.com/rshub/rshub/internal/inventory"
)

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
