package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
)

// What a tail's window holds at most. It is small on purpose: a follower that
// is further back reads the memory.
const (
	windowBatches = 1024
	windowBytes   = 4 << 20
)

// A tail is the end of one set's log while somebody follows it: a window of
// recent batches without a gap, and a wake-up.
type tail struct {
	followers int    // guarded by Hub.mu
	silence   func() // ends the listening to other hubs; nil: there are none

	mu      sync.Mutex
	checked *changelog.Cursor // the memory's head when Hub.compare looked last; nil: it has not
	newest  changelog.Cursor  // that was added or heard of
	head    changelog.Cursor  // the newest entry that is known of: newest, or one that was found
	found   uint64            // position of the head that compare found before anybody told of it; 0: it did not
	told    bool              // to look at the memory, since compare did

	window []*changelog.Batch // each begins where the one before ends
	sizes  []int              // of the batches in window
	bytes  int                // their sum
	behind int                // bytes of dropped batches that window's array may still hold
	moved  chan struct{}      // closed when the window changes
}

// after returns the batches behind a cursor, as many as the window has. It
// reports !ok when the window does not know the cursor, and the memory has to
// be asked. moved is closed at the next change after this call.
//
// The batches' slice is shared: a window only ever grows at its end, or is
// replaced.
func (t *tail) after(cur changelog.Cursor) (batches []*changelog.Batch, ok bool, moved <-chan struct{}) {
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

// add shows batches to the followers. What does not begin at the window's head
// replaces the window: who needs what lies between reads the memory.
func (t *tail) add(batches []*changelog.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range batches {
		t.newest, t.head = b.Cursor, b.Cursor
		if n := len(t.window); n > 0 && t.window[n-1].Cursor != b.After {
			t.clear()
		}
		size := b.Size()
		t.window, t.sizes, t.bytes = append(t.window, b), append(t.sizes, size), t.bytes+size
	}
	drop := 0
	for ; len(t.window)-drop > 1 && (len(t.window)-drop > windowBatches || t.bytes > windowBytes); drop++ {
		t.bytes -= t.sizes[drop]
		t.behind += t.sizes[drop]
	}
	t.window, t.sizes = t.window[drop:], t.sizes[drop:]
	if t.behind > windowBytes {
		// Readers hold slices of the array, so it cannot be cleared: leave it to them.
		t.window, t.sizes, t.behind = slices.Clone(t.window), slices.Clone(t.sizes), 0
	}
	t.wake()
}

// forget drops the window and makes every follower read the memory.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	t.wake()
}

func (t *tail) clear() { t.window, t.sizes, t.bytes, t.behind = nil, nil, 0, 0 }

func (t *tail) wake() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// attach returns the set's tail, made for its first follower.
func (h *Hub) attach(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[set]
	if t == nil {
		t = &tail{moved: make(chan struct{})}
		h.tails[set] = t
		if h.opts.Bus != nil {
			t.silence = h.opts.Bus.subscribe(set, h.log.ID, t)
		}
	}
	t.followers++
	return t
}

func (h *Hub) detach(set string, t *tail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.followers--; t.followers == 0 {
		delete(h.tails, set)
		if t.silence != nil {
			t.silence()
		}
	}
}

// compare looks whether the memory moved without an announcement, for every set
// that is followed: the last one may have been lost, or the memory have lost its
// tail. Then the followers read the memory, which verifies their cursors.
func (h *Hub) compare(ctx context.Context) {
	h.mu.Lock()
	tails := maps.Clone(h.tails)
	h.mu.Unlock()
	if len(tails) == 0 {
		return
	}
	states, err := h.log.Sets(ctx, slices.Collect(maps.Keys(tails))...)
	for _, s := range states {
		h.compareTail(tails[s.Set], s.Head)
		delete(tails, s.Set)
	}
	if err != nil { // followers of the others wait for the memory by themselves
		if ctx.Err() == nil {
			h.opts.Logger.Warn("look for changes that were not announced", "err", err)
		}
		return
	}
	for _, t := range tails { // of sets that are not there
		h.compareTail(t, changelog.Cursor{})
	}
}

// compareTail compares a tail with the memory's head.
func (h *Hub) compareTail(t *tail, head changelog.Cursor) {
	if t.compare(head) {
		h.metrics.repaired.Inc()
	}
}

