package reader

import (
	"cmp"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A cachedState is a state that other readers may request again.
//
// An overlay and its states share changes, which Reader.bytes counts once. The overlay is charged for its changes, the
// newest of each resource. A state is charged for changes that only it and older states still have. If an overlay or a
// state is removed, the next older state inherits its charge, up to the memory of that state's changes:
//
//	state 1 ◀── state 2 ◀── state 3 ◀── overlay
type cachedState struct {
	*inventory.State
	overlay *overlay
	made    time.Time
	fixed   int // bytes of the state without its changes
	most    int // bytes of its changes

	// Guarded by Reader.mu.
	refs    int // number of readers, plus one while the state is in view.states
	charged int // bytes of changes, at most most
	used    time.Time
}

const (
	cachePeriod = 10 * time.Minute // for which a state is cached after its last use
	stateBytes  = 1 << 10          // approximate memory of a cachedState, besides State.Bytes
)

// addState caches the state at the cursor of an overlay, and returns it with a reference for a reader. If the same
// state is cached already, addState returns that one. It replaces a state at the same position with another cursor,
// which belongs to a lost log, or with another root, which may have been dropped.
func (v *view) addState(o *overlay) *cachedState {
	r, state, now := v.reader, o.changes.State(o.at), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	i, found := v.searchLocked(o.at)
	if found {
		if s := v.states[i]; s.Cursor() == o.at && s.overlay.snapshot == o.snapshot {
			return s.acquireLocked()
		}
		v.removeLocked(i)
	}
	s := &cachedState{State: state, overlay: o, made: now, fixed: stateBytes + state.Bytes(), most: o.bytes, refs: 2, used: now}
	v.states = slices.Insert(v.states, i, s)
	r.bytes += s.fixed
	o.users++
	r.evictLocked()
	return s
}

// searchLocked returns the index of the first state that is not before a position, and whether it is at the position.
func (v *view) searchLocked(at feed.Cursor) (int, bool) {
	return slices.BinarySearchFunc(v.states, at, func(s *cachedState, at feed.Cursor) int { return cmp.Compare(s.Cursor().Position, at.Position) })
}

// stateAt returns the cached state at a cursor with a reference for a reader, or nil.
func (v *view) stateAt(at feed.Cursor) *cachedState {
	v.reader.mu.Lock()
	defer v.reader.mu.Unlock()
	if i, found := v.searchLocked(at); found && v.states[i].Cursor() == at {
		return v.states[i].acquireLocked()
	}
	return nil
}

// recentState returns the newest cached state with a reference for a reader. It returns nil if the state is before
// from, or was made too long ago.
func (v *view) recentState(from feed.Cursor) *cachedState {
	v.reader.mu.Lock()
	defer v.reader.mu.Unlock()
	if n := len(v.states); n > 0 && v.states[n-1].Cursor().Position >= from.Position && time.Since(v.states[n-1].made) < recentPeriod {
		return v.states[n-1].acquireLocked()
	}
	return nil
}

func (s *cachedState) acquireLocked() *cachedState {
	s.refs++
	return s
}

// release removes the reference of a reader.
func (s *cachedState) release() {
	r := s.overlay.view.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	s.used = time.Now()
	s.releaseLocked()
}

func (s *cachedState) releaseLocked() {
	if s.refs--; s.refs == 0 {
		s.overlay.view.reader.bytes -= s.fixed + s.charged
		s.overlay.unuseLocked()
	}
}

// removeLocked removes the state with an index from the cache. If it has readers, its memory remains charged until they
// release it.
func (v *view) removeLocked(i int) {
	s := v.states[i]
	v.inheritLocked(s.overlay, i, s.charged)
	v.states = slices.Delete(v.states, i, i+1)
	s.releaseLocked()
}

// inheritLocked charges bytes to the newest state of an overlay whose index is less than n, if there is one.
func (v *view) inheritLocked(o *overlay, n, bytes int) {
	for _, s := range slices.Backward(v.states[:n]) {
		if s.overlay == o {
			bytes = min(bytes, s.most-s.charged)
			s.charged += bytes
			v.reader.bytes += bytes
			return
		}
	}
}

// evictLocked drops states and overlays until the rest fits into memory, and reports whether it does.
func (r *Reader) evictLocked() bool {
	excess := func() bool { return r.bytes > r.opts.StateBytes }
	if excess() {
		r.dropLocked(func(time.Time) bool { return excess() })
	}
	return !excess()
}

// expire drops states, overlays and views that were not used for a while.
func (r *Reader) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(func(used time.Time) bool { return now.Sub(used) >= cachePeriod })
}

// dropLocked drops states without readers, the least recently used first, and then overlays of views without users, for
// whose last use drop returns true.
func (r *Reader) dropLocked(drop func(used time.Time) bool) {
	var idle []*cachedState
	for _, v := range r.views {
		for _, s := range v.states {
			if s.refs == 1 {
				idle = append(idle, s)
			}
		}
	}
	slices.SortFunc(idle, func(a, b *cachedState) int { return a.used.Compare(b.used) })
	for _, s := range idle {
		if v := s.overlay.view; drop(s.used) {
			v.removeLocked(slices.Index(v.states, s))
		}
	}
	for _, v := range r.views {
		if v.users == 0 && drop(v.used) {
			v.discardLocked(v.overlay)
			v.removeIfEmptyLocked()
		}
	}
}
