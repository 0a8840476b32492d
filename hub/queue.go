package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// An append gathers at most this much, unless it is a single publish.
const (
	maxGathered      = 10_000
	maxGatheredBytes = 4 << 20
)

// A queue holds the publishes to one set that wait while an append to the set
// is under way. The next append gathers them. A publish that finds no append
// under way does not wait. Hub.mu guards the queue.
type queue struct {
	waiting []*request
}

// A request is a publish to a set, or the deletion of a set. A deletion waits
// for its turn like a publish, so that followers see both in the order of the
// log.
type request struct {
	publish changelog.Publish
	size    int
	delete  bool

	done   chan struct{} // closed once result and err are set
	result changelog.Appended
	err    error
}

// enqueue carries out r in its turn and waits for the answer. If ctx ends
// before its turn, enqueue returns the error of ctx, and nothing was written.
// After that, enqueue waits for the answer even if ctx ends.
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
		h.wg.Go(func() { h.drain(set, q) })
	}
	q.waiting = append(q.waiting, r)
	h.mu.Unlock()

	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	h.mu.Lock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	h.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	<-r.done // the append is under way, which takes at most AppendTimeout
	return r.err
}

// drain carries out the requests in a queue until none is left.
func (h *Hub) drain(set string, q *queue) {
	for {
		requests := h.gather(set, q)
		if requests == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), h.opts.AppendTimeout)
		if requests[0].delete {
			requests[0].err = h.delete(ctx, set)
		} else {
			h.append(ctx, set, requests)
		}
		cancel()
		for _, r := range requests {
			close(r.done)
		}
	}
}

// gather takes the next requests from a queue: one deletion, or publishes. If
// the queue is empty, gather removes the queue from the hub and returns nil.
func (h *Hub) gather(set string, q *queue) []*request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(q.waiting) == 0 {
		delete(h.queues, set)
		return nil
	}
	n, changes, bytes := 0, 0, 0
	for _, r := range q.waiting {
		changes += len(r.publish.Changes)
		bytes += r.size
		if n > 0 && (r.delete || changes > maxGathered || bytes > maxGatheredBytes) {
			break
		}
		n++
		if r.delete {
			break
		}
	}
	requests := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return requests
}

// append appends the publishes in requests at once. Then it gives the new
// batches to the followers of the set, in the order of the log.
func (h *Hub) append(ctx context.Context, set string, requests []*request) {
	publishes := make([]changelog.Publish, len(requests))
	for i, r := range requests {
		publishes[i] = r.publish
	}
	results, err := h.log.Append(ctx, set, publishes...)
	if len(requests) > 1 && (errors.Is(err, feed.ErrFull) || errors.Is(err, feed.ErrClock)) {
		// Nothing can be added, but some of the publishes may be retries of what the memory has.
		for i := range publishes {
			publishes[i].Refused = err
		}
		if answered, again := h.log.Append(ctx, set, publishes...); again == nil {
			results, err = answered, nil
		}
	}
	if err != nil {
		for _, r := range requests {
			r.err = err
		}
		if t := h.tail(set); t != nil && errors.Is(err, feed.ErrUnknown) {
			t.forget() // the memory may hold the changes all the same
		}
		return
	}
	// A follower that comes after this line finds the entries in the memory.
	t := h.tail(set)
	var added []*feed.Batch
	for i, r := range requests {
		r.result, r.err = results[i], results[i].Err
		if r.err != nil || r.result.Replayed {
			continue
		}
		h.metrics.appended(r.result.Cursor.Micros)
		if t != nil {
			added = append(added, feed.NewBatch(set, r.result.After, r.result.Cursor, r.publish.Changes).Split()...)
		}
		h.announce(set, r.result)
	}
	if len(added) > 0 && !t.add(added) {
		h.doubted.Wake()
	}
}

// announce tells the other hubs of an append, if there are any. An append
// without blocks says that they have to look at the memory.
func (h *Hub) announce(set string, a changelog.Appended) {
	if h.opts.Bus != nil {
		h.opts.Bus.announce(h.sender(), set, a)
	}
}

// sender is this hub as a sender of announcements.
func (h *Hub) sender() sender { return sender{h.log.ID(), h.log.Secret()} }

// delete removes a set, and makes its followers read the memory.
func (h *Hub) delete(ctx context.Context, set string) error {
	err := h.log.Delete(ctx, set)
	h.pages.lost() // also after an error: the set may be deleted all the same
	if t := h.tail(set); t != nil {
		t.gone()
	}
	h.announce(set, changelog.Appended{Cursor: feed.Cursor{Micros: time.Now().UnixMicro()}})
	return err
}

// tail returns the tail of a set, or nil when the set has no followers.
func (h *Hub) tail(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tails[set]
}
