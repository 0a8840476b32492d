package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// heads are the heads that the logs had when the hub looked last, by set. They show
// that a log lost its newest entries: then it does not hold the head that it had.
type heads struct {
	mu   sync.Mutex
	seen map[string]feed.State
}

// swap notes a state, and returns the one that was noted before.
func (h *heads) swap(s feed.State) (was feed.State, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = map[string]feed.State{}
	}
	was, ok = h.seen[s.Set]
	h.seen[s.Set] = s
	return was, ok
}

// keep forgets all sets but those of states.
func (h *heads) keep(states []feed.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	exists := make(map[string]feed.State, len(states))
	for _, s := range states {
		if was, ok := h.seen[s.Set]; ok {
			exists[s.Set] = was
		}
	}
	h.seen = exists
}

// lookBack begins a new epoch of each log that does not hold the head that it had
// when the hub looked last. Its lists may then get other entries than they had. states
// are what the logs are now. Only a memory that other hubs use can lose its tail while
// this hub runs. If several hubs notice it, each begins an epoch; that does no harm.
func (h *Hub) lookBack(ctx context.Context, states []feed.State) {
	if h.opts.Shared == 0 {
		return
	}
	for _, s := range states {
		was, ok := h.heads.swap(s)
		if !ok || was.Head == s.Head || was.Begin != s.Begin {
			continue
		}
		begun, err := h.log.BeginEpoch(ctx, s.Set, was.Head)
		switch {
		case err != nil:
			if !errors.Is(err, changelog.ErrCorrupt) { // what is damaged stays so, and nobody can read it
				h.heads.swap(was) // the next look tries again
			}
			if ctx.Err() == nil && !errors.Is(err, feed.ErrNoSet) {
				h.opts.Logger.Warn("cannot find out whether the change memory has lost changes", "set", s.Set, "err", err)
			}
		case begun:
			h.opts.Logger.Error("the change memory has lost its newest changes: followers are told, and the Change Lists that may differ get new names",
				"set", s.Set, "lost", was.Head, "head", s.Head)
		}
	}
}
