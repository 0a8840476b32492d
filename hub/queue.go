package hub

import (
	"context"
	"errors"
	"slices"

	"github.com/rshub/rshub/changelog"
)

// What one gathered append carries at most, unless it is a single publish.
const (
	maxGathered      = 10_000
	maxGatheredBytes = 4 << 20
)

// A queue is what waits for a set's log while an append to it is under way;
// publishes are gathered into the next one. It adds no wait: who finds no append
// under way begins one. Hub.mu guards it.
type queue struct {
	waiting []*request
}

// A request is a publish to a set, or the deletion of the set: that comes in
// its turn too, so that followers see both in the order of the log.
type request struct {
	publish changelog.Publish
	size    int
	delete  bool

	done   chan struct{} // closed when the rest is set
	result changelog.Appended
	err    error
}

// enqueue does r in its turn and waits for the answer. Until its turn has come
// ctx ends it, and nothing was written; after that only the answer does.
func (h *Hub) enqueue(ctx context.Context, set string, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.done = make(chan struct{})
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return changelog.ErrUnavailable
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
	<-r.done // it is on its way into the memory, which takes AppendTimeout at the most
	return r.err
}

// drain does what waits until nothing does.
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

// gather takes what is next from the queue: one deletion, or publishes. It
// takes the queue from the hub when there is nothing.
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

// append makes one call of requests, and shows those who follow the set what is
// new, in the order of the log.
func (h *Hub) append(ctx context.Context, set string, requests []*request) {
	publishes := make([]changelog.Publish, len(requests))
	for i, r := range requests {
		publishes[i] = r.publish
	}
	results, err := h.log.Append(ctx, set, publishes...)
	if err != nil {
		for _, r := range requests {
			r.err = err
		}
		if t := h.tail(set); t != nil && errors.Is(err, changelog.ErrUnknown) {
			t.forget() // the memory may have it
		}
		return
	}
	// Who begins to follow only now finds the entries in the memory.
	t := h.tail(set)
	var added []*changelog.Batch
	for i, r := range requests {
		r.result, r.err = results[i], results[i].Err
		if r.err != nil || r.result.Replayed {
			continue
		}
		h.metrics.appended(r.result.Cursor.Micros)
		if t != nil {
			added = append(added, changelog.NewBatch(set, r.result, r.publish.Changes).Split()...)
		}
		h.announce(set, r.result)
	}
	if len(added) > 0 {
		t.add(added)
	}
}

// announce tells the other hubs of an append, if there can be any; without
// blocks, that they have to look at the memory.
func (h *Hub) announce(set string, a changelog.Appended) {
	if h.opts.Bus != nil {
		h.opts.Bus.announce(h.log.ID(), set, a)
	}
}

func (h *Hub) delete(ctx context.Context, set string) error {
	err := h.log.Delete(ctx, set)
	if t := h.tail(set); t != nil {
		t.forget() // also after an error, which may have come too late
	}
	h.announce(set, changelog.Appended{})
	return err
}

// tail returns the tail of a set that is followed, else nil.
func (h *Hub) tail(set string) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tails[set]
}
