package callback

import (
	"maps"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

const (
	// lockedRetry is how long to wait until it is looked again whether the key to a
	// subscription's secrets is there. Keys come with a restart, or another hub.
	lockedRetry = 10 * time.Minute

	// resealed is how many subscriptions are encrypted anew in one Commit.
	resealed = 100
)

// Missing returns the IDs of keys that this hub does not have, with the number of its
// subscriptions that wait for each.
func (e *Engine) Missing() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.locked)
}

// setAboutLocked replaces what a sub is about, and counts what it waits for.
func (s *sub) setAboutLocked(about *subscription.Subscription) {
	e := s.shard.engine
	if s.about != nil {
		s.countLocked(-1)
	}
	if s.about != nil && s.about.Stale {
		e.stale--
	}
	if s.about != nil && s.about.Sealed != "" {
		if e.locked[s.about.Sealed]--; e.locked[s.about.Sealed] == 0 {
			delete(e.locked, s.about.Sealed)
		}
	}
	s.about = about
	if about == nil {
		return
	}
	s.countLocked(1)
	if about.Stale {
		e.stale++
	}
	if about.Sealed != "" {
		if e.locked[about.Sealed]++; e.locked[about.Sealed] == 1 {
			e.opts.Logger.Error("callbacks: RSHUB_SECRET_KEYS lacks the key of some secrets; their subscriptions wait for the key", "key", about.Sealed)
		}
	}
}

// reseal encrypts the secrets of a shard that are in clear, or encrypted with another key than
// the first.
func (s *shard) reseal() {
	e := s.engine
	for s.ctx.Err() == nil {
		some := 0
		err := s.commitNow(&subscription.Request{}, func() (c subscription.Changes) {
			for _, x := range s.subs {
				if x.about.Stale && len(c.Put) < resealed {
					c.Put = append(c.Put, *x.recordLocked())
				}
			}
			some = len(c.Put)
			return c
		}, func(c subscription.Changes) {
			for i := range c.Put {
				if x := s.subs[c.Put[i].ID()]; x != nil {
					fresh := *x.about
					fresh.Stale = false
					x.setAboutLocked(&fresh)
				}
			}
		})
		if err != nil {
			e.opts.Logger.Warn("callbacks: secrets cannot be encrypted with the first key yet", "shard", s.hold.Shard, "err", err)
			backoff.Wait(s.ctx, time.Minute)
		} else if some < resealed {
			return
		}
	}
}
