package callback

import "github.com/rshub/rshub/callback/subscription"

// Crowd returns how many subscriptions there are already, for the limits on a new one.
//
// A hub knows the shards that it has, which are an even sample of all: one hub alone
// counts exactly, one of several errs by a few in a hundred. Requests that were sent
// just now, or within the last second at another hub, are not counted yet. A hub that
// has no shard, or has not loaded all of its shards, knows too little and returns zero.
func (e *Engine) Crowd(r *subscription.Request, host string) (c subscription.Crowd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		if !s.loaded {
			return subscription.Crowd{}
		}
	}
	if len(e.shards) == 0 {
		return subscription.Crowd{}
	}
	all := func(known int) int { return known * subscription.Shards / len(e.shards) }
	if h := e.slots.hosts[host]; h != nil {
		c.Host, c.Fresh, c.Own = all(h.subs+h.fresh), all(h.fresh), all(h.asked[r.By])
	}
	c.Set = e.fresh[r.Set]
	if t := e.topics[r.Set]; t != nil {
		c.Set += t.subs
	}
	c.Set = all(c.Set)
	return c
}
