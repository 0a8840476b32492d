package live

import (
	"hash/fnv"

	"github.com/rshub/rshub/internal/claim"
)

// shardOf returns the shard of a set. All hubs compute the same.
func shardOf(set string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(set)) // never fails
	return int(h.Sum32() % Shards)
}

// Mine reports whether this hub makes the inventory of a set.
func (l *Live) Mine(set string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shards[shardOf(set)] != nil
}

// A worker tells a Live which shards it has. It gives a shard back at once, even if a
// commit is under way: two hubs that work on the same set do no harm.
type worker struct{ live *Live }

func (w worker) Gained(h *claim.Hold) {
	w.live.mu.Lock()
	w.live.shards[h.Shard] = h
	w.live.mu.Unlock()
	w.live.maker.look()
}

func (w worker) Lost(h *claim.Hold) {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	if w.live.shards[h.Shard] == h {
		delete(w.live.shards, h.Shard)
	}
}

func (w worker) Yield(h *claim.Hold) {
	w.Lost(h)
	w.live.keeper.Release(h)
}
