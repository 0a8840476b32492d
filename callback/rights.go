package callback

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Rights say whether those who made subscriptions may still follow their sets. Methods may
// be called concurrently, and must not block.
type Rights interface {
	// Version is another one whenever May may answer otherwise than before, other than
	// because a time has come.
	Version() uint64

	// May returns why whoever made a subscription may not follow a set, in words for the
	// callback and for operators; empty: they may. by and anyone are those of the
	// subscription.Subscription. If it is known when the right ends, until is that time.
	//
	// If they may not, the hub that took the subscription may have heard before this one that
	// they may, by late at most. A subscription that is not older waits, without deliveries.
	May(by string, anyone bool, set string) (until time.Time, why string, late time.Duration)
}

const (
	// rightsEvery is how often the engine looks whether rights have changed.
	rightsEvery = time.Second

	// unsureRetry is how long to wait at most until rights are looked at again.
	unsureRetry = 5 * time.Second

	// endedFor is how long a subscription that has lost its rights is kept for operators to see.
	endedFor = 7 * 24 * time.Hour
)

// may is Rights.May.
func (e *Engine) may(by string, anyone bool, set string) (until time.Time, why string, late time.Duration) {
	if e.opts.Rights == nil {
		return time.Time{}, "", 0
	}
	return e.opts.Rights.May(by, anyone, feed.SetOf(set))
}

// watchRights ends the subscriptions of those whose rights have ended, until ctx is done.
func (e *Engine) watchRights(ctx context.Context) {
	if e.opts.Rights == nil {
		return
	}
	tick := time.NewTicker(rightsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.lookAtRights()
		case <-ctx.Done():
			return
		}
	}
}

// lookAtRights looks at all subscriptions if rights may have changed, and else at those that
// were made, renewed or loaded since the last time. It takes one shard after the other, and
// does not hold Engine.mu while it asks.
func (e *Engine) lookAtRights() {
	version := e.opts.Rights.Version()
	e.mu.Lock()
	var shards []*shard
	for _, s := range e.shards {
		if s.loaded && !s.leaving && (s.rights != version || len(s.unchecked) > 0) {
			shards = append(shards, s)
		}
	}
	e.mu.Unlock()
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
		late  time.Duration
	}
	e.mu.Lock()
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
	e.mu.Unlock()
	for i := range all {
		l := &all[i]
		l.until, l.why, l.late = e.may(l.about.By, l.about.Anyone, l.about.Set)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range all {
		l.sub.checkedLocked(l.about, l.until, l.why, l.late)
	}
	e.fillLocked()
}

// uncheckLocked has the rights of a sub looked at soon.
func (s *shard) uncheckLocked(x *sub) {
	if s.engine.opts.Rights != nil {
		s.unchecked = append(s.unchecked, x)
	}
}

// checkedLocked goes on with a sub when May has answered for what it was about.
func (s *sub) checkedLocked(about *subscription.Subscription, until time.Time, why string, late time.Duration) {
	switch {
	case s.about == nil || s.over != "": // it was removed, or will be
	case s.about != about: // it was renewed meanwhile
		s.shard.uncheckLocked(s)
	case why == "":
		s.allowed = true
		s.cutLocked(until)
		if s.doubted {
			s.doubted = false
			s.retryLocked()
		}
	case s.allowed || !unsure(about, late):
		if s.running != nil {
			s.running.end()
		}
		s.endLocked(refused)
	default:
		s.shard.uncheckLocked(s)
	}
}

// unsure reports whether a subscription is so new that this hub may not have heard yet of
// what allows it. See Rights.May.
func unsure(about *subscription.Subscription, late time.Duration) bool {
	made := about.Made
	if about.Renewed.After(made) {
		made = about.Renewed
	}
	return time.Since(made) < late
}

// cutLocked ends the lease at until, if that is not zero and sooner. What the registry has is
// not changed: the next hub cuts the lease again.
func (s *sub) cutLocked(until time.Time) {
	if until.IsZero() || !until.Before(s.about.LeaseEnd) {
		return
	}
	shorter := *s.about
	shorter.LeaseEnd = until
	s.about = &shorter
	if s.state != running && until.Before(s.due) {
		s.shard.engine.remindLocked(&s.task, until)
	}
}

