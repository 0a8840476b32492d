package callback

import "github.com/rshub/rshub/callback/subscription"

// Counts are numbers of subscriptions by who made them; see subscription.Request.By.
type counts map[string]int

// add counts n subscriptions more. Those of nobody who is known are not counted.
func (c *counts) add(by string, n int) {
	if by == "" {
		return
	}
	if *c == nil {
		*c = counts{}
	}
	if (*c)[by] += n; (*c)[by] == 0 {
		delete(*c, by)
	}
}

// Count returns how many subscriptions there are already, for the limits on a new one.
//
// A hub knows the shards that it has, which are an even sample of all: one hub alone
// counts exactly, one of several errs by a few in a hundred. Requests that were sent
// just now, or within the last second at another hub, are not counted yet. A hub that
// has no shard, or has not loaded all of its shards, knows too little and returns zero.
func (e *Engine) Count(r *subscription.Request, host string) (c subscription.Count) {
	st := e.lock()
	defer st.unlock()
	for _, s := range st.shards {
		if !s.loaded {
			return subscription.Count{}
		}
	}
	if len(st.shards) == 0 {
		return subscription.Count{}
	}
	all := func(known int) int { return known * subscription.Shards / len(st.shards) }
	if h := st.slots.hosts[host]; h != nil {
		c.Host, c.Fresh, c.Own = all(h.subs+h.fresh), all(h.fresh), all(h.asked[r.By])
		c.OwnHost = all(h.owners[r.By])
	}
	set := st.fresh[r.Set]
	if t := st.topics[r.Set]; t != nil {
		set += t.subs
		c.OwnSet = all(t.owners[r.By])
	}
	c.Set, c.OwnAll = all(set), all(st.owners[r.By])
	return c
}
