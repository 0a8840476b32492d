package claim

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

func TestAssignedShards(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + r.IntN(12)
		live := names(n, r)
		owner := make(map[int]string)
		mean := float64(shards) / float64(n)
		for _, name := range live {
			mine := assignedShards(live, name, shards)
			if !slices.IsSorted(mine) {
				t.Fatalf("shards are not in order: %v", mine)
			}
			// Chance alone stays within four and a half standard deviations.
			if d := math.Abs(float64(len(mine)) - mean); d > 4.5*math.Sqrt(mean*(1-1/float64(n))) {
				t.Errorf("one of %d hubs has %d shards", n, len(mine))
			}
			for _, shard := range mine {
				if owner[shard] != "" {
					t.Fatalf("shard %d is assigned to two hubs", shard)
				}
				owner[shard] = name
			}
		}
		if len(owner) != shards {
			t.Fatalf("%d hubs have %d shards in total", n, len(owner))
		}
		// A hub that sees the others in another order agrees.
		shuffled := slices.Clone(live)
		r.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, shard := range assignedShards(shuffled, live[0], shards) {
			if owner[shard] != live[0] {
				t.Fatalf("shard %d depends on the order of the hubs", shard)
			}
		}
		// When a hub comes or goes, only the shards move that it gets or had.
		more := append(slices.Clone(live), "one more")
		got := assignedShards(more, "one more", shards)
		for _, name := range live {
			for _, shard := range assignedShards(more, name, shards) {
				if owner[shard] != name {
					t.Fatalf("shard %d moved from %s to %s", shard, owner[shard], name)
				}
			}
		}
		if n > 0 && len(got) == 0 {
			t.Errorf("hub joining %d others got no shards", n)
		}
	}
	if all := assignedShards([]string{"a"}, "b", shards); len(all) != 0 {
		t.Errorf("dead hub got %d shards", len(all))
	}
	// All hubs, of any version, must agree.
	if got := assignedShards([]string{"a", "b", "c"}, "b", shards)[:8]; !slices.Equal(got, []int{0, 9, 11, 17, 19, 23, 26, 28}) {
		t.Errorf("shards of b = %v", got)
	}
}
