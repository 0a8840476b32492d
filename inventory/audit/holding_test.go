package audit

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// holding returns the state of a set that holds some resources, in the order of loc, at a
// cursor. Its pages are small, so that a few thousand resources take many.
func holding(t testing.TB, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	return stored(t, inventory.Options{PageBytes: 1000}, at, entries)
}

// stored does as holding, with pages as the options say.
func stored(t testing.TB, o inventory.Options, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	v := inventory.New(inventory.NewMemory(), "set", o)
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
