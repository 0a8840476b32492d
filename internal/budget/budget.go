// Package budget bounds how many bytes a hub holds for answers at one time. Whoever
// makes an answer takes a share first, and waits while there is no room.
package budget

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// Patience is how long answers to requests wait for room: longer than a burst lasts, and
// shorter than clients and proxies wait.
const Patience = 10 * time.Second

// A Budget is a number of bytes that shares are taken from. Shares are given out in
// the order in which they were asked for, so that a large one is not overtaken for ever.
type Budget struct {
	max      int64
	patience time.Duration

	mu      sync.Mutex
	taken   int64
	waiting list.List // of *request, the oldest first
}

// A request waits for a share. room is closed when the request has it.
type request struct {
	bytes int64
	room  chan struct{}
}

// New returns a Budget of max bytes. Take waits as long as patience.
func New(max int64, patience time.Duration) *Budget { return &Budget{max: max, patience: patience} }

// Take takes a share of the budget. It waits for room, but no longer than the budget's
// patience, and then returns feed.ErrOverloaded. When ctx is done, it returns the cause. A share that is
// larger than the budget takes all of it.
func (b *Budget) Take(ctx context.Context, bytes int64) (*Share, error) {
	if s := b.try(bytes); s != nil { // nearly always
		return s, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, feed.ErrOverloaded)
	defer cancel()
	return b.Wait(ctx, bytes)
}

// Wait is like Take, but waits until ctx is done.
func (b *Budget) Wait(ctx context.Context, bytes int64) (*Share, error) {
	if s := b.try(bytes); s != nil {
		return s, nil
	}
	r := &request{bytes: min(bytes, b.max), room: make(chan struct{})}
	b.mu.Lock()
	e := b.waiting.PushBack(r)
	b.admitLocked() // there may be room by now
	b.mu.Unlock()
	select {
	case <-r.room:
		return &Share{budget: b, bytes: r.bytes}, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.room: // at the same moment
		b.taken -= r.bytes
	default:
		b.waiting.Remove(e)
	}
	b.admitLocked() // a smaller request may have waited behind this one
	return nil, context.Cause(ctx)
}

// try takes a share if there is room and nobody waits, and else returns nil.
func (b *Budget) try(bytes int64) *Share {
	bytes = min(bytes, b.max)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting.Len() > 0 || b.taken+bytes > b.max {
		return nil
	}
	b.taken += bytes
	return &Share{budget: b, bytes: bytes}
}

// admitLocked gives shares to those who wait, as far as there is room. It needs b.mu
// held.
func (b *Budget) admitLocked() {
	for e := b.waiting.Front(); e != nil; e = b.waiting.Front() {
		r := e.Value.(*request)
		if b.taken+r.bytes > b.max {
			return
		}
		b.taken += r.bytes
		b.waiting.Remove(e)
		close(r.room)
	}
}

// Taken returns how many bytes are taken now.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// A Share is a part of a Budget that is taken until Release.
type Share struct {
	budget *Budget
	bytes  int64 // guarded by budget.mu
}

// Keep gives back all but a number of bytes.
func (s *Share) Keep(bytes int64) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes < s.bytes {
		b.taken -= s.bytes - bytes
		s.bytes = bytes
		b.admitLocked()
	}
}

// Release gives the whole share back. It may be called again.
func (s *Share) Release() { s.Keep(0) }
