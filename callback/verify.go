package callback

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/outbound/meter"
)

// verifyRetries are the waits before the second and third try of a verification. Only a
// callback that gave no answer, or answered 5xx, is asked again: all else is final.
var verifyRetries = [...]time.Duration{5 * time.Second, 20 * time.Second}

// verify asks the callback whether its owner wants what the request says (WebSub
// section 5.3), and carries the request out when the callback confirms it. Otherwise the
// subscription stays as it was. verify returns how long to wait for the next try; 0 when
// the request is carried out.
func (s *shard) verify(p *request) (again time.Duration) {
	e, r := s.engine, &p.Request
	if p.confirmed != nil {
		return s.keep(p)
	}
	if r.Sealed != "" {
		e.opts.Logger.Error("callbacks: request waits for the missing key of its secret", "key", r.Sealed, "id", r.ID(), "set", r.Set)
		return keyRetry
	}
	if r.Mode == subscription.Subscribe {
		if _, why := e.opts.Rights.May(r.By, r.Key, r.Anyone, r.Set); why != "" {
			return s.refuseRequest(r, why)
		}
	}
	st := e.lock()
	known := s.subs[r.ID()]
	if known == nil && r.Mode == subscription.Unsubscribe {
		st.finish(s, r.Number)
		st.unlock()
		return 0
	}
	c, about := &confirmation{since: r.Start}, subscription.Subscription{}
	if known != nil {
		about = *known.about
		if err := r.May(&about); err != nil { // the subscription was made after the request was accepted
			e.opts.Logger.Warn("callbacks: request dropped", "mode", r.Mode, "id", r.ID(), "set", r.Set, "host", outbound.Host(r.Callback), "err", err)
			st.finish(s, r.Number)
			st.unlock()
			e.opts.Activity.Called(outcome(r, &subscription.Attempt{Error: err.Error()}, true))
			return 0
		}
		known.pass()
		if !r.Move {
			c.since = known.Cursor
		}
		// The new filter may let pass what the old one left out.
		if c.refilters = !r.Move && known.audience.Key != r.Filter.Key(); c.refilters {
			c.since, c.moves = cmp.Or(known.From, known.Cursor), known.moves
		}
	}
	st.unlock()

	begin := time.Now()
	c.wanted = r.Makes(&about, begin)
	if r.Mode == subscription.Subscribe && !c.wanted.LeaseEnd.After(begin) {
		return s.refuseRequest(r, "the token of the request has expired")
	}
	if !s.mayCall() {
		return 0
	}
	v := e.outlet(r.Form).Confirm(s.calls, &outlet.Question{Request: r, Keys: keysOf(r, &about, begin), Token: c.wanted.Token, Lease: c.wanted.LeaseEnd.Sub(begin), Since: c.since, First: known == nil && p.tries == 0, Renewal: known != nil})
	if s.calls.Err() != nil && v.Decision != outlet.Done {
		return 0 // the next hub asks again
	}
	st = e.lock()
	if q := s.requests[r.ID()]; q != nil {
		q.host.met(v.Place)
	}
	st.unlock()
	if v.Decision == outlet.Limited {
		return backoff.Jitter(limitedRetry)
	}
	c.attempt = subscription.Attempt{At: begin.UTC(), Kind: string(r.Mode), Status: v.Status, Took: time.Since(begin), Error: v.Error}
	e.opts.Meter.Count(meter.Verification, v.Outcome, c.attempt.Took)
	if v.Decision == outlet.Done {
		p.confirmed = c
		return s.keep(p)
	}
	return s.unconfirmed(p, c.attempt, v.Decision == outlet.Over)
}

// keysOf returns what a verification is signed with: the secret of the request, and that of
// the subscription as it is.
func keysOf(r *subscription.Request, about *subscription.Subscription, now time.Time) outlet.Keys {
	secret, former := about.Secrets(now)
	if r.Mode != subscription.Subscribe || r.Secret == "" || r.Secret == secret {
		return outlet.Keys{Secret: secret, Former: former}
	}
	return outlet.Keys{Secret: r.Secret, Former: secret}
}

// A confirmation is what a callback has confirmed. It is never changed after that.
type confirmation struct {
	wanted    subscription.Subscription
	since     feed.Cursor // where deliveries begin, as the callback was told
	refilters bool        // a renewal with another filter: deliveries go on at since
	moves     int         // with refilters: sub.moves
	attempt   subscription.Attempt
}

