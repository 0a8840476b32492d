package callback

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func names(n int, r *rand.Rand) []string {
	var all []string
	for range n {
		all = append(all, fmt.Sprintf("hub-%d", r.Uint64()))
	}
	slices.Sort(all)
	return all
}

func TestWanted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + r.IntN(12)
		live := names(n, r)
		owner := make(map[int]string)
		mean := float64(Shards) / float64(n)
		for _, name := range live {
			mine := wanted(live, name)
			if !slices.IsSorted(mine) {
				t.Fatalf("not in order: %v", mine)
			}
			// Four and a half standard deviations of what chance gives.
			if d := math.Abs(float64(len(mine)) - mean); d > 4.5*math.Sqrt(mean*(1-1/float64(n))) {
				t.Errorf("one of %d hubs has %d shards", n, len(mine))
			}
			for _, shard := range mine {
				if owner[shard] != "" {
					t.Fatalf("shard %d is for two", shard)
				}
				owner[shard] = name
			}
		}
		if len(owner) != Shards {
			t.Fatalf("%d hubs want %d shards", n, len(owner))
		}
		// Who sees them in another order agrees.
		shuffled := slices.Clone(live)
		r.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, shard := range wanted(shuffled, live[0]) {
			if owner[shard] != live[0] {
				t.Fatalf("shard %d depends on the order", shard)
			}
		}
		// Only the shards move that the one gets who comes, or had who goes.
		more := append(slices.Clone(live), "one more")
		got := wanted(more, "one more")
		for _, name := range live {
			for _, shard := range wanted(more, name) {
				if owner[shard] != name {
					t.Fatalf("shard %d moved from %s to %s", shard, owner[shard], name)
				}
			}
		}
		if n > 0 && len(got) == 0 {
			t.Errorf("who comes to %d gets nothing", n)
		}
	}
	if all := wanted([]string{"a"}, "b"); len(all) != 0 {
		t.Errorf("who is not alive wants %d", len(all))
	}
	// All hubs, of any version, must agree.
	if got := wanted([]string{"a", "b", "c"}, "b")[:8]; !slices.Equal(got, []int{0, 9, 11, 17, 19, 23, 26, 28}) {
		t.Errorf("b wants %v", got)
	}
}
