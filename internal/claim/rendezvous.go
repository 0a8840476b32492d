package claim

import "hash/fnv"

// assignedShards returns, in ascending order, which of the shards 0 to shards-1 are assigned to the
// hub me while the live hubs are alive. A shard is assigned to the hub with which it has the
// highest hash (rendezvous hashing). So all hubs that see the same live hubs agree without
// communication, and when a hub joins or leaves, only its own shards move.
func assignedShards(live []string, me string, shards int) []int {
	seeds := make([]uint64, len(live))
	for i, name := range live {
		seeds[i] = seed(name)
	}
	var mine []int
	for shard := range shards {
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

// seed returns the hash of a hub's name. It is the same at all hubs.
func seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return mix(h.Sum64())
}

// mix spreads a difference of a few bits over all bits (splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
