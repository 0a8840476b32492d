package storetest

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// Holding returns the state of a set in memory that holds entries, in the order of loc, at a
// cursor.
func Holding(t testing.TB, o inventory.Options, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	v := inventory.New(inventory.NewMemory(), "set", o).Writer(1)
	root, err := v.Commit(t.Context(), inventory.Changes{To: at, Sorted: func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v.Tree(root).State()
}
