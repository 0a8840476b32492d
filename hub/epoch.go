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
	last map[string]glance
}

// A glance is the state of a set, and the secret that the memory had then. Another secret
// means that the store was restarted or replaced in between. It may then have lost any
// entry that came after the look, and have got others in its place.
type glance struct {
	feed.State
	secret string
}

// swap notes a glance, and returns the one that was noted before.
func (g *glances) swap(now glance) (was glance, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = map[string]glance{}
	}
	was, ok = g.last[now.Set]
	g.last[now.Set] = now
	return was, ok
}

// keep forgets all sets that are not in states.
func (g *glances) keep(states []feed.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	exists := make(map[string]glance, len(states))
	for _, s := range states {
		if was, ok := g.last[s.Set]; ok {
			exists[s.Set] = was
		}
	}
	g.last = exists
}

// states returns the states of the named sets, or of all, and the secret that the memory had
// while they were read. If that changes, states reads them again.
func (h *Hub) states(ctx context.Context, names ...string) (states []feed.State, secret string, err error) {
	for range 3 {
		secret = h.log.Secret()
		states, err = h.log.Sets(ctx, names...)
		if h.log.Secret() == secret {
			break
		}
	}
	return states, secret, err
}

// lookBack begins a new epoch for each log that may have lost entries since the hub's last
// look. The closed Change Lists of such a log may now get other entries. states and secret
// are those of Hub.states. Only a memory that other hubs use can lose its newest entries
// while this hub runs. If several hubs notice the loss at the same time, each begins an epoch;
// that does no harm.
func (h *Hub) lookBack(ctx context.Context, states []feed.State, secret string) {
	if h.opts.Shared == 0 {
		return
	}
	for _, s := range states {
		was, ok := h.glances.swap(glance{s, secret})
		if !ok || was.Head == s.Head && was.secret == secret {
			continue
		}
		if was.Begin != s.Begin {
			h.pages.lost() // another hub has made the set anew
			continue
		}
		kept, err := h.kept(ctx, s.Set, was.Head)
		lost := err == nil && kept != was.Head
		if lost {
			h.pages.lost()
		}
		if err == nil && (lost || was.secret != secret) && was.Epochs == s.Epochs { // else another hub was first
			err = h.log.BeginEpoch(ctx, s.Set, kept.Position)
		}
		switch {
		case errors.Is(err, feed.ErrGone): // retention removed it, or the set was made anew
		case err != nil:
			if !errors.Is(err, changelog.ErrCorrupt) { // damage stays, so trying again does not help
				h.glances.swap(was) // the next look tries again
			}
			if ctx.Err() == nil && !errors.Is(err, feed.ErrNoSet) {
				h.opts.Logger.Warn("cannot find out whether the change memory lost changes", "set", s.Set, "err", err)
			}
		case lost:
			h.opts.Logger.Error("the change memory lost its newest changes: followers are told, and the Change Lists that may differ get new names",
				"set", s.Set, "lost", was.Head, "head", s.Head)
		}
	}
}

// kept returns was if the log still has the entry at that cursor, else the newest entry that
// it surely had when was was its head.
func (h *Hub) kept(ctx context.Context, set string, was feed.Cursor) (feed.Cursor, error) {
	is, err := h.log.At(ctx, set, was.Position)
	if err == nil && is == was {
		return was, nil
	}
	if err != nil && !errors.Is(err, resourcesync.ErrInvalid) { // which says that the log ends before
		return feed.Cursor{}, err
	}
	b, err := h.log.Since(ctx, set, was, 1)
	if err != nil {
		return feed.Cursor{}, err
	}
	return b.After, nil
}
