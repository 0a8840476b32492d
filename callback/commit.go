package callback

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/internal/backoff"
)

// commitRetry is how long to wait until a Commit that the store refused is tried
// again.
const commitRetry = time.Second

// commitSoon makes changes and takes the request out of the inbox, in one step.
// buildLocked returns the changes; applyLocked brings them into memory once the store
// has them. Both are called with Engine.mu held. In between mu is free, and the state may
// change, so applyLocked has to look at it again. commitSoon returns how long to wait for
// the next try; 0 when the changes are made, or the shard is lost.
func (s *shard) commitSoon(r *subscription.Request, buildLocked func() subscription.Changes, applyLocked func(subscription.Changes)) (again time.Duration) {
	return s.retry(r, s.commitNow(r, buildLocked, applyLocked))
}

// retry logs why a commit for a request failed. It returns what commitSoon does.
func (s *shard) retry(r *subscription.Request, err error) (again time.Duration) {
	if err == nil || s.ctx.Err() != nil {
		return 0
	}
	s.engine.opts.Logger.Warn("callbacks: a request about a subscription waits, because the store cannot be written", "shard", s.hold.Shard, "mode", r.Mode, "err", err)
	return backoff.Jitter(commitRetry)
}

// commitNow tries once what commitSoon does. It returns nil also when the claim is
// lost: the next hub carries the request out.
func (s *shard) commitNow(r *subscription.Request, buildLocked func() subscription.Changes, applyLocked func(subscription.Changes)) error {
	e := s.engine
	s.committing.Lock()
	defer s.committing.Unlock()
	e.mu.Lock()
	c := buildLocked()
	e.mu.Unlock()
	if r.Number > 0 {
		c.Done = append(c.Done, r.Number)
	}
	if len(c.Put)+len(c.Delete)+len(c.Done) > 0 {
		ctx, cancel := context.WithTimeout(s.ctx, saveTime)
		defer cancel()
		if err := s.commitLocked(ctx, c); errors.Is(err, claim.ErrLost) {
			return nil
		} else if err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.ctx.Err() == nil {
		applyLocked(c)
	}
	return nil
}

// commitLocked commits changes. It needs the shard's committing held, and Engine.mu
// free: it blocks, and locks Engine.mu to drop a shard whose claim is lost.
func (s *shard) commitLocked(ctx context.Context, changes subscription.Changes) error {
	err := s.engine.registry.Commit(ctx, s.hold.Claim, changes)
	if errors.Is(err, claim.ErrLost) {
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		if s.engine.shards[s.hold.Shard] == s {
			s.engine.loseLocked(s)
		}
		s.engine.claims.Release(s.hold)
	}
	return err
}
