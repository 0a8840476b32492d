package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// lastStates holds the state of each set at the last check by this hub.
type lastStates struct {
	mu     sync.Mutex
	states map[string]feed.State
}

// swap stores the state of a set and returns the previous one. ok is false if there is none.
func (l *lastStates) swap(state feed.State) (previous feed.State, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.states == nil {
		l.states = map[string]feed.State{}
	}
	previous, ok = l.states[state.Set]
	l.states[state.Set] = state
	return previous, ok
}

// retain removes all sets that are not in states.
func (l *lastStates) retain(states []feed.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	retained := make(map[string]feed.State, len(states))
	for _, s := range states {
		if state, ok := l.states[s.Set]; ok {
			retained[s.Set] = state
		}
	}
	l.states = retained
}

// detectLoss detects logs that have lost entries since the hub's last check. If there is one,
// the hub drops its cached pages. Only a memory that other hubs use can lose its newest
// entries while this hub runs.
func (h *Hub) detectLoss(ctx context.Context, states []feed.State) {
	if h.opts.PollInterval == 0 {
		return
	}
	for _, s := range states {
		previous, ok := h.lastStates.swap(s)
		if !ok || previous.Head == s.Head {
			continue
		}
		if previous.Begin != s.Begin {
			h.pages.invalidate() // another hub has deleted and created the set
			continue
		}
		at, err := h.log.At(ctx, s.Set, previous.Head.Position)
		switch {
		case err == nil && at == previous.Head:
		case errors.Is(err, feed.ErrGone), errors.Is(err, feed.ErrNoSet): // removed by retention, or with the set
		case err == nil, errors.Is(err, resourcesync.ErrInvalid): // the log ends before that position
			h.pages.invalidate()
			h.opts.Logger.Error("the change memory lost its newest changes: followers are notified", "set", s.Set, "lost", previous.Head, "head", s.Head)
		default:
			if !errors.Is(err, changelog.ErrCorrupt) { // damage is permanent, so a retry would not help
				h.lastStates.swap(previous) // the next check tries again
			}
			if ctx.Err() == nil {
				h.opts.Logger.Warn("cannot check whether the change memory lost changes", "set", s.Set, "err", err)
			}
		}
	}
}
