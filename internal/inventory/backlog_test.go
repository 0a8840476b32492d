package inventory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// TestBacklog holds a backlog against a map.
func TestBacklog(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		var b Backlog
		want := map[string]feed.Entry{}
		for at := uint64(1); at < uint64(1+r.IntN(600)); {
			entries := make([]feed.Entry, 1+r.IntN(40))
			for i := range entries {
				length := r.Int64N(1000)
				e := feed.Entry{Cursor: feed.Cursor{Position: at, Micros: int64(1000 + 3*at)}, Change: resourcesync.Change{
					Loc:     "http://example.org/" + strings.Repeat("x", r.IntN(3)*r.IntN(1000)) + fmt.Sprint(r.IntN(1+round)),
					Change:  []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}[r.IntN(3)],
					Lastmod: time.Unix(int64(at), 0).UTC(), Hash: "md5:00", Length: &length,
				}}
				entries[i], want[e.Change.Loc] = e, e
				at++
			}
			b.Add(entries)
			if r.IntN(3) == 0 {
				b.order()
			}
		}
		if n := b.Len(); n != len(want) {
			t.Fatalf("%d resources, want %d", n, len(want))
		}
		locs := slices.Sorted(maps.Keys(want))
		for e := range b.Entries() {
			if len(locs) == 0 || !reflect.DeepEqual(*e, want[locs[0]]) {
				t.Fatalf("%+v before %.300q", *e, locs)
			}
			locs = locs[1:]
		}
		if len(locs) > 0 {
			t.Errorf("%d entries of %d are left out", len(locs), len(want))
		}
	}
}
