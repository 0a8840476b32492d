package rdm

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// Sorted entries occupy memory for their own text, not for the pages that they come from.
func TestSortRetainsNoPages(t *testing.T) {
	v := &view{hits: 100}
	all := entries(func(yield func(*feed.Entry, error) bool) {
		for p := range 100 { // pages of 4,000 resources, 200 KB
			var text []byte
			for i := range 4000 {
				text = packed.AppendChange(text, &resourcesync.Change{Loc: fmt.Sprintf("https://example.org/a/long/path/%03d/%04d", p, i)})
			}
			var e feed.Entry
			packed.NewReader(string(text)).Change(&e.Change)
			if !yield(&e, nil) {
				return
			}
		}
	})
	var found []string
	kept := testutil.RetainedBytes(t, func() any {
		for e, err := range v.sortEntries(all) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, e.Change.Loc)
		}
		return found
	})
	if len(found) != 100 || kept > 1<<20 {
		t.Errorf("got %d results that retain %d bytes, want 100 and at most %d", len(found), kept, 1<<20)
	}
}
