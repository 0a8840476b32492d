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

// verifyRetries are the waits before the second and the third verification. A callback is verified again
// only if it did not respond, or with 5xx.
var verifyRetries = [...]time.Duration{5 * time.Second, 20 * time.Second}

// A confirmation is what a callback has confirmed.
type confirmation struct {
	wanted    subscription.Subscription
	since     feed.Cursor // where deliveries start, as the callback was told
	refilters bool        // whether a renewal changes the filter, so that deliveries restart at since
	attempt   subscription.Attempt
}

// canceled is returned instead of a wait if a call was canceled.
const canceled = time.Nanosecond

// verify asks the callback whether its owner wants what a request asks for (WebSub section 5.3). If so,
// it makes, renews or removes the subscription; otherwise nothing changes. It returns how long to wait
// before the next attempt, or 0 if the request is completed.
func (s *sub) verify(ctx context.Context, c *command) (again time.Duration) {
	e, r := s.shard.engine, &c.Request
	if c.confirmed != nil {
		return s.keep(ctx, c)
	}
	if r.Sealed != "" {
		e.opts.Logger.Error("callbacks: request waits for the missing key of its secret", "key", r.Sealed, "id", s.id, "set", r.Set)
		return keyRetry
	}
	if r.Mode == subscription.Subscribe {
		if _, why := e.opts.Rights.May(r.By, r.Key, r.Anyone, r.Set); why != "" {
			return s.refuseRequest(ctx, c, why)
		}
	}
	if !s.active() && r.Mode == subscription.Unsubscribe {
		s.complete(c)
		return 0
	}
	var about subscription.Subscription
	if s.active() {
		about = *s.about
		if err := r.May(&about); err != nil { // the subscription was made after the request was accepted
			e.opts.Logger.Warn("callbacks: request dropped", "mode", r.Mode, "id", s.id, "set", r.Set, "host", s.host.name, "err", err)
			s.complete(c)
			e.opts.Activity.Called(outcome(r, &subscription.Attempt{Error: err.Error()}, true))
			return 0
		}
	}
	start := time.Now()
	confirmed := s.confirmation(r, &about, start)
	if r.Mode == subscription.Subscribe && !confirmed.wanted.LeaseEnd.After(start) {
		return s.refuseRequest(ctx, c, "the token of the request has expired")
	}
	return s.confirm(ctx, c, confirmed, &outlet.Question{
		Request: r, Keys: keysOf(r, &about, start), Token: confirmed.wanted.Token, Lease: confirmed.wanted.LeaseEnd.Sub(start),
		Since: confirmed.since, First: !s.active() && c.attempts == 0, Renewal: s.active(),
	})
}

// confirmation returns what the callback has to confirm. about is the current subscription, or zero.
func (s *sub) confirmation(r *subscription.Request, about *subscription.Subscription, now time.Time) *confirmation {
	c := &confirmation{since: r.Start, wanted: r.Makes(about, now)}
	if s.active() && !r.Move {
		c.since = s.Cursor
		// The new filter may match entries that the old one did not.
		if c.refilters = s.audience.Key != r.Filter.Key(); c.refilters {
			c.since = cmp.Or(s.From, s.Cursor)
		}
	}
	return c
}

// confirm calls the callback, and executes the command if the callback confirms it.
func (s *sub) confirm(ctx context.Context, c *command, confirmed *confirmation, q *outlet.Question) (again time.Duration) {
	e, r, start := s.shard.engine, &c.Request, time.Now()
	if !s.shard.mayCall() {
		return canceled
	}
	v := e.outlet(r.Form).Confirm(ctx, q)
	if ctx.Err() != nil && v.Decision != outlet.Done {
		return canceled
	}
	e.queue.setAddress(s.host, v.Place)
	if v.Decision == outlet.Limited {
		return backoff.Jitter(limitedRetry)
	}
	a := subscription.Attempt{At: start.UTC(), Kind: string(r.Mode), Status: v.Status, Took: time.Since(start), Error: v.Error}
	e.opts.Meter.Count(meter.Verification, v.Outcome, a.Took)
	if s.active() {
		s.history = s.history.with(a)
		s.save()
		if a.Took > slowAfter { // a quick response says nothing about deliveries
			s.standing = doubtful
		}
	}
	if v.Decision == outlet.Done {
		confirmed.attempt = a
		c.confirmed = confirmed
		return s.keep(ctx, c)
	}
	if c.attempts++; v.Decision != outlet.Over && c.attempts <= len(verifyRetries) {
		e.opts.Activity.Called(outcome(r, &a, false))
		return backoff.Jitter(verifyRetries[c.attempts-1])
	}
	e.opts.Activity.Called(outcome(r, &a, true))
	e.opts.Logger.Info("callbacks: request not confirmed", "mode", r.Mode, "id", s.id, "set", r.Set, "host", s.host.name, "status", a.Status, "err", a.Error)
	s.complete(c)
	return 0
}

