package callback

import (
	"fmt"
	"net/http"

	"github.com/rshub/rshub/changelog"
)

// A crowd is how many subscriptions there are, at all hubs, with those that are
// still to be confirmed.
type crowd struct {
	host  int // with callbacks at one host
	set   int // of one set
	fresh int // with callbacks at the host, to be confirmed
}

// crowd returns how many there are beside a new one. A hub knows the shards that
// it has, which are an even sample of all: with one hub it is exact, with several it
// errs by a few in a hundred. Requests of this moment, or of the last second at
// another hub, are not counted yet. While a shard is not loaded it is nobody.
func (e *Engine) crowd(set, host string) (c crowd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		if !s.loaded {
			return crowd{}
		}
	}
	if len(e.shards) == 0 {
		return crowd{}
	}
	all := func(known int) int { return known * Shards / len(e.shards) }
	if h := e.places.hosts[host]; h != nil {
		c.host, c.fresh = all(h.subs+h.fresh), all(h.fresh)
	}
	c.set = e.fresh[set]
	if t := e.topics[set]; t != nil {
		c.set += t.subs
	}
	c.set = all(c.set)
	return c
}

// setFresh notes whether the errand is to make a subscription. mu is held.
func (x *errand) setFresh(fresh bool) {
	if x.fresh == fresh {
		return
	}
	x.fresh = fresh
	by := x.shard.engine.fresh
	if fresh {
		x.host.fresh++
		by[x.set]++
		return
	}
	x.host.fresh--
	if by[x.set]--; by[x.set] == 0 {
		delete(by, x.set)
	}
}

// full returns what a new subscription is refused with, or nil.
func (s *Server) full(set, host string) *changelog.Problem {
	c := s.engine.crowd(set, host)
	refuse := func(status int, format string, args ...any) *changelog.Problem {
		return changelog.NewStatus(status, "too-many-subscriptions", fmt.Sprintf(format, args...))
	}
	switch {
	case c.host >= s.opts.MaxPerHost:
		return refuse(http.StatusForbidden, "this hub takes at most %d subscriptions with callbacks at %s, and they are there: renewals are taken, new ones are not", s.opts.MaxPerHost, host)
	case c.set >= s.opts.MaxPerSet:
		return refuse(http.StatusForbidden, "this hub takes at most %d subscriptions to set %s, and they are there: renewals are taken, new ones are not", s.opts.MaxPerSet, set)
	case c.fresh >= s.opts.MaxUnverified:
		p := refuse(http.StatusTooManyRequests, "%d subscriptions with callbacks at %s are still to be confirmed, and no more can be: try again when they are", s.opts.MaxUnverified, host)
		p.RetryAfter = 30 // by then the third try is over, see verifyRetries
		return p
	}
	return nil
}
