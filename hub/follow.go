package hub

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// Follow yields the batches after a cursor in a set's log, and waits for more until ctx is
// done. Each time it yields all batches that are available, up to the size of the window or of
// one read of the memory: at least one batch, each starting where the previous one ends. The
// batches are shared with other followers and must not be modified. A batch without entries is
// yielded only to report Diverged. No entry is skipped, and none is repeated except after
// Diverged.
//
// An error, such as feed.ErrGone or changelog.ErrCorrupt, ends the sequence. While the memory
// is unavailable, Follow retries with growing delays. When ctx is done, the sequence ends
// without an error.
//
// A set that does not exist yet is followed from the zero cursor.
func (h *Hub) Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		t := h.attach(set)
		defer h.detach(set, t)
		var failures int
		for ctx.Err() == nil {
			batches, ok, changed := t.after(after)
			if ok && len(batches) > 0 {
				h.metrics.hits.Inc()
			}
			if !ok {
				var err error
				batches, err = h.readMemory(ctx, set, after, pageEntries)
				switch {
				case err == nil:
					failures = 0
					if len(batches) == 0 {
						changed = t.noteRead(after, changed)
					}
				case ctx.Err() != nil:
					return
				case errors.Is(err, feed.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
					h.waitWarning.Do(func() { h.opts.Logger.Warn("follow: waiting for the memory", "set", set, "err", err) })
					failures++
					backoff.Wait(ctx, backoff.Exponential(100*time.Millisecond, 5*time.Second, failures))
					continue
				default:
					yield(nil, fmt.Errorf("follow set %q after %v: %w", set, after, err))
					return
				}
			}
			if len(batches) > 0 {
				after = batches[len(batches)-1].Cursor // before yield, so that the batches can be freed during it
				if !yield(batches, nil) {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// Next returns the batches that Follow would yield first after a cursor, without waiting for
// new ones: it returns none if nothing follows the cursor yet. It reads at most limit entries
// from the memory, for at most nextTimeout. While the set has followers, Next at the end of the
// log does not read the memory again. The batches are shared and must not be modified. Errors
// are the same as changelog.Log.Since's.
func (h *Hub) Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error) {
	t := h.tail(set)
	var changed <-chan struct{}
	if t != nil {
		var batches []*feed.Batch
		var ok bool
		if batches, ok, changed = t.after(after); ok {
			if len(batches) > 0 {
				h.metrics.hits.Inc()
			}
			return batches, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nextTimeout)
	defer cancel()
	batches, err := h.readMemory(ctx, set, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", set, after, err)
	}
	if t != nil && len(batches) == 0 {
		t.noteRead(after, changed)
	}
	return batches, nil
}

// Cached is like Next, but does not read the memory, and so does not block. ok is false if the
// memory would have to be read.
func (h *Hub) Cached(set string, after feed.Cursor) (batches []*feed.Batch, ok bool) {
	t := h.tail(set)
	if t == nil {
		return nil, false
	}
	if batches, ok, _ = t.after(after); len(batches) > 0 {
		h.metrics.hits.Inc()
	}
	return batches, ok
}

// nextTimeout is the timeout for a read of the memory by Next.
const nextTimeout = 30 * time.Second

// readMemory returns batches after a cursor from the memory, with at most limit entries.
func (h *Hub) readMemory(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error) {
	batches, shared, err := h.pages.page(ctx, set, after, limit)
	if shared {
		h.metrics.shared.Inc()
	} else {
		h.metrics.misses.Inc()
	}
	return batches, err
}

// Retain keeps the tail of a set until release is called. A follower that does other work
// between two calls of Follow needs it. Without Retain, if it is the only follower, the hub
// drops the tail after each call; Follow then starts without a window, and Behind reports no
// changes between the calls.
func (h *Hub) Retain(set string) (release func()) {
	t := h.attach(set)
	return func() { h.detach(set, t) }
}

// attach adds a follower to a set and returns the tail of the set. The first follower creates
// the tail.
func (h *Hub) attach(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[set]
	if t == nil {
		t = &tail{changed: make(chan struct{})}
		h.tails[set] = t
		if h.opts.Bus != nil {
			t.unsubscribe = h.opts.Bus.subscribe(set, func(message []byte) { h.receiveAnnouncement(set, t, message) })
		}
	}
	t.followers++
	return t
}

// receiveAnnouncement applies another hub's announcement about a set to its tail. It only
// counts a message that is not authentic.
func (h *Hub) receiveAnnouncement(set string, t *tail, message []byte) {
	a, err := openAnnouncement(h.memoryKey(), set, message, time.Now(), h.opts.ClockSkew)
	if err != nil {
		h.opts.Bus.countRefused(set, err)
		return
	}
	if !t.receive(a) {
		h.checkWakeup.Wake()
	}
}

// detach removes a follower from a set. When the last one leaves, the tail is dropped.
func (h *Hub) detach(set string, t *tail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.followers--; t.followers == 0 {
		delete(h.tails, set)
		if t.unsubscribe != nil {
			t.unsubscribe()
		}
	}
}

// Behind returns how far a follower at a cursor is behind the end of the log that this hub
// knows: the number of changes after the cursor, and the datetime of the oldest of them in
// microseconds since the epoch. It does not read the memory. If the oldest change is not in
// the window of recent batches, Behind returns an earlier datetime, such as the cursor's.
// If the set has no followers, Behind returns 0 changes.
func (h *Hub) Behind(set string, after feed.Cursor) (changes uint64, oldest int64) {
	t := h.tail(set)
	if t == nil {
		return 0, 0
	}
	return t.lag(after)
}
