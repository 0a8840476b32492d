package callback

import (
	"sync"

	"github.com/rshub/rshub/callback/subscription"
)

// counts has numbers of subscriptions in the shards of this hub, for limits and metrics. Numbers that
// are zero are not stored.
type counts struct {
	mu      sync.Mutex
	numbers map[countKey]int
	stale   int            // subscriptions whose secrets are not encrypted with the first key
	missing map[string]int // subscriptions that need a missing key, by its ID

	logMissing func(key string) // called when the first subscription needs a key
}

// A countKey is what subscriptions are counted by. Fields that do not matter are empty.
type countKey struct {
	fresh            bool // subscriptions to be made, instead of those that exist
	host, set, owner string
}

// add adds n to the numbers of all combinations of a key.
func (c *counts) add(k countKey, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(k, n)
}

func (c *counts) addLocked(k countKey, n int) {
	keys := []countKey{{k.fresh, k.host, "", ""}, {k.fresh, "", k.set, ""}}
	if k.owner != "" {
		keys = append(keys, countKey{k.fresh, k.host, "", k.owner}, countKey{k.fresh, "", k.set, k.owner}, countKey{k.fresh, "", "", k.owner})
	}
	for _, k := range keys {
		if c.numbers[k] += n; c.numbers[k] == 0 {
			delete(c.numbers, k)
		}
	}
}

// addSub adds n to the numbers of an active subscription.
func (c *counts) addSub(s *sub, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(countKey{host: s.host.name, set: s.about.Set, owner: s.about.By}, n)
	if s.about.Stale {
		c.stale += n
	}
	if key := s.about.Sealed; key != "" {
		if c.missing[key] += n; c.missing[key] == 0 {
			delete(c.missing, key)
		} else if n > 0 && c.missing[key] == n {
			c.logMissing(key)
		}
	}
}

// secrets returns the numbers of subscriptions whose secrets are not encrypted with the first key, and of
// those that need a missing key.
func (c *counts) secrets() (stale, locked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.missing {
		locked += n
	}
	return c.stale, locked
}

// Count returns how many subscriptions exist, for the limits on a new one.
//
// A hub counts the shards that it has, which are a sample of all. So the result is exact for a single hub,
// and off by a few percent for one of several. Requests of the last second may be missing. A hub
// without shards, or with one that is not loaded, returns zero.
func (e *Engine) Count(r *subscription.Request, host string) subscription.Count {
	shards := e.allShards()
	for _, sh := range shards {
		sh.mu.Lock()
		loaded := sh.loaded
		sh.mu.Unlock()
		if !loaded {
			return subscription.Count{}
		}
	}
	if len(shards) == 0 {
		return subscription.Count{}
	}
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	all := func(keys ...countKey) (n int) {
		for _, k := range keys {
			n += e.counts.numbers[k]
		}
		return n * subscription.Shards / len(shards)
	}
	c := subscription.Count{
		Host:  all(countKey{host: host}, countKey{host: host, fresh: true}),
		Set:   all(countKey{set: r.Set}, countKey{set: r.Set, fresh: true}),
		Fresh: all(countKey{host: host, fresh: true}),
	}
	if r.By != "" {
		c.Own, c.OwnHost = all(countKey{host: host, owner: r.By, fresh: true}), all(countKey{host: host, owner: r.By})
		c.OwnSet, c.OwnAll = all(countKey{set: r.Set, owner: r.By}), all(countKey{owner: r.By})
	}
	return c
}
