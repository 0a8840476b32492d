package callback

import (
	"context"
	"errors"
	"time"
)

// How late progress is saved: what a crash repeats.
const (
	saveEvery = 100 * time.Millisecond // after a delivery
	moveEvery = 10 * time.Second       // after a filter left something out
	saveAgain = time.Second            // after a failure
	saveTime  = 5 * time.Second        // for one Commit
)

// A nudge wakes a goroutine that may be busy: wants that come together count as
// one.
type nudge chan struct{}

func (n nudge) want() {
	select {
	case n <- struct{}{}:
	default:
	}
}

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

// saveAll begins to save what changed in any shard, and what only moved if all is
// set. No shard waits for another one, whose store may be slow. mu must not be held.
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
				pause(ctx, saveAgain)
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

// save commits a shard's progress. What cannot be saved is kept for the next
// time; then it reports false.
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
	changes := Changes{Progress: make(map[ID]Progress, len(dirty)), Done: done}
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
	err := s.commit(ctx, changes)
	if err == nil || errors.Is(err, ErrClaimLost) {
		return true
	}
	e.opts.Logger.Warn("callbacks: progress is not saved yet", "shard", s.hold.Shard, "err", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.ctx.Err() != nil {
		return true
	}
	s.done = append(s.done, done...)
	for _, x := range dirty {
		x.soil()
	}
	return false
}

// commit commits for who has locked committing. A shard whose claim is lost is
// dropped.
func (s *shard) commit(ctx context.Context, changes Changes) error {
	err := s.engine.registry.Commit(ctx, s.hold.Claim, changes)
	if errors.Is(err, ErrClaimLost) {
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		if s.engine.shards[s.hold.Shard] == s {
			s.engine.lose(s)
		}
		s.engine.claims.release(s.hold)
	}
	return err
}
