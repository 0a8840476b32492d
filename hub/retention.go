package hub

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// tidy makes the configured sets, applies retention, and frees memory that nobody needs now.
func (h *Hub) tidy(ctx context.Context) {
	for _, set := range h.opts.Sets {
		if err := h.make(ctx, set, feed.Description{}); err != nil && ctx.Err() == nil {
			h.opts.Logger.Warn("a configured set cannot be made", "err", err)
		}
	}
	h.trim(ctx)
	h.pages.tidy()
	for _, l := range h.looks(nil) {
		l.tail.rest()
	}
}

// trim applies retention to every set. A failure is only logged: the next round
// tries again, and keeping too much harms nobody.
func (h *Hub) trim(ctx context.Context) {
	newest, looks := h.metrics.newest.Load(), h.looks(nil)
	sets, err := h.log.Sets(ctx)
	if err != nil && ctx.Err() == nil {
		h.opts.Logger.Warn("retention failed", "err", err)
	}
	if err == nil {
		h.metrics.looked(sets, newest)
		h.glances.keep(sets)
	}
	h.lookBack(ctx, sets)
	r := h.opts.Retention
	r.Doubtful = h.tick(ctx)
	failed := 0
	for _, s := range sets {
		if l, ok := looks[s.Set]; ok {
			h.found(l, s.Head)
		}
		r.Unread = h.unread(ctx, s)
		removed, err := h.log.Trim(ctx, s.Set, r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, feed.ErrNoSet):
			h.opts.Logger.Warn("retention failed", "set", s.Set, "err", err)
			if errors.Is(err, changelog.ErrCorrupt) {
				continue // that is a matter of this set alone
			}
			if failed++; failed == 3 {
				return // the memory has a problem that retention cannot solve
			}
		case removed > 0:
			h.metrics.removed.Add(float64(removed))
			h.opts.Logger.Info("retention removed old changes", "set", s.Set, "removed", removed)
		}
	}
}

// unread returns the cursor that retention must not pass in a set, or nil.
func (h *Hub) unread(ctx context.Context, s feed.State) *feed.Cursor {
	const always = 2 // lists that are kept anyway: the open one and the newest closed one
	oldest, open := s.Lists()
	if h.opts.Inventories == nil || h.opts.Retention.Age == 0 && h.opts.Retention.Count == 0 {
		return nil // nothing would be removed
	}
	if open-oldest < always {
		return &s.Floor // nothing would be removed, but the set may have grown since
	}
	at, ok := h.opts.Inventories.Unread(ctx, s.Set)
	if !ok {
		return nil
	}
	return &at
}

// tick reports whether the clock is in doubt, or cannot be checked. Retention then
// removes nothing because of its age.
func (h *Hub) tick(ctx context.Context) bool {
	doubtful, err := h.log.Tick(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		h.opts.Logger.Warn("retention by age pauses: it is unknown whether the clock is right", "err", err)
	case doubtful && h.metrics.doubt.CompareAndSwap(false, true):
		h.opts.Logger.Warn("retention by age pauses for a day, or until the clock is set back: the clock went ahead by more than an hour, or no hub ran for so long, or it differs from the clock of the store",
			"now", time.Now().UTC().Format(time.RFC3339))
	case err == nil && !doubtful && h.metrics.doubt.CompareAndSwap(true, false):
		h.opts.Logger.Info("the clock is trusted again: retention by age goes on")
	}
	return doubtful || err != nil
}

// every calls do at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
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
