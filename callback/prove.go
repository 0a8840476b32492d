package callback

import (
	"errors"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// prove keeps a proof with its subscription, unless the subscription has a newer one, or
// another prefix than the one that was compared. It disturbs no delivery: the subscription
// goes on waiting for what it waits for. A store without room for records gets no proof,
// because renewals and removals would have to wait for it. prove returns what commitSoon
// does.
func (s *shard) prove(r *subscription.Request) (again time.Duration) {
	err := s.commitNow(r, func() subscription.Changes {
		known := s.subs[r.ID()]
		if known == nil || known.about.Filter.Prefix != r.Filter.Prefix || !r.Proof.At.After(known.about.Proved.At) {
			return subscription.Changes{}
		}
		rec := known.recordLocked()
		rec.Proved = r.Proof
		return subscription.Changes{Put: []subscription.Record{*rec}}
	}, func(c subscription.Changes) {
		if known := s.subs[r.ID()]; known != nil && len(c.Put) > 0 {
			about := *known.about
			about.Proved = r.Proof
			known.setAboutLocked(&about)
		}
	})
	if errors.Is(err, feed.ErrFull) && s.ctx.Err() == nil {
		e := s.engine
		e.opts.Logger.Warn("callbacks: a proof is not kept, because the store is full", "shard", s.hold.Shard, "id", r.ID())
		e.mu.Lock()
		defer e.mu.Unlock()
		s.finishLocked(r)
		return 0
	}
	return s.retry(r, err)
}
