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

// Follow yields what comes after a cursor in a set's log, and waits for more
// until ctx is done. Each time it yields everything that waits, up to the size
// of the window or of one read of the memory: one or more batches, each of
// which begins where the one before ends. All followers share the batches, so
// nobody may change them. A batch without entries is yielded only to say
// Diverged. Nothing is skipped, and nothing is repeated except after Diverged.
//
// An error ends the sequence: feed.ErrGone, or a damaged memory. While the
// memory cannot be reached, Follow waits and tries again. When ctx is done, the
// sequence ends without an error.
//
// A set that is not made yet is followed from the zero cursor.
func (h *Hub) Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		t := h.attach(set)
		defer h.detach(set, t)
		var failures int
		for ctx.Err() == nil {
			batches, ok, moved := t.after(after)
			if ok && len(batches) > 0 {
				h.metrics.hits.Inc()
			}
			if !ok {
				var err error
				batches, err = h.read(ctx, set, after, pageEntries)
				switch {
				case err == nil:
					failures = 0
					if len(batches) == 0 {
						moved = t.read(after, moved)
					}
				case ctx.Err() != nil:
					return
				case errors.Is(err, feed.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
					h.waiting.Do(func() { h.opts.Logger.Warn("follow: waiting for the memory", "set", set, "err", err) })
					failures++
					backoff.Wait(ctx, backoff.Doubled(100*time.Millisecond, 5*time.Second, failures))
					continue
				default:
					yield(nil, fmt.Errorf("follow set %q after %v: %w", set, after, err))
					return
				}
			}
			if len(batches) > 0 {
				after = batches[len(batches)-1].Cursor // before yield, so that nothing here keeps the batches meanwhile
				if !yield(batches, nil) {
					return
				}
				continue
			}
			select {
			case <-moved:
			case <-ctx.Done():
			}
		}
	}
}

// Next returns what Follow would yield first after a cursor, and waits for nothing: it returns
// no batches if nothing follows by now. Of what it has to read from the memory, it returns at
// most so many entries, and for at most readTime. The errors are those of changelog.Log.Since.
func (h *Hub) Next(ctx context.Context, set string, after feed.Cursor, most int) ([]*feed.Batch, error) {
	if t := h.tail(set); t != nil {
		if batches, ok, _ := t.after(after); ok {
			if len(batches) > 0 {
				h.metrics.hits.Inc()
			}
			return batches, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	batches, err := h.read(ctx, set, after, most)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", set, after, err)
	}
	return batches, nil
}

// readTime bounds a read of the memory by Next.
const readTime = 30 * time.Second

// read returns at most so many entries that follow a cursor in the memory.
func (h *Hub) read(ctx context.Context, set string, after feed.Cursor, most int) ([]*feed.Batch, error) {
	batches, shared, err := h.pages.after(ctx, set, after, most)
	if shared {
		h.metrics.shared.Inc()
	} else {
		h.metrics.misses.Inc()
	}
	return batches, err
}

// Attend keeps a set's tail until leave is called. A follower that does other work
// between two calls of Follow needs it. Without Attend, if it is the only follower,
// the hub drops the tail after each call; Follow then starts without a window, and
// Behind knows nothing between the calls.
func (h *Hub) Attend(set string) (leave func()) {
	t := h.attach(set)
	return func() { h.detach(set, t) }
}

// attach counts one more follower of a set, and returns the set's tail. The
// first follower makes the tail.
func (h *Hub) attach(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[set]
	if t == nil {
		t = &tail{moved: make(chan struct{})}
		h.tails[set] = t
		if h.opts.Bus != nil {
			t.silence = h.opts.Bus.subscribe(set, func(message []byte) { h.hear(set, t, message) })
		}
	}
	t.followers++
	return t
}

// hear gives a tail an announcement of another hub about a set. A message that
// is not authentic is only counted.
func (h *Hub) hear(set string, t *tail, message []byte) {
	a, err := openAnnouncement(h.sender(), set, message, time.Now(), h.opts.ClockSkew)
	if err != nil {
		h.opts.Bus.refuse(set, err)
		return
	}
	if !t.hear(a) {
		h.doubted.Wake()
	}
}

// detach counts one follower of a set less. When the last one leaves, the tail
// is dropped.
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

// Behind returns how far a follower that has reached a cursor is behind what
// this hub knows of: by how many changes, and the datetime of the oldest of
// them in microseconds. It does not ask the memory. If that oldest change is
// not in the window of recent batches, its datetime is unknown, and the
// cursor's own datetime is returned, which is earlier. If nobody follows the
// set, Behind returns 0 changes.
func (h *Hub) Behind(set string, after feed.Cursor) (changes uint64, oldest int64) {
	t := h.tail(set)
	if t == nil {
		return 0, 0
	}
	return t.behind(after)
}
