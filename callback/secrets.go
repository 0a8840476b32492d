package callback

import (
	"maps"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

const (
	// keyRetry is how long to wait until it is looked again whether the key to a
	// subscription's secrets is there. Keys come with a restart, or another hub.
	keyRetry = 10 * time.Minute

	// resealed is how many subscriptions are encrypted anew in one Commit.
	resealed = 100
)

// Missing returns the IDs of keys that this hub does not have, with the number of its
// subscriptions that wait for each.
func (e *Engine) Missing() map[string]int {
	st := e.lock()
	defer st.unlock()
	return maps.Clone(st.missing)
}

// countMissing counts n more subs whose secrets need a key that is missing.
func (st *state) countMissing(key string, n int) {
	st.missing[key] += n
	switch {
	case st.missing[key] == 0:
		delete(st.missing, key)
	case n > 0 && st.missing[key] == n:
		st.engine.opts.Logger.Error("callbacks: subscriptions wait for the missing key of their secrets", "key", key)
	}
}

// reseal encrypts the secrets of a shard that are in clear, or encrypted with another key than
// the first.
func (s *shard) reseal() {
	for s.ctx.Err() == nil {
		some := 0
		again := s.commit(&subscription.Request{}, func(*state) (c subscription.Changes) {
			for _, x := range s.subs {
				if x.about.Stale && len(c.Put) < resealed {
					c.Put = append(c.Put, *x.record())
				}
			}
			some = len(c.Put)
			return c
		}, func(st *state, c subscription.Changes) {
			for i := range c.Put {
				if x := s.subs[c.Put[i].ID()]; x != nil {
					fresh := *x.about
					fresh.Stale = false
					st.setAbout(x, &fresh)
				}
			}
		})
		if again > 0 {
			backoff.Wait(s.ctx, time.Minute)
		} else if some < resealed {
			return
		}
	}
}
