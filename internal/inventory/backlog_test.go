package inventory

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// A backlog holds the newest entry of each loc, deletions too.
func TestBacklog(t *testing.T) {
	for seed := range uint64(50) {
		src := sourcetest.New(seed, 1+int(seed)*4)
		var b Backlog
		want := map[string]feed.Entry{}
		for range src.IntN(20) {
			var entries []feed.Entry
			for range 1 + src.IntN(40) {
				e := src.Next()
				entries, want[e.Change.Loc] = append(entries, e), e
			}
			if b.Add(entries); src.IntN(3) == 0 {
				b.order()
			}
		}
		if n := b.Len(); n != len(want) {
			t.Fatalf("Len() = %d, want %d", n, len(want))
		}
		locs := slices.Sorted(maps.Keys(want))
		for e := range b.Entries() {
			if len(locs) == 0 || !reflect.DeepEqual(*e, want[locs[0]]) {
				t.Fatalf("Entries() yields %+v before %.300q", *e, locs)
			}
			locs = locs[1:]
		}
		if len(locs) > 0 {
			t.Errorf("Entries() ended before %d of %d entries", len(locs), len(want))
		}
	}
}
