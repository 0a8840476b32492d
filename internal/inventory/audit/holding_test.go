package audit

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// holding returns a state with some resources, ordered by loc, at a cursor. Its pages are small, so
// that a few thousand resources take many.
func holding(t testing.TB, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	return storetest.Holding(t, inventory.Options{PageBytes: 1000}, at, entries)
}