// keep makes, renews or removes the subscription as its callback has confirmed. It
// returns what commit does.
func (s *shard) keep(p *request) (again time.Duration) {
	e, r, c := s.engine, &p.Request, p.confirmed
	return s.commit(r, func(*state) subscription.Changes {
		known := s.subs[r.ID()]
		if r.Mode == subscription.Unsubscribe {
			if known == nil {
				return subscription.Changes{}
			}
			return subscription.Changes{Delete: []subscription.ID{known.id}}
		}
		rec := subscription.Record{Subscription: c.wanted, Progress: subscription.Progress{Cursor: c.since, Diverged: r.Diverged, Last: []subscription.Attempt{c.attempt}}}
		if known != nil {
			if r.Move {
				rec.Gaps = known.Gaps
			} else {
				rec.Progress = known.kept()
				rec.Next = time.Time{}
			}
			if c.refilters && c.moves == known.moves { // an operator has not moved it meanwhile
				rec.Cursor, rec.From, rec.Failed = c.since, feed.Cursor{}, 0
			}
			rec.Last = withAttempt(known.Last, c.attempt)
		}
		changes := subscription.Changes{Put: []subscription.Record{rec}}
		if p.older > 0 {
			changes.Done = []uint64{p.older}
		}
		return changes
	}, func(st *state, done subscription.Changes) {
		known := s.subs[r.ID()]
		if known != nil && len(done.Delete) > 0 {
			st.removeEnded(known, r.Mode, string(r.Mode))
		}
		for i := range done.Put {
			if known != nil {
				known.Last = withAttempt(known.Last, c.attempt)
				known.doubt(c.attempt.Took)
			}
			st.put(s, &done.Put[i], r.Move || c.refilters)
		}
		e.opts.Activity.Called(outcome(r, &c.attempt, true))
		e.opts.Logger.Info("callbacks: request confirmed", "mode", r.Mode, "id", r.ID(), "set", r.Set, "host", outbound.Host(r.Callback))
		st.fill()
	})
}

// unconfirmed notes a try that confirmed nothing. It returns how long to wait for the
// next try; 0 when there is none, because the answer is final or this was the last try.
func (s *shard) unconfirmed(p *request, a subscription.Attempt, final bool) (again time.Duration) {
	e, r := s.engine, &p.Request
	st := e.lock()
	defer st.unlock()
	if known := s.subs[r.ID()]; known != nil {
		known.Last = withAttempt(known.Last, a)
		known.doubt(a.Took)
		st.markDirty(known)
	}
	if p.tries++; !final && p.tries <= len(verifyRetries) {
		e.opts.Activity.Called(outcome(r, &a, false))
		return backoff.Jitter(verifyRetries[p.tries-1])
	}
	e.opts.Activity.Called(outcome(r, &a, true))
	e.opts.Logger.Info("callbacks: request not confirmed", "mode", r.Mode, "id", r.ID(), "set", r.Set, "host", outbound.Host(r.Callback), "status", a.Status, "err", a.Error)
	st.finish(s, r.Number)
	return 0
}

// doubt notes how long a verification took: a slow one says that the callback is
// slow, and a quick one says nothing about deliveries.
func (s *sub) doubt(took time.Duration) {
	if took > slowAfter {
		s.standing = doubtful
	}
}

// whyExpired is the reason that a callback is told when its lease ended. The removal of
// a set ends no subscription, since the set may be made anew, and then RS-Gap says what
// is gone. If the set is still not there, this reason is the only word about it.
func (e *Engine) whyExpired(ctx context.Context, set string) string {
	if _, err := e.log.State(ctx, set); errors.Is(err, feed.ErrNoSet) {
		return "lease expired; the set does not exist"
	}
	return "lease expired"
}

// deny tells a callback once that its subscription ended. A callback that cannot be
// told is logged, and not tried again. verifyToken is that of the request that is denied; it is
// empty if a subscription ended.
func (s *shard) deny(about *subscription.Subscription, verifyToken, reason string) {
	if !s.mayCall() {
		return
	}
	e, begin := s.engine, time.Now()
	secret, former := about.Secrets(begin)
	v := e.outlet(about.Form).Deny(s.calls, &outlet.Denial{Set: about.Set, Form: about.Form, Callback: about.Callback, Reason: reason, VerifyToken: verifyToken, Keys: outlet.Keys{Secret: secret, Former: former}})
	if s.calls.Err() != nil {
		return // the shard ended, and the call was given up
	}
	e.opts.Meter.Count(meter.Denial, v.Outcome, time.Since(begin))
	if v.Status == 0 {
		e.opts.Logger.Info("callbacks: notification of an ended subscription failed", "id", about.ID(), "host", outbound.Host(about.Callback), "err", v.Error)
	}
}
