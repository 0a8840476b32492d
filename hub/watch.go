package hub

import (
	"sync"

	"github.com/rshub/rshub/feed"
)

// watchers are functions to be called after each change of what they watch. A pointer
// identifies each of them. The owner's lock guards the map.
type watchers map[*func()]struct{}

// wake calls all functions.
func (w watchers) wake() {
	for wake := range w {
		(*wake)()
	}
}

// add adds a function, and returns the key with which to delete it.
func (w *watchers) add(wake func()) *func() {
	if *w == nil {
		*w = watchers{}
	}
	(*w)[&wake] = struct{}{}
	return &wake
}

// Watch calls wake when a set may have changes that the caller has not read, until release is
// called. After Watch returns, a change leads to a call of wake unless a later call of Next
// returns it, or it is not after the head of a later call of NoteHead. There may be calls
// without a change. After each call, the caller must call Next until it returns nothing.
//
// wake must not block and must not call the Hub, because a lock is held during the call. It may
// be called concurrently, and is not called after release returns. The caller counts as a
// follower of the set until it calls release, which it must do once.
func (h *Hub) Watch(set string, wake func()) (release func()) {
	t := h.attach(set)
	t.mu.Lock()
	key := t.watchers.add(wake)
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.watchers, key)
		t.mu.Unlock()
		h.detach(set, t)
	}
}

// NoteHead notes that a caller of Watch has since read in the memory that the log of a set ends
// at head, for instance with the states of many sets. If its own cursor is not head, the caller
// must call Next. Other followers of the set are woken if this is news to the Hub. NoteHead does
// nothing if head is zero.
func (h *Hub) NoteHead(set string, head feed.Cursor) {
	h.mu.Lock()
	t := h.tails[set]
	others := t != nil && t.followers > 1
	h.mu.Unlock()
	// A follower that attaches after this line reads the memory after the caller did.
	if t != nil {
		t.noteHead(head, others)
	}
}

// noteHead implements Hub.NoteHead. It wakes the followers if the tail did not know its head
// and there are others than the caller.
func (t *tail) noteHead(head feed.Cursor, others bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.head.IsZero() || t.added > 0 || head.IsZero() {
		return // head may be from before a deletion or an append; if the tail's head is wrong, a check corrects it
	}
	t.head, t.confirmed = head, true
	if others {
		t.wakeLocked() // they may wait for entries up to head
	}
}

// setWatchers are the watchers of the list of sets.
type setWatchers struct {
	mu       sync.Mutex
	watchers watchers
}

// wake calls all functions.
func (w *setWatchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers.wake()
}

// WatchSets calls wake each time this hub has created, described or deleted a set, until
// release is called. It also calls wake after a failure, because the memory may have done it
// anyway. It does not notice what other hubs do. wake must not block and must not call WatchSets
// or release. It may be called concurrently, and is not called after release returns.
func (h *Hub) WatchSets(wake func()) (release func()) {
	w := &h.setWatchers
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.watchers.add(wake)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, key)
	}
}
