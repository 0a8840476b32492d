package callback

import (
	"context"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// Rights say whether those who made subscriptions may still follow their sets. Methods may
// be called concurrently, and must not block.
type Rights interface {
	// Version is another one whenever May may answer otherwise than before, other than
	// because a time has come.
	Version() uint64

	// May returns why whoever made a subscription may not follow a set, in words for the
	// callback and for operators; empty: they may. by, key and anyone are those of the
	// subscription.Subscription. If it is known when the right ends, until is that time.
	May(by, key string, anyone bool, set string) (until time.Time, why string)
}

const (
	// rightsEvery is how often the engine looks whether rights have changed.
	rightsEvery = time.Second

	// unsureFor is how long a subscription of a caller whom this hub has never known waits, without
	// deliveries, before it ends, if it is new or was just taken over: hubs do not read a new token,
	// or a new key, at the same moment.
	unsureFor = 2 * time.Minute

	// unsureRetry is how long to wait until rights are looked at again.
	unsureRetry = 5 * time.Second

	// endedFor is how long a subscription that has lost its rights is kept for operators to see.
	endedFor = 7 * 24 * time.Hour
)

// lookAtRights ends the subscriptions of those whose rights have ended. It looks at all
// subscriptions if rights may have changed, and else at those that were made, renewed or
// loaded since the last time. It takes one shard after the other, and asks without the mutex.
func (e *Engine) lookAtRights(context.Context) {
	version := e.opts.Rights.Version()
	var shards []*shard
	st := e.lock()
	for _, s := range st.shards {
		if s.rights != version || len(s.unchecked) > 0 {
			shards = append(shards, s)
		}
	}
	st.unlock()
	for _, s := range shards {
		s.lookAtRights(version)
	}
}

func (s *shard) lookAtRights(version uint64) {
	e := s.engine
	type looked struct {
		sub   *sub
		about *subscription.Subscription
		until time.Time
		why   string
	}
	st := e.lock()
	if !s.loaded || s.leaving {
		st.unlock()
		return
	}
	if s.rights != version {
		s.rights, s.unchecked = version, nil
		for _, x := range s.subs {
			s.unchecked = append(s.unchecked, x)
		}
	}
	all := make([]looked, 0, len(s.unchecked))
	for _, x := range s.unchecked {
		if x.about != nil { // it was not removed meanwhile
			all = append(all, looked{sub: x, about: x.about})
		}
	}
	s.unchecked = nil
	st.unlock()
	for i := range all {
		l := &all[i]
		l.until, l.why = e.opts.Rights.May(l.about.By, l.about.Key, l.about.Anyone, l.about.Set)
	}
	st = e.lock()
	defer st.unlock()
	for _, l := range all {
		st.checked(l.sub, l.about, l.until, l.why)
	}
	st.fill()
}

// uncheck has the rights of a sub looked at soon.
func (s *sub) uncheck() {
	s.shard.unchecked = append(s.shard.unchecked, s)
}

// checked goes on with a sub when May has answered for what it was about.
func (st *state) checked(s *sub, about *subscription.Subscription, until time.Time, why string) {
	switch {
	case s.about == nil || s.over != "": // it was removed, or will be
	case s.about != about: // it was renewed meanwhile
		s.uncheck()
	case why == "":
		s.allowed = true
		st.setRightEnd(s, until)
	case s.allowed || !s.shard.unsure(about.Made, about.Renewed):
		if s.running != nil {
			s.running.end()
		}
		st.end(s, refused)
	default:
		s.uncheck()
	}
}

// unsure reports whether this hub may not have heard yet of a token that was used at one of
// these times: they are too short ago, or this hub did not have the shard then.
func (s *shard) unsure(used ...time.Time) bool {
	return slices.ContainsFunc(append(used, s.gained), func(t time.Time) bool { return time.Since(t) < unsureFor })
}

// leaseEnd returns when the lease of a sub ends: as it was granted, or sooner, with the right of
// whoever made it.
func (s *sub) leaseEnd() time.Time {
	if s.rightEnd.IsZero() {
		return s.about.LeaseEnd
	}
	return earlier(s.rightEnd, s.about.LeaseEnd)
}

// setRightEnd sets when the right of whoever made a sub ends; zero: nobody knows. That time may
// come sooner or later than before, as an operator may change it.
func (st *state) setRightEnd(s *sub, end time.Time) {
	if end.Equal(s.rightEnd) {
		return
	}
	s.rightEnd = end
	if s.stage != running && s.leaseEnd().Before(s.due) {
		st.wakeAt(&s.timer, s.leaseEnd())
	}
}

// refuse ends a subscription whose maker may not follow the set any more, and tells the
// callback. A record without secrets is kept for a while, so that operators see why. refuse
// returns what commit does.
func (s *shard) refuse(r *subscription.Request) (again time.Duration) {
	e := s.engine
	st := e.lock()
	known := s.subs[r.ID()]
	if known == nil || known.over != refused {
		st.unlock()
		return 0
	}
	about := known.about
	st.unlock()
	_, why := e.opts.Rights.May(about.By, about.Key, about.Anyone, about.Set)
	if why == "" { // the right is back
		st := e.lock()
		defer st.unlock()
		if known.over == refused {
			known.over, known.rightEnd = "", time.Time{}
			known.uncheck() // it may end at another time now
			st.rest(known)
		}
		return 0
	}
	now := time.Now().UTC().Round(0)
	ended := false
	again = s.commit(r, func(*state) subscription.Changes {
		if s.subs[r.ID()] != known || known.over != refused { // it was renewed meanwhile
			return subscription.Changes{}
		}
		about = known.about
		kept := *known.record()
		kept.Ended, kept.Why, kept.LeaseEnd = now, why, earlier(about.LeaseEnd, now.Add(endedFor))
		kept.Secret, kept.Former, kept.FormerEnd, kept.Sealed = "", "", time.Time{}, ""
		return subscription.Changes{Put: []subscription.Record{kept}}
	}, func(st *state, c subscription.Changes) {
		if len(c.Put) == 0 || s.subs[r.ID()] != known {
			return
		}
		ended = true
		st.removeEnded(known, refused, why)
		st.keepEnded(s, &c.Put[0].Subscription)
	})
	if ended {
		s.deny(about, "", why)
	}
	return again
}

// refuseRequest ends a request to subscribe by a caller who may not follow the set any more,
// and tells the callback. It returns how long to wait until rights are looked at again; 0 when
// the request is over.
func (s *shard) refuseRequest(r *subscription.Request, why string) (again time.Duration) {
	if s.unsure(r.At) {
		return unsureRetry
	}
	st := s.engine.lock()
	st.finish(s, r.Number)
	st.unlock()
	s.engine.opts.Activity.Called(outcome(r, &subscription.Attempt{Error: why}, true))
	s.deny(&subscription.Subscription{Set: r.Set, Form: r.Form, Callback: r.Callback, Terms: r.Terms, By: r.By}, r.VerifyToken, why)
	return 0
}

// An endedSub is a subscription that lost its rights, and is kept until its lease would have
// ended. Its timer is due then.
type endedSub struct {
	timer
	shard               *shard
	set, form, callback string
}

// keepEnded keeps a subscription that has ended.
func (st *state) keepEnded(s *shard, about *subscription.Subscription) {
	x := &endedSub{shard: s, set: about.Set, form: about.Form, callback: about.Callback}
	x.of = x
	s.ended[about.ID()] = x
	st.wakeAt(&x.timer, about.LeaseEnd)
}

// forgetEnded forgets a subscription that has ended, if there is one.
func (st *state) forgetEnded(s *shard, id subscription.ID) {
	if x := s.ended[id]; x != nil {
		st.schedule.stop(&x.timer)
		delete(s.ended, id)
	}
}

// wake is called when nobody needs to see the subscription any more.
func (x *endedSub) wake(st *state) {
	st.addRequest(x.shard, subscription.Request{Mode: forgotten, Set: x.set, Form: x.form, Callback: x.callback})
}
