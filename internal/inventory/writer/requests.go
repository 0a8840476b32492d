package writer

import (
	"context"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// exchangeInterval is the time between two exchanges of requests.
const exchangeInterval = time.Second

// Request makes the hub that owns a set commit the pending changes of the set soon. If damaged is set, a reader
// has found damage, and the hub first verifies the inventory. Request does not block.
func (w *Writer) Request(set string, damaged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[set] = w.requests[set] || damaged
	if w.holds[shardOf(set)] != nil {
		w.wake.Wake()
	}
}

// takeRequests returns the requests for sets that this hub owns, and whether its claims have changed. Other requests
// remain, for exchange or until this hub owns the sets.
func (w *Writer) takeRequests() (requests map[string]bool, holdsChanged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests, holdsChanged = map[string]bool{}, w.holdsChanged
	w.holdsChanged = false
	for set, damaged := range w.requests {
		if w.holds[shardOf(set)] != nil {
			requests[set] = damaged
			delete(w.requests, set)
		}
	}
	return requests, holdsChanged
}

// exchangeRequests exchanges requests with other hubs until ctx is done.
func (w *Writer) exchangeRequests(ctx context.Context) {
	var last errorText
	for backoff.Sleep(ctx, exchangeInterval) == nil {
		if err := w.exchange(ctx); last.changed(err) && ctx.Err() == nil {
			w.logger.Warn("exchange of requests for inventories failed; readers may wait longer for a newer root", "err", err)
		}
	}
}

// exchange passes on the requests for sets that this hub does not own, and accepts requests for its own sets.
func (w *Writer) exchange(ctx context.Context) error {
	w.mu.Lock()
	others := map[string]bool{}
	for set, damaged := range w.requests {
		if w.holds[shardOf(set)] == nil {
			others[set] = damaged
			delete(w.requests, set)
		}
	}
	w.mu.Unlock()
	requests, err := w.opts.ExchangeRequests(ctx, nil, others)
	if err != nil {
		for set, damaged := range others {
			w.Request(set, damaged)
		}
		return err
	}
	var own []string
	for set := range requests {
		if w.Owns(set) {
			own = append(own, set)
		}
	}
	if len(own) > 0 {
		// They are removed before they are accepted, so that none is removed that is made in the meantime.
		if _, err := w.opts.ExchangeRequests(ctx, own, nil); err != nil {
			return err
		}
	}
	for _, set := range own {
		w.Request(set, requests[set])
	}
	return nil
}
