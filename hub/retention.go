package hub

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// maintain creates the configured sets, applies retention, and frees memory that is idle.
func (h *Hub) maintain(ctx context.Context) {
	for _, set := range h.opts.Sets {
		if _, err := h.log.State(ctx, set); err == nil {
			continue // makeSet would wake the watchers of the list of sets
		}
		if err := h.makeSet(ctx, set, feed.Description{}); err != nil && ctx.Err() == nil {
			h.opts.Logger.Warn("cannot create configured set", "err", err)
		}
	}
	h.applyRetention(ctx)
	h.pages.clearIdle()
	for _, c := range h.startChecks(nil) {
		c.tail.shrinkIdle()
	}
}

// applyRetention applies retention to every set. It only logs failures: the next round tries
// again, and it is harmless to retain too much.
func (h *Hub) applyRetention(ctx context.Context) {
	newest, checks := h.metrics.newest.Load(), h.startChecks(nil)
	sets, err := h.log.Sets(ctx)
	if err != nil && ctx.Err() == nil {
		h.opts.Logger.Warn("retention failed", "err", err)
	}
	if err == nil {
		h.metrics.setStates(sets, newest)
		h.lastStates.retain(sets)
	}
	h.detectLoss(ctx, sets)
	r := h.opts.Retention
	r.Doubtful = h.clockDoubtful(ctx)
	failed := 0
	for _, s := range sets {
		if c, ok := checks[s.Set]; ok {
			h.finishCheck(c, s.Head)
		}
		r.Unread = h.retentionLimit(ctx, s)
		removed, err := h.log.Trim(ctx, s.Set, r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, feed.ErrNoSet):
			h.opts.Logger.Warn("retention failed", "set", s.Set, "err", err)
			if errors.Is(err, changelog.ErrCorrupt) {
				continue // affects only this set
			}
			if failed++; failed == 3 {
				return // the memory has a problem that further attempts would not solve
			}
		case removed > 0:
			h.metrics.removed.Add(float64(removed))
			h.opts.Logger.Info("retention removed old changes", "set", s.Set, "removed", removed)
		}
	}
}

// retentionLimit returns the cursor that retention must not pass in a set, or nil if there is
// none.
func (h *Hub) retentionLimit(ctx context.Context, s feed.State) *feed.Cursor {
	const alwaysRetained = 2 // lists that retention never removes: the open one and the newest closed one
	oldest, open := s.Lists()
	if h.opts.Inventories == nil || h.opts.Retention.Age == 0 && h.opts.Retention.Count == 0 {
		return nil // nothing would be removed
	}
	if open-oldest < alwaysRetained {
		return &s.Floor // nothing would be removed as of s, but the set may have grown since
	}
	at, ok := h.opts.Inventories.Unread(ctx, s.Set)
	if !ok {
		return nil
	}
	return &at
}

// clockDoubtful reports whether the clock is in doubt or cannot be checked. Retention then
// does not remove entries because of their age.
func (h *Hub) clockDoubtful(ctx context.Context) bool {
	doubtful, err := h.log.Tick(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		h.opts.Logger.Warn("retention by age paused: cannot check the clock", "err", err)
	case doubtful && h.metrics.clockDoubtful.CompareAndSwap(false, true):
		h.opts.Logger.Warn("retention by age paused for a day, or until the clock is set back: the clock jumped ahead by more than an hour, or no hub ran for that long, or the clock differs from that of the store",
			"now", time.Now().UTC().Format(time.RFC3339))
	case err == nil && !doubtful && h.metrics.clockDoubtful.CompareAndSwap(true, false):
		h.opts.Logger.Info("the clock is trusted again: retention by age resumed")
	}
	return doubtful || err != nil
}

// runEvery calls do after each interval until ctx is done.
func runEvery(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}
