package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// glances are what the hub found at its last look at each set.
type glances struct {
	mu   sync.Mutex
	last map[string]feed.State
}

// swap notes a glance, and returns the one that was noted before.
func (g *glances) swap(now feed.State) (was feed.State, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = map[string]feed.State{}
	}
	was, ok = g.last[now.Set]
	g.last[now.Set] = now
	return was, ok
}

// keep forgets all sets that are not in states.
func (g *glances) keep(states []feed.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	exists := make(map[string]feed.State, len(states))
	for _, s := range states {
		if was, ok := g.last[s.Set]; ok {
			exists[s.Set] = was
		}
	}
	g.last = exists
}

// lookBack looks whether logs have lost entries since the hub's last look. If one has, the hub
// forgets the pages that it has read. Only a memory that other hubs use can lose its newest
// entries while this hub runs.
func (h *Hub) lookBack(ctx context.Context, states []feed.State) {
	if h.opts.Shared == 0 {
		return
	}
	for _, s := range states {
		was, ok := h.glances.swap(s)
		if !ok || was.Head == s.Head {
			continue
		}
		if was.Begin != s.Begin {
			h.pages.lost() // another hub has made the set anew
			continue
		}
		is, err := h.log.At(ctx, s.Set, was.Head.Position)
		switch {
		case err == nil && is == was.Head:
		case errors.Is(err, feed.ErrGone), errors.Is(err, feed.ErrNoSet): // it was removed
		case err == nil, errors.Is(err, resourcesync.ErrInvalid): // the log ends before
			h.pages.lost()
			h.opts.Logger.Error("the change memory lost its newest changes: followers are told", "set", s.Set, "lost", was.Head, "head", s.Head)
		default:
			if !errors.Is(err, changelog.ErrCorrupt) { // damage stays, so trying again does not help
				h.glances.swap(was) // the next look tries again
			}
			if ctx.Err() == nil {
				h.opts.Logger.Warn("cannot find out whether the change memory lost changes", "set", s.Set, "err", err)
			}
		}
	}
}
