package hub

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// checkInterval is the approximate time between two requested checks. It bounds the cost of
// announcements that are lost, reordered or repeated, by accident or by an attacker: each
// check reads the heads of the requesting sets once for all their followers.
const checkInterval = 50 * time.Millisecond

// watchHeads compares the tails with the memory until ctx is done: all of them every
// Options.PollInterval, and those that need a check soon after they requested it.
func (h *Hub) watchHeads(ctx context.Context) {
	var tick <-chan time.Time // nil if no other hub uses the memory
	if h.opts.PollInterval > 0 {
		ticker := time.NewTicker(h.opts.PollInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	lastErr := "" // last logged error of a check of all sets; empty if the check succeeded
	for ctx.Err() == nil {
		select {
		case <-tick:
			errText := ""
			if err := h.checkHeads(ctx, h.startChecks(nil)); err != nil {
				errText = err.Error()
			}
			if errText != "" && errText != lastErr && ctx.Err() == nil {
				h.opts.Logger.Warn("cannot check for unannounced changes", "err", errText)
			}
			lastErr = errText
		case <-h.checkWakeup:
			_ = h.checkHeads(ctx, h.startChecks((*tail).needsCheck)) // the check at each tick logs errors
			backoff.Wait(ctx, checkInterval)
		case <-ctx.Done():
		}
	}
}

// A headCheck is a check of the head of a set's log in progress. It has the state of the tail
// when the check started.
type headCheck struct {
	tail                   *tail
	added, requestedChecks uint64
	head                   feed.Cursor
}

// startChecks starts a check of each tail for which filter returns true; a nil filter selects
// all.
func (h *Hub) startChecks(filter func(*tail) bool) map[string]headCheck {
	h.mu.Lock()
	tails := maps.Clone(h.tails)
	h.mu.Unlock()
	checks := make(map[string]headCheck, len(tails))
	for set, t := range tails {
		if filter == nil || filter(t) {
			checks[set] = t.startCheck()
		}
	}
	return checks
}

// checkHeads checks whether the memory changed without an announcement: one may have been lost
// or refused, or the log may have lost its newest entries. If so, the followers read the
// memory, which verifies their cursors. A set that cannot be read does not prevent the checks
// of the others; the error names it.
func (h *Hub) checkHeads(ctx context.Context, checks map[string]headCheck) error {
	if len(checks) == 0 {
		return nil
	}
	states, err := h.log.Sets(ctx, slices.Collect(maps.Keys(checks))...)
	defer h.detectLoss(ctx, states) // after the followers are woken
	for _, s := range states {
		h.finishCheck(checks[s.Set], s.Head)
		delete(checks, s.Set)
	}
	if err != nil {
		if len(states) > 0 || !errors.Is(err, feed.ErrUnavailable) { // otherwise the whole memory is unavailable, and followers find that out themselves
			h.checkHeadsSingly(ctx, checks)
		}
		return err
	}
	for _, c := range checks { // the remaining sets do not exist
		h.finishCheck(c, feed.Cursor{})
	}
	return nil
}

// checkHeadsSingly checks the sets whose states were missing from a failed read of several.
// Either they do not exist, or they cannot be read. It reads their states one by one, and only
// for sets that existed.
func (h *Hub) checkHeadsSingly(ctx context.Context, checks map[string]headCheck) {
	unavailable := 0
	for set, c := range checks {
		if c.head.IsZero() {
			continue
		}
		s, err := h.log.State(ctx, set)
		if err == nil || errors.Is(err, feed.ErrNoSet) {
			h.finishCheck(c, s.Head)
			continue
		}
		if errors.Is(err, feed.ErrUnavailable) {
			unavailable++
		}
		if unavailable == 3 || ctx.Err() != nil {
			return // part of the memory is unavailable; the next check continues
		}
	}
}

// finishCheck applies the head that a check found in the memory to the tail. It requests
// another check if the tail still needs one.
func (h *Hub) finishCheck(c headCheck, head feed.Cursor) {
	if head.Micros < c.head.Micros {
		h.pages.invalidate()
	}
	unannounced, done := c.tail.finishCheck(c, head)
	if unannounced {
		h.metrics.repaired.Inc()
	}
	if !done {
		h.checkWakeup.Wake()
	}
}

// startCheck returns a check that records the current state of the tail.
func (t *tail) startCheck() headCheck {
	t.mu.Lock()
	defer t.mu.Unlock()
	return headCheck{t, t.added, t.requestedChecks, t.head}
}

// needsCheck reports whether the tail has requested a check that has not been served.
func (t *tail) needsCheck() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requestedChecks != t.finishedChecks
}

// finishCheck applies the head that a check found. If it differs from the tail's head, the
// followers read the memory. If batches were added since the check started, or a follower read
// another head, its result may be older; finishCheck then ignores it, and requested checks
// remain requested.
//
// unannounced reports whether the head found by the previous check was never announced. It
// says nothing about the current head, whose announcement may still arrive. done reports
// whether no further check is needed.
func (t *tail) finishCheck(c headCheck, head feed.Cursor) (unannounced, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added != c.added || t.head != c.head {
		return false, t.requestedChecks == t.finishedChecks
	}
	t.finishedChecks = c.requestedChecks
	switch {
	case t.lastChecked != nil:
		unannounced = t.lastChecked.Micros > t.newestAnnounced.Micros
		t.noteAnnouncedLocked(*t.lastChecked) // treated as announced from now on, so that it is counted only once
	case t.newestAnnounced.IsZero():
		t.newestAnnounced = head // entries from before this hub subscribed do not count as lost announcements
	}
	t.lastChecked = &head
	if head != t.head {
		t.head = head
		t.invalidateLocked()
	}
	t.confirmed = !head.IsZero()
	return unannounced, t.requestedChecks == t.finishedChecks
}
