package callback

import "hash/fnv"

// wanted returns the shards that a hub should have when those are alive, in
// order: each shard is for the hub with which it has the highest hash
// (rendezvous hashing). So all who see the same hubs agree without a word, and
// when one comes or goes only the shards move that it gets or had.
func wanted(live []string, me string) []int {
	seeds := make([]uint64, len(live))
	for i, name := range live {
		seeds[i] = seed(name)
	}
	var mine []int
	for shard := range Shards {
		best, score := "", uint64(0)
		for i, name := range live {
			if s := mix(seeds[i] + uint64(shard)*0x9e3779b97f4a7c15); s > score || s == score && name > best {
				best, score = name, s
			}
		}
		if best == me && me != "" {
			mine = append(mine, shard)
		}
	}
	return mine
}

// seed is the same in every hub.
func seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return mix(h.Sum64())
}

// mix spreads what differs in a few bits over all of them (splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
