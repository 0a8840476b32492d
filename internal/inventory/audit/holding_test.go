package audit

import (
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// holding returns the state of a set that holds some resources, in the order of loc, at a
// cursor. Its pages are small, so that a few thousand resources take many.
func holding(t testing.TB, at feed.Cursor, entries []feed.Entry) *inventory.State {
	t.Helper()
	return storetest.Holding(t, inventory.Options{PageBytes: 1000}, at, entries)
}
