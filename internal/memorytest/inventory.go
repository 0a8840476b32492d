package memorytest

import (
	"maps"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// Inventory makes an inventory of a set, or goes on with it, up to the end of the log. It
// returns the new root.
func Inventory(t testing.TB, log changelog.Log, store inventory.Store, set string) inventory.Root {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	v := inventory.New(store, set, inventory.Options{})
	state, err := log.State(t.Context(), set)
	ok(err)
	_, head, err := v.Load(t.Context())
	ok(err)
	newest := make(map[string]feed.Entry)
	for c := head.Newest().Cursor; c != state.Head; {
		b, err := log.Since(t.Context(), set, c, 0)
		ok(err)
		for _, e := range b.Entries {
			newest[e.Change.Loc] = e
		}
		c = b.Cursor
	}
	root, err := v.Commit(t.Context(), inventory.Changes{Base: head.Newest(), To: state.Head, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[loc]; !yield(&e) {
				return
			}
		}
	}})
	ok(err)
	return root
}
