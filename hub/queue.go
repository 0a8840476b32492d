package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// Limits of an append that gathers several publishes. A single publish may be larger.
const (
	maxAppendChanges = 10_000
	maxAppendBytes   = 4 << 20
)

// A queue holds the publishes to a set that wait while an append to the set is in progress.
// The next append gathers them. A publish does not wait if no append is in progress. Hub.mu
// guards the queue.
type queue struct {
	pending []*request
}

// A request is a publish to a set, or the deletion of a set. A deletion is queued like a
// publish, so that followers see both in the order of the log.
type request struct {
	publish changelog.Publish
	size    int
	delete  bool

	done   chan struct{} // closed after result and err are set
	result changelog.Appended
	err    error
}

// enqueue appends r to the queue of a set and waits until it has been executed. If ctx is done
// before the execution starts, enqueue removes r from the queue and returns the error of ctx;
// nothing was written. After that, enqueue waits for the result even if ctx is done.
func (h *Hub) enqueue(ctx context.Context, set string, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.done = make(chan struct{})
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return feed.ErrUnavailable
	}
	q := h.queues[set]
	if q == nil {
		q = &queue{}
		h.queues[set] = q
		h.wg.Go(func() { h.drainQueue(set, q) })
	}
	q.pending = append(q.pending, r)
	h.mu.Unlock()

	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	h.mu.Lock()
	i := slices.Index(q.pending, r)
	if i >= 0 {
		q.pending = slices.Delete(q.pending, i, i+1)
	}
	h.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	<-r.done // the append is in progress, for at most AppendTimeout
	return r.err
}

// drainQueue executes the requests in a queue until the queue is empty.
func (h *Hub) drainQueue(set string, q *queue) {
	for {
		requests := h.popRequests(set, q)
		if requests == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), h.opts.AppendTimeout)
		if requests[0].delete {
			requests[0].err = h.deleteSet(ctx, set)
		} else {
			h.appendRequests(ctx, set, requests)
		}
		cancel()
		for _, r := range requests {
			close(r.done)
		}
	}
}

// popRequests removes the next requests from a queue: one deletion, or publishes to be
// appended together. If the queue is empty, popRequests removes it from the hub and returns
// nil.
func (h *Hub) popRequests(set string, q *queue) []*request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(q.pending) == 0 {
		delete(h.queues, set)
		return nil
	}
	n, changes, bytes := 0, 0, 0
	for _, r := range q.pending {
		changes += len(r.publish.Changes)
		bytes += r.size
		if n > 0 && (r.delete || changes > maxAppendChanges || bytes > maxAppendBytes) {
			break
		}
		n++
		if r.delete {
			break
		}
	}
	requests := slices.Clone(q.pending[:n])
	q.pending = slices.Delete(q.pending, 0, n)
	return requests
}

// appendRequests appends the publishes in requests in a single append. Then it adds the new
// batches to the tail of the set, and announces them, in the order of the log.
func (h *Hub) appendRequests(ctx context.Context, set string, requests []*request) {
	publishes := make([]changelog.Publish, len(requests))
	for i, r := range requests {
		publishes[i] = r.publish
	}
	results, err := h.log.Append(ctx, set, publishes...)
	if len(requests) > 1 && (errors.Is(err, feed.ErrFull) || errors.Is(err, feed.ErrClock)) {
		// Nothing can be added, but some of the publishes may be retries of accepted ones.
		for i := range publishes {
			publishes[i].Refused = err
		}
		if retried, retryErr := h.log.Append(ctx, set, publishes...); retryErr == nil {
			results, err = retried, nil
		}
	}
	if err != nil {
		for _, r := range requests {
			r.err = err
		}
		if t := h.tail(set); t != nil && errors.Is(err, feed.ErrUnknown) {
			t.invalidate() // the memory may have stored the changes anyway
		}
		return
	}
	// A follower that attaches after this line finds the entries in the memory.
	t := h.tail(set)
	var added []*feed.Batch
	for i, r := range requests {
		r.result, r.err = results[i], results[i].Err
		if r.err != nil || r.result.Replayed {
			continue
		}
		h.metrics.noteNewest(r.result.Cursor.Micros)
		if t != nil {
			added = append(added, feed.NewBatch(set, r.result.After, r.result.Cursor, r.publish.Changes).Split()...)
		}
		h.announce(set, r.result)
	}
	if len(added) > 0 && !t.add(added) {
		h.checkWakeup.Wake()
	}
}

// announce tells the other hubs, if there are any, about an append. An append without blocks
// tells them to check the memory.
func (h *Hub) announce(set string, a changelog.Appended) {
	if h.opts.Bus != nil {
		h.opts.Bus.announce(h.memoryKey(), set, a)
	}
}

// memoryKey returns the key that authenticates announcements of this memory.
func (h *Hub) memoryKey() memoryKey { return memoryKey{h.log.ID(), h.log.Secret()} }

// deleteSet removes a set, makes its followers read the memory, and wakes the watchers of the
// list of sets.
func (h *Hub) deleteSet(ctx context.Context, set string) error {
	err := h.log.Delete(ctx, set)
	h.pages.invalidate() // even after an error, because the set may have been deleted anyway
	if t := h.tail(set); t != nil {
		t.markDeleted()
	}
	h.setWatchers.wake()
	h.announce(set, changelog.Appended{Cursor: feed.Cursor{Micros: time.Now().UnixMicro()}})
	return err
}

// tail returns the tail of a set, or nil if the set has no followers.
func (h *Hub) tail(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tails[set]
}
