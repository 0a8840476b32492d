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

// doubtPause is about the time between two looks that settle doubts. It bounds the
// cost of announcements that are lost, reordered or repeated, by accident or by an
// attacker: each look reads the heads of the sets in doubt, for all their followers.
const doubtPause = 50 * time.Millisecond

// watch compares the tails with the memory until ctx is done: all of them each
// Options.Shared, and those in doubt soon.
func (h *Hub) watch(ctx context.Context) {
	var tick <-chan time.Time // nil: no other hub uses the memory
	if h.opts.Shared > 0 {
		ticker := time.NewTicker(h.opts.Shared)
		defer ticker.Stop()
		tick = ticker.C
	}
	said := "" // the last logged error of a look at all sets
	for ctx.Err() == nil {
		select {
		case <-tick:
			now := ""
			if err := h.compare(ctx, h.looks(nil)); err != nil {
				now = err.Error()
			}
			if now != "" && now != said && ctx.Err() == nil {
				h.opts.Logger.Warn("cannot look for changes that were not announced", "err", now)
			}
			said = now
		case <-h.doubted:
			_ = h.compare(ctx, h.looks((*tail).doubtful)) // the look at each tick logs errors
			backoff.Wait(ctx, doubtPause)
		case <-ctx.Done():
		}
	}
}

// A look is a look at the head of a set's log, and what its tail knew when the look
// began.
type look struct {
	tail          *tail
	added, doubts uint64
	head          feed.Cursor
}

// looks begins a look for each tail that which chooses; nil chooses all.
func (h *Hub) looks(which func(*tail) bool) map[string]look {
	h.mu.Lock()
	tails := maps.Clone(h.tails)
	h.mu.Unlock()
	looks := make(map[string]look, len(tails))
	for set, t := range tails {
		if which == nil || which(t) {
			looks[set] = t.look()
		}
	}
	return looks
}

// compare looks whether the memory moved without an announcement: one may have been
// lost or refused, or the memory may have lost its tail. If it moved, the followers
// read the memory, which verifies their cursors. A set that cannot be read does not
// stop the comparison of the others. The error names it.
func (h *Hub) compare(ctx context.Context, looks map[string]look) error {
	if len(looks) == 0 {
		return nil
	}
	states, err := h.log.Sets(ctx, slices.Collect(maps.Keys(looks))...)
	defer h.lookBack(ctx, states) // after the followers are told
	for _, s := range states {
		h.found(looks[s.Set], s.Head)
		delete(looks, s.Set)
	}
	if err != nil {
		if len(states) > 0 || !errors.Is(err, feed.ErrUnavailable) { // else the memory is unavailable, which followers notice by themselves
			h.compareMissing(ctx, looks)
		}
		return err
	}
	for _, l := range looks { // of sets that do not exist
		h.found(l, feed.Cursor{})
	}
	return nil
}

// compareMissing compares the sets that are not among the states of a look that
// failed. Either they do not exist, or they cannot be read. It asks one by one, and
// only for sets that existed.
func (h *Hub) compareMissing(ctx context.Context, looks map[string]look) {
	away := 0
	for set, l := range looks {
		if l.head.IsZero() {
			continue
		}
		s, err := h.log.State(ctx, set)
		if err == nil || errors.Is(err, feed.ErrNoSet) {
			h.found(l, s.Head)
			continue
		}
		if errors.Is(err, feed.ErrUnavailable) {
			away++
		}
		if away == 3 || ctx.Err() != nil {
			return // a part of the memory is unavailable; the next look goes on
		}
	}
}

// found gives a tail the head that a look at the memory has found.
func (h *Hub) found(l look, head feed.Cursor) {
	if head.Micros < l.head.Micros {
		h.pages.lost()
	}
	unannounced, settled := l.tail.found(l, head)
	if unannounced {
		h.metrics.repaired.Inc()
	}
	if !settled {
		h.doubted.Wake()
	}
}

// look begins a look at the memory.
func (t *tail) look() look {
	t.mu.Lock()
	defer t.mu.Unlock()
	return look{t, t.added, t.doubts, t.head}
}

// doubtful reports whether the tail has a doubt that a look has to settle.
func (t *tail) doubtful() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubts != t.settled
}

// found takes the head that a look has found. If it differs from the tail's head,
// the followers read the memory. If batches were added since the look began, the
// look may be older than the batches; found then ignores it, and settles no doubt.
//
// unannounced is true when the head that the previous look found was never
// announced. It says nothing of the present head, because its announcement may still
// come.
func (t *tail) found(l look, head feed.Cursor) (unannounced, settled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added != l.added {
		return false, t.doubts == t.settled
	}
	t.settled = l.doubts
	switch {
	case t.checked != nil:
		unannounced = t.checked.Micros > t.newest.Micros
		t.announcedLocked(*t.checked) // from now on it counts as announced, so that it is counted only once
	case t.newest.IsZero():
		t.newest = head // entries from before this hub listened are no lost announcements
	}
	t.checked = &head
	if head != t.head {
		t.head = head
		t.forgetLocked()
	}
	return unannounced, t.doubts == t.settled
}