// compare makes the followers read the memory if its head is not the one that
// is known. It reports whether the head of the last call was never announced:
// only now is that certain, for announcements may come a moment after a look.
func (t *tail) compare(head changelog.Cursor) (unannounced bool) {
	t.mu.Lock()
	unannounced = t.found > t.newest.Position && !t.told
	known := t.checked != nil && *t.checked == head
	since := !known && (t.checked != nil || !t.newest.IsZero()) // it is known from when on it moved
	if n := len(t.window); n > 0 {
		known = t.window[n-1].Cursor == head
	}
	t.found = 0
	if since && head.Position > t.newest.Position && !t.told {
		t.found = head.Position
	}
	t.checked, t.head, t.told = &head, head, false
	t.mu.Unlock()
	if !known {
		t.forget()
	}
	return unannounced
}

// reaches notes that a set's log reached as far as an entry, when it was looked
// at.
func (t *tail) reaches(head changelog.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if head.Micros > t.head.Micros {
		t.head = head
	}
}

// Behind says how far a follower of a set, which has got what comes up to a
// cursor, is behind what this hub knows of: by how many changes, and the datetime
// of the oldest of them in microseconds. It does not ask the memory. Where that
// change is not in the window of recent ones it is the cursor's own datetime, which
// is earlier. Of a set that nobody follows the hub knows nothing: 0 changes.
func (h *Hub) Behind(set string, after changelog.Cursor) (changes uint64, oldest int64) {
	t := h.tail(set)
	if t == nil {
		return 0, 0
	}
	return t.before(after)
}

func (t *tail) before(after changelog.Cursor) (changes uint64, oldest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head.Position <= after.Position {
		return 0, 0
	}
	oldest = cmp.Or(after.Micros, t.head.Micros) // zero in a set that was not made
	n := len(t.window)
	i := sort.Search(n, func(i int) bool { return t.window[i].Cursor.Position > after.Position })
	if i < n && t.window[i].After.Position <= after.Position {
		if b := t.window[i]; after.Position-b.After.Position < uint64(len(b.Entries)) {
			oldest = b.Entries[after.Position-b.After.Position].Micros
		}
	}
	return t.head.Position - after.Position, oldest
}

// Follow yields what follows a cursor in a set's log, and waits for more until
// ctx is done. Each time it yields all that waits, up to the size of the window
// or of one read of the memory: one or more batches, each beginning where the
// one before ends, shared by all followers and read-only. A batch without
// entries is yielded only to say Diverged. Nothing is skipped and nothing
// repeated, except after Diverged.
//
// An error ends the sequence: changelog.ErrGone, or a damaged memory. While the
// memory cannot be reached, Follow waits and tries again. When ctx is done the
// sequence ends without an error.
//
// A set that is not made yet is followed from the zero cursor.
func (h *Hub) Follow(ctx context.Context, set string, after changelog.Cursor) iter.Seq2[[]*changelog.Batch, error] {
	return func(yield func([]*changelog.Batch, error) bool) {
		t := h.attach(set)
		defer h.detach(set, t)
		var failures int
		for ctx.Err() == nil {
			batches, ok, moved := t.after(after)
			if ok && len(batches) > 0 {
				h.metrics.hits.Inc()
			}
			if !ok {
				h.metrics.misses.Inc()
				b, err := h.log.Since(ctx, set, after, 0)
				switch {
				case err == nil:
					failures = 0
					if len(b.Entries) > 0 || b.Diverged {
						batches = b.Split() // what was compressed can be large
					}
				case ctx.Err() != nil:
					return
				case errors.Is(err, changelog.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
					h.opts.Logger.Warn("follow: waiting for the memory", "set", set, "err", err)
					failures++
					pause(ctx, failures)
					continue
				default:
					yield(nil, fmt.Errorf("follow set %q after %v: %w", set, after, err))
					return
				}
			}
			if len(batches) > 0 {
				if !yield(batches, nil) {
					return
				}
				after = batches[len(batches)-1].Cursor
				continue
			}
			select {
			case <-moved:
			case <-ctx.Done():
			}
		}
	}
}

// pause waits longer with each failure, up to about five seconds.
func pause(ctx context.Context, failures int) {
	d := min(100*time.Millisecond<<min(failures, 10), 5*time.Second)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
