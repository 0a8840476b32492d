package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// TestAudiences checks that Matching yields exactly the audiences whose filter matches, each once,
// after any sequence of Join and Leave.
func TestAudiences(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	loc := func() string { return "https://example.org/abcab"[:20+r.IntN(6)] + fmt.Sprint(r.IntN(3)) }
	types := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
	filter := func() (f Filter) {
		if r.IntN(4) > 0 {
			l := loc()
			f.Prefix = l[:r.IntN(len(l)+1)]
		}
		if r.IntN(3) == 0 {
			f.Changes = types[r.IntN(3):]
		}
		if r.IntN(4) == 0 {
			f.Types = []string{"text/*"}
		}
		return f
	}
	for range 200 {
		var as Audiences[int]
		var joined []*Audience[int]
		for range r.IntN(40) {
			joined = append(joined, as.Join(filter()))
		}
		for range r.IntN(5) {
			for range r.IntN(len(joined) + 1) {
				i := r.IntN(len(joined))
				as.Leave(joined[i])
				joined = slices.Delete(joined, i, i+1)
			}
			c := &resourcesync.Change{Loc: loc(), Change: types[r.IntN(3)], Type: []string{"text/html", "image/png"}[r.IntN(2)]}
			want, all := map[string]bool{}, map[string]bool{}
			for _, a := range joined {
				all[a.Key] = true
				if a.Key != "" && a.Filter.Match(c) {
					want[a.Key] = true
				}
			}
			for a := range as.Matching(c, nil) {
				if !want[a.Key] {
					t.Fatalf("Matching(%+v) yields %q, which does not match or was yielded before", c, a.Key)
				}
				delete(want, a.Key)
			}
			for a := range as.All() {
				if !all[a.Key] {
					t.Fatalf("All() yields %q, which has no members or was yielded before", a.Key)
				}
				delete(all, a.Key)
			}
			if len(want) > 0 || len(all) > 0 {
				t.Fatalf("Matching(%[2]v) does not yield %[1]v, All() does not yield %[3]v", want, c, all)
			}
		}
		for _, a := range joined {
			as.Leave(a)
		}
		if as.Unfiltered() != nil || as.HasFiltered() || len(as.byKey) > 0 || len(as.lengths) > 0 || len(as.lengthCount) > 0 {
			t.Fatalf("Audiences after all members have left = %+v, want none", as)
		}
	}
}