// refuse ends a subscription whose maker may not follow the set any more, and tells the
// callback. A record without secrets is kept for a while, so that operators see why. refuse
// returns what commitSoon does.
func (s *shard) refuse(r *subscription.Request) (again time.Duration) {
	e := s.engine
	e.mu.Lock()
	known := s.subs[r.ID()]
	if known == nil || known.over != refused {
		e.mu.Unlock()
		return 0
	}
	about := known.about
	e.mu.Unlock()
	_, why, _ := e.may(about.By, about.Anyone, about.Set)
	if why == "" { // the right is back
		e.mu.Lock()
		defer e.mu.Unlock()
		if known.over == refused {
			known.over = ""
			known.restLocked()
		}
		return 0
	}
	now := time.Now().UTC().Round(0)
	ended := false
	again = s.commitSoon(r, func() subscription.Changes {
		if s.subs[r.ID()] != known || known.over != refused { // it was renewed meanwhile
			return subscription.Changes{}
		}
		about = known.about
		kept := *known.recordLocked()
		kept.Ended, kept.Why, kept.LeaseEnd = now, why, earlier(about.LeaseEnd, now.Add(endedFor))
		kept.Secret, kept.Former, kept.FormerEnd, kept.Sealed = "", "", time.Time{}, ""
		return subscription.Changes{Put: []subscription.Record{kept}}
	}, func(c subscription.Changes) {
		if len(c.Put) == 0 || s.subs[r.ID()] != known {
			return
		}
		ended = true
		e.metrics.ended[refused].Inc()
		e.opts.Logger.Info("callbacks: a subscription ended", "id", known.id, "set", r.Set, "host", known.host.name, "why", why)
		s.removeLocked(known)
		s.buryLocked(&c.Put[0].Subscription)
	})
	if ended {
		s.deny(about, why)
	}
	return again
}

// refuseRequest ends a request to subscribe by a caller who may not follow the set any more,
// and tells the callback. It returns how long to wait until rights are looked at again; 0 when
// the request is over.
func (s *shard) refuseRequest(r *subscription.Request, why string, late time.Duration) (again time.Duration) {
	if left := late - time.Since(r.At); left > 0 {
		return min(unsureRetry, left)
	}
	s.engine.mu.Lock()
	s.finishLocked(r)
	s.engine.mu.Unlock()
	s.engine.opts.Outcome(outcome(r, &subscription.Attempt{Error: why}, true))
	s.deny(&subscription.Subscription{Set: r.Set, Callback: r.Callback, Secret: r.Secret, By: r.By}, why)
	return 0
}

// A grave is a subscription that has ended, and is kept until its lease would have ended. As
// a task it is due then, and it never gets a slot.
type grave struct {
	task
	set, callback string
}

// buryLocked keeps a subscription that has ended.
func (s *shard) buryLocked(about *subscription.Subscription) {
	g := &grave{set: about.Set, callback: about.Callback}
	g.task = task{work: g, shard: s, index: -1}
	s.graves[about.ID()] = g
	s.engine.remindLocked(&g.task, about.LeaseEnd)
}

// unburyLocked forgets a subscription that has ended, if there is one.
func (s *shard) unburyLocked(id subscription.ID) {
	if g := s.graves[id]; g != nil {
		s.engine.schedule.remove(&g.task)
		delete(s.graves, id)
	}
}

// turnLocked is never called: a grave gets no slot.
func (g *grave) turnLocked() turn { return nil }

// owner is never called: a grave gets no slot.
func (g *grave) owner() string { return "" }

// ringLocked is called when nobody needs to see the subscription any more.
func (g *grave) ringLocked() {
	g.shard.carryLocked(subscription.Request{Mode: forgotten, Set: g.set, Callback: g.callback})
}

// forget removes a subscription that has ended. It returns what commitSoon does.
func (s *shard) forget(r *subscription.Request) (again time.Duration) {
	return s.commitSoon(r, func() subscription.Changes {
		if s.graves[r.ID()] == nil { // a new one was made
			return subscription.Changes{}
		}
		return subscription.Changes{Delete: []subscription.ID{r.ID()}}
	}, func(c subscription.Changes) {
		if len(c.Delete) > 0 {
			s.unburyLocked(r.ID())
		}
	})
}
