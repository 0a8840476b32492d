package limit

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// Patience is how long answers to requests wait for memory: longer than a burst lasts, and
// shorter than clients and proxies wait.
const Patience = 10 * time.Second

// A Budget bounds how many bytes the hub holds at one time for requests or answers. Code
// that makes an answer takes a Share first, and waits while there is no room. Shares are
// given in the order of the requests, so that a large one does not wait for ever.
//
// One User gets at most half of the budget, and all Users together at most seven eighths.
// The hub itself keeps the rest, and does not wait behind Users. A User that has its half is
// refused at once.
type Budget struct {
	max      int64
	patience time.Duration

	mu      sync.Mutex
	taken   int64
	users   map[*User]int64 // the bytes that each User has taken, if not 0
	ofUsers int64           // sum of users
	waiting list.List       // of *request, the oldest first
}

// A request waits for a share. room is closed when the request has it.
type request struct {
	user  *User // nil: the hub itself
	bytes int64
	room  chan struct{}
}

// NewBudget returns a Budget of max bytes. Take waits no longer than patience.
func NewBudget(max int64, patience time.Duration) *Budget {
	return &Budget{max: max, patience: patience, users: map[*User]int64{}}
}

// Most returns how many bytes a share for the User in ctx may have.
func (b *Budget) Most(ctx context.Context) int64 { return b.most(FromContext(ctx)) }

func (b *Budget) most(user *User) int64 {
	if user == nil {
		return b.max
	}
	return b.max / 2
}

// Take takes a share of the budget. It waits for room, but no longer than the budget's
// patience, and then returns feed.ErrOverloaded. When ctx is done, it returns the cause.
// A share that is too large is cut to Most.
func (b *Budget) Take(ctx context.Context, bytes int64) (*Share, error) {
	if s, err := b.try(FromContext(ctx), bytes); s != nil || err != nil { // the usual case
		return s, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, feed.ErrOverloaded)
	defer cancel()
	return b.Wait(ctx, bytes)
}

// Wait is like Take, but waits until ctx is done.
func (b *Budget) Wait(ctx context.Context, bytes int64) (*Share, error) {
	user := FromContext(ctx)
	if s, err := b.try(user, bytes); s != nil || err != nil {
		return s, err
	}
	r := &request{user: user, bytes: min(bytes, b.most(user)), room: make(chan struct{})}
	b.mu.Lock()
	e := b.waiting.PushBack(r)
	b.admitLocked() // there may be room by now
	b.mu.Unlock()
	select {
	case <-r.room:
		return &Share{budget: b, user: user, bytes: r.bytes}, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.room: // the share came at the same moment
		b.addLocked(user, -r.bytes)
	default:
		b.waiting.Remove(e)
	}
	b.admitLocked() // a smaller request may have waited behind this one
	return nil, context.Cause(ctx)
}

// try takes a share if there is room and no other request comes first. Otherwise it
// returns nil, or errShare for a User that has its half.
func (b *Budget) try(user *User, bytes int64) (*Share, error) {
	bytes = min(bytes, b.most(user))
	b.mu.Lock()
	defer b.mu.Unlock()
	if user != nil && b.users[user]+bytes > b.most(user) {
		return nil, errShare
	}
	if first := b.waiting.Front(); first != nil && (user != nil || first.Value.(*request).user == nil) || !b.fitsLocked(user, bytes) {
		return nil, nil
	}
	b.addLocked(user, bytes)
	return &Share{budget: b, user: user, bytes: bytes}, nil
}

// errShare is for a user that has its half. It is like feed.ErrOverloaded, but the
// client caused it, and the hub has no problem.
var errShare = &feed.Error{Code: feed.ErrOverloaded.Code, Status: 429, RetryAfter: feed.ErrOverloaded.RetryAfter, Text: "one caller has reached its limit of memory",
	Detail: "your requests under way use as much memory as one caller may, half of what the hub has for all; wait for their answers, and ask again"}

// fitsLocked reports whether there is room for a share. The caller holds b.mu.
func (b *Budget) fitsLocked(user *User, bytes int64) bool {
	return b.taken+bytes <= b.max && (user == nil || b.users[user]+bytes <= b.max/2 && b.ofUsers+bytes <= b.max-b.max/8)
}

// addLocked counts bytes that are taken, or given back if bytes is negative.
// The caller holds b.mu.
func (b *Budget) addLocked(user *User, bytes int64) {
	b.taken += bytes
	if user == nil {
		return
	}
	b.ofUsers += bytes
	if b.users[user] += bytes; b.users[user] == 0 {
		delete(b.users, user)
	}
}

// admitLocked gives shares to waiting requests, as far as there is room. A request
// that waits only for its user's own half does not delay the others. The caller
// holds b.mu.
func (b *Budget) admitLocked() {
	for e := b.waiting.Front(); e != nil; {
		r, next := e.Value.(*request), e.Next()
		switch {
		case b.fitsLocked(r.user, r.bytes):
			b.addLocked(r.user, r.bytes)
			b.waiting.Remove(e)
			close(r.room)
		case r.user == nil || b.users[r.user]+r.bytes <= b.max/2:
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
	user   *User
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
	case s.user != nil && b.users[s.user]+more > b.max/2:
		return errShare
	case !b.fitsLocked(s.user, more):
		return feed.ErrOverloaded
	}
	b.addLocked(s.user, more)
	s.bytes = bytes
	return nil
}

// Keep shrinks the share to bytes, and gives the rest back.
func (s *Share) Keep(bytes int64) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes < s.bytes {
		b.addLocked(s.user, bytes-s.bytes)
		s.bytes = bytes
		b.admitLocked()
	}
}

// Release gives the whole share back. It may be called again.
func (s *Share) Release() { s.Keep(0) }
