package hub

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/rshub/rshub/feed"
)

// Limits of a tail's window. They are small on purpose: a follower that is further
// behind reads the memory.
const (
	maxWindowBatches = 1024
	maxWindowBytes   = 4 << 20
)

// A tail is the end of a set's log while the set has followers: a gapless window of recent
// batches, and a wake-up.
//
// Whenever mu is not held, these invariants hold:
//   - Each batch in the window starts where the previous one ends. The last one ends at
//     head.
//   - head is where this hub assumes that the log ends. It learned this from the memory,
//     never from the word of another hub alone: a follower or a check found head, the hub
//     appended it, or authentic announcements led from such a head to it, each starting
//     where the previous one ended.
//   - If confirmed is true, head is not zero, nothing followed it when the hub learned of it,
//     and since then this hub has appended or deleted nothing that head does not reflect. After
//     an append with an unknown outcome, confirmed is false until the memory has been read. If
//     the window has batches, confirmed is true.
//   - A waiting follower is at a confirmed head, or it has read the memory or the window since
//     head last changed, or confirmed became false. So no follower waits for entries up to
//     head.
//   - An announcement that does not fit the state of the tail requests a check. Hub.watchHeads
//     then compares the tail with the memory, and repeats that until nothing was added
//     during a check. It also checks at each tick, without a request. The result of a check
//     becomes head, whether it is later or earlier.
type tail struct {
	// Hub.mu guards these.
	followers   int
	unsubscribe func() // stops the announcements of other hubs; nil if there is no Bus

	mu           sync.Mutex
	head         feed.Cursor   // end of the set's log; zero if not yet known or the set does not exist
	confirmed    bool          // whether a follower at head need not read the memory
	window       []*feed.Batch // recent batches
	batchSizes   []int         // size of each batch in window
	windowBytes  int           // sum of batchSizes
	droppedBytes int           // bytes of evicted batches that the backing array of window may still reference
	idleStart    feed.Cursor   // first entry of the last window that was dropped because it was idle, for lag; zero if unknown
	changed      chan struct{} // closed and replaced when head or the window changes
	watchers     watchers      // called when changed is closed

	added           uint64 // number of batches added, deletions, and appends with an unknown outcome
	addedAtShrink   uint64 // value of added at the last shrinkIdle
	requestedChecks uint64 // number of requested checks of the memory
	finishedChecks  uint64 // number of those requests that were served

	// These detect entries that were not announced, for the metric of repairs.
	lastChecked     *feed.Cursor // head of the log at the last check; nil before the first one
	newestAnnounced feed.Cursor  // newest entry that was added, announced, or found by the first check
}

// after returns the batches in the window after a cursor; none if the cursor is head. ok is
// false if neither head nor the window tells what follows the cursor; the caller must then read
// the memory. changed is closed at the next change after this call.
//
// The returned slice shares its array with other followers. That is safe because the window
// only grows at its end or is replaced.
func (t *tail) after(cursor feed.Cursor) (batches []*feed.Batch, ok bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.confirmed && cursor == t.head {
		return nil, true, t.changed
	}
	n := len(t.window)
	i := sort.Search(n, func(i int) bool { return t.window[i].After.Position >= cursor.Position })
	if i == n || t.window[i].After != cursor {
		return nil, false, t.changed
	}
	return t.window[i:n:n], true, t.changed
}

// add adds batches that this hub has appended, and wakes the followers. A batch that does not
// start at the end of the window replaces the window; followers that need the entries in
// between read the memory. add skips a batch that is not later than head: either the tail
// already has it, or the memory has lost head. Then add requests a check and returns false,
// and the caller must wake Hub.watchHeads.
func (t *tail) add(batches []*feed.Batch) (contiguous bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	contiguous = true
	for _, b := range batches {
		if b.Cursor.Micros > t.head.Micros {
			t.addLocked(b)
		} else {
			contiguous = false
		}
	}
	if !contiguous {
		t.requestedChecks++
	}
	t.evictLocked()
	t.wakeLocked()
	return contiguous
}

// addLocked puts a batch at the end of the window. The caller must hold mu.
func (t *tail) addLocked(b *feed.Batch) {
	if t.head != b.After {
		t.clearLocked()
	}
	size := b.Size()
	t.window, t.batchSizes, t.windowBytes = append(t.window, b), append(t.batchSizes, size), t.windowBytes+size
	t.head, t.confirmed = b.Cursor, true
	t.noteAnnouncedLocked(b.Cursor)
	t.added++
}

// shrinkIdle drops the window if nothing was added since the last call. Many sets may have
// followers while only few of them change. Followers at head do not need the window.
func (t *tail) shrinkIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added == t.addedAtShrink && len(t.window) > 0 {
		t.idleStart = t.window[0].Entries[0].Cursor
		t.dropWindowLocked()
	}
	t.addedAtShrink = t.added
}

