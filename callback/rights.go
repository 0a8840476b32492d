package callback

import (
	"context"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// Rights tell whether the makers of subscriptions may still follow their sets. Methods may be called
// concurrently, and must not block.
type Rights interface {
	// Version changes whenever May may return another result than before for another reason than that a
	// time has come.
	Version() uint64

	// May returns why the maker of a subscription may not follow a set, in words for the callback and for
	// operators, or an empty string if it may. by, key and anyone are fields of the
	// subscription.Subscription. until is when the right ends, or zero if that is unknown.
	May(by, key string, anyone bool, set string) (until time.Time, why string)
}

const (
	rightsEvery = time.Second // interval of checks whether rights have changed

	// unsureFor is how long a subscription waits without deliveries if this hub has never known the token
	// of its maker, before it ends. Hubs do not read a new token, or a new key, at the same time.
	unsureFor   = 2 * time.Minute
	unsureRetry = 5 * time.Second // interval of checks in that time
)

// checkRights ends the subscriptions of makers that have lost their rights. It examines all of them if
// rights may have changed, and otherwise those that were made, renewed or loaded since the last check.
func (e *Engine) checkRights(context.Context) {
	version := e.opts.Rights.Version()
	for _, sh := range e.allShards() {
		sh.checkRights(version)
	}
}

func (sh *shard) checkRights(version uint64) {
	type check struct {
		sub   *sub
		about *subscription.Subscription
	}
	var checks []check
	sh.mu.Lock()
	if sh.loaded && !sh.leaving {
		if sh.rights != version {
			sh.rights, sh.unchecked = version, nil
			for _, s := range sh.subs {
				sh.unchecked = append(sh.unchecked, s)
			}
		}
		for _, s := range sh.unchecked {
			if s.active() && s.over == "" {
				checks = append(checks, check{s, s.about})
			}
		}
		sh.unchecked = nil
	}
	sh.mu.Unlock()
	for _, c := range checks {
		until, why := sh.engine.opts.Rights.May(c.about.By, c.about.Key, c.about.Anyone, c.about.Set)
		sh.mu.Lock()
		c.sub.setRightLocked(c.about, until, why)
		sh.mu.Unlock()
	}
}

// setRightLocked sets whether the maker of a subscription may follow its set, and until when. If not, the
// subscription ends, unless this hub may not know the token of its maker yet. The caller holds shard.mu.
func (s *sub) setRightLocked(about *subscription.Subscription, until time.Time, why string) {
	switch {
	case !s.active() || s.over != "":
	case s.about != about: // it was renewed in the meantime
		s.shard.unchecked = append(s.shard.unchecked, s)
	case why == "":
		s.allowed = true
		if until.Equal(s.rightEnd) {
			return
		}
		s.rightEnd = until
		if s.stage == idle {
			s.shard.setTimer(s, earlier(s.due, s.leaseEnd())) // if it is too early, the owner parks it again
		}
	case s.allowed || !s.shard.unsure(about.Made, about.Renewed):
		s.over = refused
		if s.cancel != nil {
			s.cancel()
		}
		s.wakeLocked()
	default:
		s.shard.unchecked = append(s.shard.unchecked, s)
	}
}

// unsure reports whether this hub may not know yet a token that was used at one of these times.
func (sh *shard) unsure(used ...time.Time) bool {
	return slices.ContainsFunc(append(used, sh.gained), func(t time.Time) bool { return time.Since(t) < unsureFor })
}

// refuse ends a subscription whose maker may no longer follow the set, and tells the callback. A record
// without secrets is stored for a while, so that operators see why it ended.
func (s *sub) refuse(ctx context.Context) (again time.Duration) {
	about := s.about
	_, why := s.shard.engine.opts.Rights.May(about.By, about.Key, about.Anyone, about.Set)
	if why == "" { // the right is back
		s.shard.mu.Lock()
		defer s.shard.mu.Unlock()
		s.over, s.rightEnd = "", time.Time{}
		s.shard.unchecked = append(s.shard.unchecked, s)
		return 0
	}
	now := time.Now().UTC().Round(0)
	rec := s.record()
	rec.Ended, rec.Why, rec.LeaseEnd = now, why, earlier(about.LeaseEnd, now.Add(endedFor))
	rec.Secret, rec.Former, rec.FormerEnd, rec.Sealed = "", "", time.Time{}, ""
	if again = s.commit(nil, subscription.Changes{Put: []subscription.Record{rec}}); again > 0 {
		return again
	}
	s.countEnd(refused, why)
	s.retire(&rec.Subscription)
	s.deny(ctx, about, "", why)
	return 0
}

// refuseRequest completes a request whose maker may not follow the set, and tells the callback. It
// returns how long to wait before the rights are checked again, or 0 if the request is completed.
func (s *sub) refuseRequest(ctx context.Context, c *command, why string) (again time.Duration) {
	if s.shard.unsure(c.At) {
		return unsureRetry
	}
	s.complete(c)
	s.shard.engine.opts.Activity.Called(outcome(&c.Request, &subscription.Attempt{Error: why}, true))
	s.deny(ctx, &subscription.Subscription{Set: c.Set, Form: c.Form, Callback: c.Callback, Terms: c.Terms, By: c.By}, c.VerifyToken, why)
	return 0
}
