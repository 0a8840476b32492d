package callback

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

// endedFor is how long a subscription whose maker lost its rights is stored for operators to see.
const endedFor = 7 * 24 * time.Hour

// execute executes a command.
func (s *sub) execute(ctx context.Context, c *command) {
	again := s.try(ctx, c)
	sh := s.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	before := len(s.commands)
	if again > 0 {
		c.due = time.Now().Add(again)
		sh.writer.complete(s.commands.putBack(c)...)
	}
	sh.waiting += len(s.commands) - before - 1
	sh.fetchLocked()
}

// try executes a command once. It returns how long to wait before the next attempt, or 0 if the request
// is completed.
func (s *sub) try(ctx context.Context, c *command) (again time.Duration) {
	switch c.Mode {
	case subscription.Subscribe, subscription.Unsubscribe:
		return s.verify(ctx, c)
	case subscription.Remove:
		return s.remove(ctx, c, c.Mode, "removed by the operator of the hub")
	case subscription.Retry:
		if s.active() {
			s.Next, s.earliest, s.quiet = time.Time{}, time.Time{}, time.Time{}
			s.batch, s.burst = batchSize{}, 0
			s.save()
		}
	case subscription.Move:
		if s.active() {
			rec := s.record()
			rec.Progress = subscription.Progress{Cursor: c.Start, Diverged: c.Diverged, Gaps: rec.Gaps, Last: rec.Last}
			if again = s.commit(c, subscription.Changes{Put: []subscription.Record{rec}}); again == 0 {
				s.adopt(&rec)
			}
			return again
		}
	}
	s.complete(c)
	return 0
}

// complete removes the requests of a command from the inbox soon.
func (s *sub) complete(c *command) { s.shard.writer.complete(c.numbers()...) }

// commit commits changes, and completes a command with them, or none if c is nil. It returns how long to
// wait before the next attempt, or 0 if the changes are durable.
func (s *sub) commit(c *command, changes subscription.Changes) (again time.Duration) {
	if c != nil {
		changes.Done = c.numbers()
	}
	if err := s.shard.writer.commitAll(changes, false); err != nil {
		if s.shard.ctx.Err() == nil {
			s.shard.engine.opts.Logger.Warn("callbacks: commit failed; retrying", "shard", s.shard.claim.Shard, "id", s.id, "err", err)
		}
		return backoff.Jitter(commitRetry)
	}
	return 0
}

// finish ends the subscription because of s.over.
func (s *sub) finish(ctx context.Context) {
	sh := s.shard
	sh.mu.Lock()
	over := s.over
	sh.mu.Unlock()
	var again time.Duration
	switch over {
	case expired:
		again = s.expire(ctx)
	case refused:
		again = s.refuse(ctx)
	default:
		again = s.remove(ctx, nil, over, "")
	}
	s.retry = time.Now().Add(again)
}

// expire ends a subscription whose lease has ended, unless the inbox has requests that were not read: one
// of them may renew the lease, and have come in time.
func (s *sub) expire(ctx context.Context) (again time.Duration) {
	sh := s.shard
	sh.mu.Lock()
	after := sh.after
	sh.mu.Unlock()
	unread, err := sh.engine.registry.Inbox(sh.ctx, sh.claim.Shard, after, 1)
	if err != nil {
		return backoff.Jitter(commitRetry)
	}
	if len(unread) > 0 {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.newest = max(sh.newest, unread[0].Number)
		sh.fetchLocked()
		return backoff.Jitter(commitRetry)
	}
	return s.remove(ctx, nil, expired, sh.engine.whyExpired(sh.ctx, s.about.Set))
}

// remove removes the subscription. Then it tells the callback why, unless reason is empty. It removes the
// record even if this hub knows of none: it may be there although its commit seemed to fail.
func (s *sub) remove(ctx context.Context, c *command, mode subscription.Mode, reason string) (again time.Duration) {
	if again = s.commit(c, subscription.Changes{Delete: []subscription.ID{s.id}}); again > 0 {
		return again
	}
	about, active := s.about, s.active()
	if active {
		s.countEnd(mode, string(mode))
	}
	s.retire(nil)
	if active && reason != "" {
		s.deny(ctx, about, "", reason)
	}
	return 0
}

// countEnd counts and logs the end of the subscription.
func (s *sub) countEnd(mode subscription.Mode, why string) {
	e := s.shard.engine
	e.metrics.ended[mode].Inc()
	e.opts.Logger.Info("callbacks: subscription ended", "id", s.id, "set", s.about.Set, "host", s.host.name, "why", why)
}
