package callback

import "github.com/rshub/rshub/callback/subscription"

// A countKey says what is counted: the subscriptions of a host, a set or an owner, or of
// an owner at a host or to a set. What is empty does not matter.
type countKey struct {
	fresh            bool // instead of subscriptions, the queues of requests that are to make one
	host, set, owner string
}

// counts has the numbers that are not zero.
type counts map[countKey]int

// add counts n more of what a key has all parts of. The owner may be unknown.
func (c counts) add(k countKey, n int) {
	f := k.fresh
	keys := []countKey{{f, k.host, "", ""}, {f, "", k.set, ""}}
	if k.owner != "" {
		keys = append(keys, countKey{f, k.host, "", k.owner}, countKey{f, "", k.set, k.owner}, countKey{f, "", "", k.owner})
	}
	for _, k := range keys {
		if c[k] += n; c[k] == 0 {
			delete(c, k)
		}
	}
}

// Count returns how many subscriptions there are already, for the limits on a new one.
//
// A hub knows the shards that it has, which are an even sample of all: one hub alone
// counts exactly, one of several errs by a few in a hundred. Requests that were sent
// just now, or within the last second at another hub, are not counted yet. A hub that
// has no shard, or has not loaded all of its shards, knows too little and returns zero.
func (e *Engine) Count(r *subscription.Request, host string) subscription.Count {
	st := e.lock()
	defer st.unlock()
	loaded := len(st.shards) > 0
	for _, s := range st.shards {
		loaded = loaded && s.loaded
	}
	if !loaded {
		return subscription.Count{}
	}
	all := func(keys ...countKey) (n int) {
		for _, k := range keys {
			n += st.counts[k]
		}
		return n * subscription.Shards / len(st.shards)
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