// keysOf returns the keys that sign a verification: the secret of the request, and that of the current
// subscription.
func keysOf(r *subscription.Request, about *subscription.Subscription, now time.Time) outlet.Keys {
	secret, former := about.Secrets(now)
	if r.Mode != subscription.Subscribe || r.Secret == "" || r.Secret == secret {
		return outlet.Keys{Secret: secret, Former: former}
	}
	return outlet.Keys{Secret: r.Secret, Former: secret}
}

// keep makes, renews or removes the subscription as its callback has confirmed. It returns how long to
// wait before the next attempt, or 0 if the request is completed.
func (s *sub) keep(ctx context.Context, c *command) (again time.Duration) {
	e, r := s.shard.engine, &c.Request
	if r.Mode == subscription.Unsubscribe {
		if again = s.commit(c, subscription.Changes{Delete: []subscription.ID{s.id}}); again > 0 {
			return again
		}
		s.countEnd(r.Mode, string(r.Mode))
		s.retire(nil)
	} else {
		if _, why := e.opts.Rights.May(r.By, r.Key, r.Anyone, r.Set); why != "" {
			return s.refuseRequest(ctx, c, why) // the rights ended since the confirmation
		}
		rec := c.confirmed.record(s, r)
		if again = s.commit(c, subscription.Changes{Put: []subscription.Record{rec}}); again > 0 {
			return again
		}
		s.adopt(&rec)
	}
	e.opts.Activity.Called(outcome(r, &c.confirmed.attempt, true))
	e.opts.Logger.Info("callbacks: request confirmed", "mode", r.Mode, "id", s.id, "set", r.Set, "host", s.host.name)
	return 0
}

// record returns the record of a subscription that is made or renewed.
func (c *confirmation) record(s *sub, r *subscription.Request) subscription.Record {
	p := subscription.Progress{Cursor: c.since, Diverged: r.Diverged, Last: []subscription.Attempt{c.attempt}}
	if s.active() {
		switch kept := s.stored(); {
		case r.Move:
			p.Gaps, p.Last = kept.Gaps, kept.Last
		case c.refilters:
			p = kept
			p.Cursor, p.From, p.Failed, p.Next = c.since, feed.Cursor{}, 0, time.Time{}
		default:
			p = kept
			p.Next = time.Time{}
		}
	}
	return subscription.Record{Subscription: c.wanted, Progress: p}
}

// whyExpired returns the reason that a callback is told when its lease has ended. The removal of a set
// ends no subscription, because the set may be made again. If it was not, this is the only notice.
func (e *Engine) whyExpired(ctx context.Context, set string) string {
	if _, err := e.log.State(ctx, set); errors.Is(err, feed.ErrNoSet) {
		return "lease expired; the set does not exist"
	}
	return "lease expired"
}

// deny tells a callback once that a subscription has ended, or will not be made. verifyToken is that of
// the request, or empty if a subscription has ended.
func (s *sub) deny(ctx context.Context, about *subscription.Subscription, verifyToken, reason string) {
	if !s.shard.mayCall() {
		return
	}
	e, start := s.shard.engine, time.Now()
	secret, former := about.Secrets(start)
	v := e.outlet(about.Form).Deny(ctx, &outlet.Denial{
		Set: about.Set, Form: about.Form, Callback: about.Callback, Reason: reason, VerifyToken: verifyToken,
		Keys: outlet.Keys{Secret: secret, Former: former},
	})
	if ctx.Err() != nil {
		return
	}
	e.opts.Meter.Count(meter.Denial, v.Outcome, time.Since(start))
	if v.Status == 0 {
		e.opts.Logger.Info("callbacks: notification of an ended subscription failed", "id", s.id, "host", outbound.Host(about.Callback), "err", v.Error)
	}
}
