// Package budget bounds how many bytes a hub holds for requests and answers at one time.
// Code that makes an answer takes a share first, and waits while there is no room.
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

// A Budget is a number of bytes that shares are taken from. Shares are given in the
// order of the requests, so that a large one does not wait for ever.
type Budget struct {
	max      int64
	patience time.Duration
	of       func(context.Context) any // see Divide; nil: there are no holders

	mu      sync.Mutex
	taken   int64
	holders map[any]int64 // the bytes that each holder has taken, if not 0
	guests  int64         // sum of holders
	waiting list.List     // of *request, the oldest first
}

// A request waits for a share. room is closed when the request has it.
type request struct {
	holder any
	bytes  int64
	room   chan struct{}
}

// New returns a Budget of max bytes. Take waits no longer than patience.
func New(max int64, patience time.Duration) *Budget { return &Budget{max: max, patience: patience} }

// Divide divides the budget between holders. of returns the holder that a share is taken
// for, or nil for the hub itself. One holder gets at most half of the budget, and all
// holders together at most seven eighths. The hub keeps the rest, and does not wait
// behind holders. A holder that has its half is refused at once. Divide must be called
// before the first share is taken.
func (b *Budget) Divide(of func(context.Context) (holder any)) *Budget {
	b.of, b.holders = of, map[any]int64{}
	return b
}

func (b *Budget) holder(ctx context.Context) any {
	if b.of == nil {
		return nil
	}
	return b.of(ctx)
}

// Most returns how many bytes a share for the holder in ctx may have.
func (b *Budget) Most(ctx context.Context) int64 { return b.most(b.holder(ctx)) }

func (b *Budget) most(holder any) int64 {
	if holder == nil {
		return b.max
	}
	return b.max / 2
}

// Take takes a share of the budget. It waits for room, but no longer than the budget's
// patience, and then returns feed.ErrOverloaded. When ctx is done, it returns the cause.
// A share that is too large is cut to Most.
func (b *Budget) Take(ctx context.Context, bytes int64) (*Share, error) {
	if s, err := b.try(b.holder(ctx), bytes); s != nil || err != nil { // the usual case
		return s, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, feed.ErrOverloaded)
	defer cancel()
	return b.Wait(ctx, bytes)
}

// Wait is like Take, but waits until ctx is done.
func (b *Budget) Wait(ctx context.Context, bytes int64) (*Share, error) {
	holder := b.holder(ctx)
	if s, err := b.try(holder, bytes); s != nil || err != nil {
		return s, err
	}
	r := &request{holder: holder, bytes: min(bytes, b.most(holder)), room: make(chan struct{})}
	b.mu.Lock()
	e := b.waiting.PushBack(r)
	b.admitLocked() // there may be room by now
	b.mu.Unlock()
	select {
	case <-r.room:
		return &Share{budget: b, holder: holder, bytes: r.bytes}, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.room: // the share came at the same moment
		b.addLocked(holder, -r.bytes)
	default:
		b.waiting.Remove(e)
	}
	b.admitLocked() // a smaller request may have waited behind this one
	return nil, context.Cause(ctx)
}

// try takes a share if there is room and no other request comes first. Otherwise it
// returns nil, or errShare for a holder that has its half.
func (b *Budget) try(holder any, bytes int64) (*Share, error) {
	bytes = min(bytes, b.most(holder))
	b.mu.Lock()
	defer b.mu.Unlock()
	if holder != nil && b.holders[holder]+bytes > b.most(holder) {
		return nil, errShare
	}
	if first := b.waiting.Front(); first != nil && (holder != nil || first.Value.(*request).holder == nil) || !b.fitsLocked(holder, bytes) {
		return nil, nil
	}
	b.addLocked(holder, bytes)
	return &Share{budget: b, holder: holder, bytes: bytes}, nil
}

// errShare is for a holder that has its half. It is like feed.ErrOverloaded, but the
// client caused it, and the hub has no problem.
var errShare = &feed.Error{Code: feed.ErrOverloaded.Code, Status: 429, Retry: feed.ErrOverloaded.Retry, Text: "one caller has as much memory as it may have",
	Detail: "your requests that are under way hold as much memory of this hub as those of one caller may: half of what there is for all; wait for their answers"}

// fitsLocked reports whether there is room for a share. The caller holds b.mu.
func (b *Budget) fitsLocked(holder any, bytes int64) bool {
	return b.taken+bytes <= b.max && (holder == nil || b.holders[holder]+bytes <= b.max/2 && b.guests+bytes <= b.max-b.max/8)
}

// addLocked counts bytes that are taken, or given back if bytes is negative.
// The caller holds b.mu.
func (b *Budget) addLocked(holder any, bytes int64) {
	b.taken += bytes
	if holder == nil {
		return
	}
	b.guests += bytes
	if b.holders[holder] += bytes; b.holders[holder] == 0 {
		delete(b.holders, holder)
	}
}

// admitLocked gives shares to waiting requests, as far as there is room. A request
// that waits only for its holder's own half does not delay the others. The caller
// holds b.mu.
func (b *Budget) admitLocked() {
	for e := b.waiting.Front(); e != nil; {
		r, next := e.Value.(*request), e.Next()
		switch {
		case b.fitsLocked(r.holder, r.bytes):
			b.addLocked(r.holder, r.bytes)
			b.waiting.Remove(e)
			close(r.room)
		case r.holder == nil || b.holders[r.holder]+r.bytes <= b.max/2:
			return
		}
		e = next
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
	holder any
	bytes  int64 // guarded by budget.mu
}

// Grow makes the share at least bytes large. It does not wait, because two owners of
// shares that wait for each other would wait for ever. If there is no room, it returns
// feed.ErrOverloaded.
func (s *Share) Grow(bytes int64) error {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	more := bytes - s.bytes
	switch {
	case more <= 0:
		return nil
	case s.holder != nil && b.holders[s.holder]+more > b.max/2:
		return errShare
	case !b.fitsLocked(s.holder, more):
		return feed.ErrOverloaded
	}
	b.addLocked(s.holder, more)
	s.bytes = bytes
	return nil
}

// Keep shrinks the share to bytes, and gives the rest back.
func (s *Share) Keep(bytes int64) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes < s.bytes {
		b.addLocked(s.holder, bytes-s.bytes)
		s.bytes = bytes
		b.admitLocked()
	}
}

// Release gives the whole share back. It may be called again.
func (s *Share) Release() { s.Keep(0) }
