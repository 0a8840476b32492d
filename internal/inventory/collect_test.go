package inventory

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// rows yields resources with these locs, and their numbers as positions.
func rows(locs ...string) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for i, loc := range locs {
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: uint64(i + 1)}, Change: resourcesync.Change{Loc: loc}}, nil) {
				return
			}
		}
	}
}

// severalRuns is more resources than one run holds if their locs end with longEnd.
const severalRuns = runBytes/1_000 + 7

var longEnd = strings.Repeat("x", 1_000)

// A list in any order becomes an inventory, whether it fits into memory or not, and the
// store keeps nothing else of it.
func TestCollect(t *testing.T) {
	store := NewMemory()
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, severalRuns, 10} {
		locs := make([]string, n)
		for i := range locs {
			locs[i] = fmt.Sprintf("https://example.org/%d/%s", i, longEnd)
		}
		random.Shuffle(n, func(i, j int) { locs[i], locs[j] = locs[j], locs[i] })
		s, err := Collect(t.Context(), store, "demo", rows(locs...))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(locs)
		i := 0
		for e, err := range s.Walk(t.Context(), Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if i == n || e.Change.Loc != locs[i] {
				t.Fatalf("of %d resources, number %d is %s", n, i, e.Change.Loc)
			}
			i++
		}
		if i != n || !s.Cursor().IsZero() {
			t.Errorf("it holds %d of %d resources, at %v", i, n, s.Cursor())
		}
		for set, m := range store.sets {
			if set != "demo" && len(m.pages) > 0 {
				t.Errorf("of %d resources, %d pages of %s are left", n, len(m.pages), set)
			}
		}
	}
}

// The error for a duplicate loc names it, with both lines.
func TestCollectTwice(t *testing.T) {
	far := make([]string, severalRuns)
	for i := range far {
		far[i] = fmt.Sprintf("urn:%d:%s", i, longEnd)
	}
	far[7] = "urn:7"
	for _, test := range []struct {
		locs []string
		want string
	}{
		{[]string{"urn:a", "urn:b", "urn:a"}, "line 3: urn:a: duplicate loc; line 1 has it, too"},
		{append(far, "urn:x", "urn:7"), fmt.Sprintf("line %d: urn:7: duplicate loc; line 8 has it, too", severalRuns+2)},
	} {
		_, err := Collect(t.Context(), NewMemory(), "demo", rows(test.locs...))
		if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("it returns %v, want %s", err, test.want)
		}
	}
}
