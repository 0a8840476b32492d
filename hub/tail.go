package hub

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/rshub/rshub/feed"
)

// A tail's window holds at most this much. It is small on purpose: a follower
// that is further back reads the memory.
const (
	windowBatches = 1024
	windowBytes   = 4 << 20
	restBytes     = 64 << 10 // of a set to which nothing is added
)

// A tail is the end of one set's log while the set has followers: a window
// of recent batches without a gap, and a wake-up.
//
// Whenever mu is free, this holds:
//   - Each batch in the window begins where the one before ends. The last one ends at
//     head.
//   - head is where this hub believes that the log ends. The hub has that belief from
//     the memory, and never from another hub's word alone: a follower or a look has
//     found head, the hub has appended it, or authentic announcements led from such a
//     head to it, each beginning where the one before ended.
//   - A follower that waits has read the memory, or the window, since head or the
//     window changed last. So no follower waits for entries up to head.
//   - An announcement that does not fit what this hub knows leaves a doubt. Hub.watch then
//     looks at the memory, and looks again until nothing was added meanwhile. It also
//     looks without a doubt, at each tick. What a look finds becomes head, whether it is
//     later or earlier.
type tail struct {
	// Hub.mu guards these.
	followers int
	silence   func() // ends the subscription to announcements of other hubs; nil: no Bus

	mu      sync.Mutex
	head    feed.Cursor   // the end of the set's log; zero: it is not known yet, or there is no such set
	window  []*feed.Batch // recent batches
	sizes   []int         // of each batch in window
	bytes   int           // the sum of sizes
	dropped int           // bytes of dropped batches that the array behind window may still hold
	moved   chan struct{} // closed when head or the window changes

	added   uint64 // how often batches were added, or the set was removed
	rested  uint64 // what added was at the last rest
	doubts  uint64 // how many doubts there were that a look at the memory has to settle
	settled uint64 // how many of these doubts are settled

	// These are for the metric of repairs: they show which entries were not
	// announced.
	checked *feed.Cursor // the log's head when Hub.compare looked last; nil: it has not looked yet
	newest  feed.Cursor  // the newest entry that was added or announced, or was there when Hub.compare looked first
}

// after returns the batches after a cursor, as many as the window has. ok is
// false when the window does not know the cursor, so that the caller has to
// read the memory. moved is closed at the next change after this call.
//
// The slice of batches is shared with other followers. That is safe because a
// window only grows at its end or is replaced.
func (t *tail) after(cur feed.Cursor) (batches []*feed.Batch, ok bool, moved <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.window)
	if n == 0 {
		return nil, false, t.moved
	}
	if t.window[n-1].Cursor == cur {
		return nil, true, t.moved
	}
	i := sort.Search(n, func(i int) bool { return t.window[i].After.Position >= cur.Position })
	if i == n || t.window[i].After != cur {
		return nil, false, t.moved
	}
	return t.window[i:n:n], true, t.moved
}

// add shows batches that this hub has appended to the followers. A batch that does
// not begin at the end of the window replaces the window; followers that need the
// entries between read the memory. add skips a batch that is not later than the head:
// either the tail already knows it, or the memory has lost the head. add then returns
// false, and the caller has to look at the memory.
func (t *tail) add(batches []*feed.Batch) (understood bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	understood = true
	for _, b := range batches {
		if b.Cursor.Micros > t.head.Micros {
			t.addLocked(b)
		} else {
			understood = false
		}
	}
	if !understood {
		t.doubts++
	}
	t.shiftLocked(windowBytes)
	t.wakeLocked()
	return understood
}

// addLocked puts a batch at the end of the window.
func (t *tail) addLocked(b *feed.Batch) {
	if t.head != b.After {
		t.clearLocked()
	}
	size := b.Size()
	t.window, t.sizes, t.bytes = append(t.window, b), append(t.sizes, size), t.bytes+size
	t.head = b.Cursor
	t.announcedLocked(b.Cursor)
	t.added++
}

