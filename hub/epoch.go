package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// heads are the heads of the logs at the hub's last look, by set. If a log no
// longer holds its head from then, it has lost its newest entries.
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

// keep forgets all sets that are not in states.
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

// lookBack begins a new epoch for each log that no longer holds its head from the
// hub's last look. The closed Change Lists of such a log may now get other entries.
// states are the present states of the logs. Only a memory that other hubs use can
// lose its newest entries while this hub runs. If several hubs notice the loss, each
// begins an epoch; that does no harm.
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
			if !errors.Is(err, changelog.ErrCorrupt) { // damage stays, so trying again does not help
				h.heads.swap(was) // the next look tries again
			}
			if ctx.Err() == nil && !errors.Is(err, feed.ErrNoSet) {
				h.opts.Logger.Warn("cannot find out whether the change memory lost changes", "set", s.Set, "err", err)
			}
		case begun:
			h.opts.Logger.Error("the change memory lost its newest changes: followers are told, and the Change Lists that may differ get new names",
				"set", s.Set, "lost", was.Head, "head", s.Head)
		}
	}
}