// evictLocked evicts the oldest batches of a window that has too many batches or bytes. It
// always leaves the newest batch. The caller must hold mu.
func (t *tail) evictLocked() {
	drop := 0
	for ; len(t.window)-drop > 1 && (len(t.window)-drop > maxWindowBatches || t.windowBytes > maxWindowBytes); drop++ {
		t.windowBytes -= t.batchSizes[drop]
		t.droppedBytes += t.batchSizes[drop]
	}
	t.window, t.batchSizes = t.window[drop:], t.batchSizes[drop:]
	if t.droppedBytes > maxWindowBytes {
		// Followers hold slices of the array, so its elements cannot be cleared. Copy the
		// window, so that the old array is freed when the followers are done with it.
		t.window, t.batchSizes, t.droppedBytes = slices.Clone(t.window), slices.Clone(t.batchSizes), 0
	}
}

// invalidate makes every follower read the memory, because this hub may have appended something.
func (t *tail) invalidate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.added++ // invalidates a check in progress, which may have found the log without it
	t.invalidateLocked()
}

// markDeleted notes that this hub has deleted the set, and makes the followers read the
// memory. It resets head, because a new set of the same name may have earlier datetimes.
func (t *tail) markDeleted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = feed.Cursor{}
	t.added++ // invalidates a check in progress, which may have found the old set
	t.invalidateLocked()
}

// invalidateLocked empties the window and wakes the followers. The caller must hold mu.
func (t *tail) invalidateLocked() {
	t.clearLocked()
	t.wakeLocked()
}

// clearLocked empties the window without waking followers. head is no longer confirmed. The
// caller must hold mu.
func (t *tail) clearLocked() {
	t.dropWindowLocked()
	t.confirmed, t.idleStart = false, feed.Cursor{}
}

// dropWindowLocked drops all batches. The caller must hold mu.
func (t *tail) dropWindowLocked() {
	t.window, t.batchSizes, t.windowBytes, t.droppedBytes = nil, nil, 0, 0
}

// wakeLocked wakes all followers: those that wait in Hub.Follow for changed to be closed, and
// the watchers. The caller must hold mu.
func (t *tail) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
	t.watchers.wake()
}

// noteAnnouncedLocked notes that an entry was added or announced. The caller must hold mu.
func (t *tail) noteAnnouncedLocked(c feed.Cursor) {
	if c.Micros > t.newestAnnounced.Micros {
		t.newestAnnounced = c
	}
}

// noteRead notes that a follower has read the memory up to the end of the log. changed is the
// channel that after returned before the read. noteRead returns the channel for which the
// follower must wait. If changed has been closed since, end may be outdated; noteRead then
// returns changed, so that the follower reads again.
func (t *tail) noteRead(end feed.Cursor, changed <-chan struct{}) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case changed != t.changed || end.IsZero():
		return changed
	case t.confirmed || end.Micros < t.head.Micros: // if head is wrong, a check corrects it
	case end == t.head:
		t.confirmed = true
	default:
		t.head, t.confirmed = end, true
		t.wakeLocked() // other followers may wait for entries up to end
	}
	return t.changed
}

// lag implements Hub.Behind for the set of the tail.
func (t *tail) lag(after feed.Cursor) (changes uint64, oldest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head.Position <= after.Position {
		return 0, 0
	}
	oldest = cmp.Or(after.Micros, t.head.Micros) // the zero cursor of a set that did not exist has no datetime
	if !t.idleStart.IsZero() && after.Position+1 >= t.idleStart.Position {
		oldest = max(oldest, t.idleStart.Micros)
	}
	n := len(t.window)
	i := sort.Search(n, func(i int) bool { return t.window[i].Cursor.Position > after.Position })
	if i < n && t.window[i].After.Position <= after.Position {
		if b := t.window[i]; after.Position-b.After.Position < uint64(len(b.Entries)) {
			oldest = b.Entries[after.Position-b.After.Position].Micros
		}
	}
	return t.head.Position - after.Position, oldest
}

// receive applies an authentic announcement of another hub. It adds a batch that starts at
// head, by position and by datetime. It ignores a batch that is not later than head: the
// announcement was late or repeated, and its entries are in the window or in the memory. For
// any other announcement, receive requests a check and returns false: the memory has entries
// that the tail does not know, and the caller must wake Hub.watchHeads.
func (t *tail) receive(a announcement) (contiguous bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := a.cursor.Position > 0
	if entries {
		t.noteAnnouncedLocked(a.cursor)
	}
	switch {
	case entries && a.cursor.Micros <= t.head.Micros:
		return true
	case a.batch != nil && a.batch.After == t.head:
		for _, b := range a.batch.Split() { // a few compressed blocks can decode to a large batch
			t.addLocked(b)
		}
		t.evictLocked()
		t.wakeLocked()
		return true
	}
	t.requestedChecks++
	return false
}
