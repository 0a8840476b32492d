package callback

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/internal/backoff"
)

// How late progress is saved. After a crash the next hub delivers again what was
// delivered and not saved.
const (
	saveEvery = 100 * time.Millisecond // after a delivery
	moveEvery = 10 * time.Second       // after a filter left something out
	saveAgain = time.Second            // after a Commit that failed
	saveTime  = 5 * time.Second        // for one Commit
)

// saveLoop saves the progress of all shards, each in one Commit, a moment after
// something changed. It ends with ctx.
func (e *Engine) saveLoop(ctx context.Context) {
	moves := time.NewTicker(moveEvery)
	defer moves.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		all := false
		select {
		case <-e.saver:
			timer.Reset(saveEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		case <-moves.C:
			all = true
		case <-ctx.Done():
			return
		}
		e.saveAll(ctx, all)
	}
}

// saveAll begins to save the shards that have something dirty or done, and with all also
// what only moved. Each shard is saved in a goroutine of its own: a store that is slow
// for one shard delays no other.
func (e *Engine) saveAll(ctx context.Context, all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		if s.saving || len(s.dirty)+len(s.done) == 0 && (!all || len(s.moved) == 0) {
			continue
		}
		s.saving = true
		e.wg.Go(func() {
			if !s.save(ctx, all) {
				backoff.Wait(ctx, saveAgain)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			s.saving = false
			if len(s.dirty)+len(s.done) > 0 {
				e.saver.want()
			}
		})
	}
}

// save commits a shard's progress. It returns false when the Commit failed: what was to
// be saved is kept for the next time.
func (s *shard) save(ctx context.Context, all bool) bool {
	e := s.engine
	s.committing.Lock()
	defer s.committing.Unlock()
	e.mu.Lock()
	dirty, done := s.dirty, s.done
	s.dirty, s.done = nil, nil
	for _, x := range dirty {
		x.dirty = false
	}
	if all {
		for _, x := range s.moved {
			x.moved = false
		}
		dirty, s.moved = append(dirty, s.moved...), nil
	}
	changes := subscription.Changes{Progress: make(map[subscription.ID]subscription.Progress, len(dirty)), Done: done}
	for _, x := range dirty {
		if x.state != dead {
			changes.Progress[x.id] = x.unpack()
		}
	}
	e.mu.Unlock()
	if len(changes.Progress)+len(done) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	err := s.commitLocked(ctx, changes)
	if err == nil || errors.Is(err, claim.ErrLost) {
		return true
	}
	e.opts.Logger.Warn("callbacks: the progress of deliveries cannot be saved yet", "shard", s.hold.Shard, "err", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.ctx.Err() != nil {
		return true
	}
	s.done = append(s.done, done...)
	for _, x := range dirty {
		x.soilLocked()
	}
	return false
}
