package live

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/rshub/rshub/claim"
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

// A worker tells a Live which shards it has. It gives a shard back at once, although a
// commit may be under way: another hub that works on the same set does no harm.
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

// Elders are hubs that keep no inventories.
type elders struct {
	ask func(context.Context) (bool, error)

	mu    sync.Mutex
	alive bool
	asked time.Time
}

// elderEvery is for how long an answer about elders holds.
const elderEvery = time.Second

// present reports whether an elder is alive, or that may be. Then nothing may be written.
func (e *elders) present(ctx context.Context) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.asked.IsZero() || now.Sub(e.asked) >= elderEvery {
		alive, err := e.ask(ctx)
		if err != nil {
			return true // the next call asks again
		}
		e.alive, e.asked = alive, now
	}
	return e.alive
}
