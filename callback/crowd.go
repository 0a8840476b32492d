package callback

import "github.com/rshub/rshub/callback/subscription"

// A tally counts subscriptions by who made them; see subscription.Request.By.
type tally map[string]int

// add counts n subscriptions more. Those of nobody who is known are not counted.
func (t *tally) add(by string, n int) {
	if by == "" {
		return
	}
	if *t == nil {
		*t = tally{}
	}
	if (*t)[by] += n; (*t)[by] == 0 {
		delete(*t, by)
	}
}

// countLocked counts a sub for whoever made it, or takes it from what is counted.
func (s *sub) countLocked(n int) {
	by := s.about.By
	s.shard.engine.makers.add(by, n)
	s.topic.makers.add(by, n)
	s.host.makers.add(by, n)
}

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
		c.OwnHost = all(h.makers[r.By])
	}
	c.Set = e.fresh[r.Set]
	if t := e.topics[r.Set]; t != nil {
		c.Set += t.subs
		c.OwnSet = all(t.makers[r.By])
	}
	c.Set, c.OwnAll = all(c.Set), all(e.makers[r.By])
	return c
}