// rest makes the window small if nothing was added since the last rest. Many sets may have
// followers, and few of them change at a time.
func (t *tail) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added == t.rested {
		t.shiftLocked(restBytes)
	}
	t.rested = t.added
}

// shiftLocked drops the oldest batches of a window that has more than most bytes, or too many
// batches.
func (t *tail) shiftLocked(most int) {
	drop := 0
	for ; len(t.window)-drop > 1 && (len(t.window)-drop > windowBatches || t.bytes > most); drop++ {
		t.bytes -= t.sizes[drop]
		t.dropped += t.sizes[drop]
	}
	t.window, t.sizes = t.window[drop:], t.sizes[drop:]
	if t.dropped > most {
		// Followers hold slices of the old array, so its elements cannot be cleared.
		// Copy the window, and leave the old array to the followers.
		t.window, t.sizes, t.dropped = slices.Clone(t.window), slices.Clone(t.sizes), 0
	}
}

// forget drops the window and makes every follower read the memory.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked()
}

// gone notes that this hub has removed the set. Followers then read the memory. A new
// set of the same name may have earlier datetimes, so the tail forgets the head.
func (t *tail) gone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = feed.Cursor{}
	t.added++ // a look that is under way may have found the old set
	t.forgetLocked()
}

// forgetLocked is forget while mu is held.
func (t *tail) forgetLocked() {
	t.clearLocked()
	t.wakeLocked()
}

// clearLocked empties the window without waking anybody.
func (t *tail) clearLocked() { t.window, t.sizes, t.bytes, t.dropped = nil, nil, 0, 0 }

// wakeLocked wakes all followers: Hub.Follow waits for moved.
func (t *tail) wakeLocked() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// announcedLocked notes that an entry was added or announced.
func (t *tail) announcedLocked(c feed.Cursor) {
	if c.Micros > t.newest.Micros {
		t.newest = c
	}
}

// read notes that a follower has read the memory up to the end of the log. moved is
// the channel that after returned before the read. read returns the channel that
// the follower has to wait for now.
func (t *tail) read(end feed.Cursor, moved <-chan struct{}) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.head.IsZero() || end.IsZero() {
		return moved // head may well be later; if it is wrong, a look corrects it
	}
	t.head = end
	t.wakeLocked() // others may wait for what lies before end
	return t.moved
}

// behind is Hub.Behind for the set of the tail.
func (t *tail) behind(after feed.Cursor) (changes uint64, oldest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head.Position <= after.Position {
		return 0, 0
	}
	oldest = cmp.Or(after.Micros, t.head.Micros) // the zero cursor of a set that is not made has no datetime
	n := len(t.window)
	i := sort.Search(n, func(i int) bool { return t.window[i].Cursor.Position > after.Position })
	if i < n && t.window[i].After.Position <= after.Position {
		if b := t.window[i]; after.Position-b.After.Position < uint64(len(b.Entries)) {
			oldest = b.Entries[after.Position-b.After.Position].Micros
		}
	}
	return t.head.Position - after.Position, oldest
}

// hear takes an authentic announcement of another hub. It adds a batch that begins at
// the head, by position and by datetime. It ignores a batch that is not later than the
// head: it came late or twice, and is in the window or in the memory. For every other
// announcement hear returns false: the memory has entries that the tail does not know,
// so the caller has to look at it.
func (t *tail) hear(a announcement) (understood bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := a.cursor.Position > 0
	if entries {
		t.announcedLocked(a.cursor)
	}
	switch {
	case entries && a.cursor.Micros <= t.head.Micros:
		return true
	case a.batch != nil && a.batch.After == t.head:
		for _, b := range a.batch.Split() { // a few compressed blocks can be a large batch
			t.addLocked(b)
		}
		t.shiftLocked(windowBytes)
		t.wakeLocked()
		return true
	}
	t.doubts++
	return false
}
