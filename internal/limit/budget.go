package limit

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// MemoryTimeout is how long a response waits for memory. It is longer than a burst, and shorter
// than the timeouts of clients and proxies.
const MemoryTimeout = 10 * time.Second

// A Budget limits the memory for requests or responses in progress. Code that builds a response first
// acquires a Share, and waits while the budget is used up. Shares are granted in order, so that a large
// one does not wait forever.
//
// One User gets at most half of the budget, and all Users together at most seven eighths. The rest is for
// the hub itself, which does not wait behind Users. A User that has its half is refused immediately.
type Budget struct {
	max     int64
	timeout time.Duration

	mu      sync.Mutex
	taken   int64
	users   map[*User]int64 // bytes taken by each User, unless 0
	ofUsers int64           // sum of users
	waiting list.List       // *request, oldest first
}

// A request is a pending request for a share.
type request struct {
	user    *User // nil for the hub itself
	bytes   int64
	granted chan struct{} // closed when the request has its share
}

// NewBudget returns a Budget of max bytes. Acquire waits at most for timeout.
func NewBudget(max int64, patience time.Duration) *Budget {
	return &Budget{max: max, timeout: patience, users: map[*User]int64{}}
}

// MaxShare returns the maximum size of a share in bytes for the User in ctx.
func (b *Budget) MaxShare(ctx context.Context) int64 { return b.maxShare(FromContext(ctx)) }

func (b *Budget) maxShare(user *User) int64 {
	if user == nil {
		return b.max
	}
	return b.max / 2
}

// Acquire acquires a share of the budget. It waits at most for the timeout of the budget, and then
// returns feed.ErrOverloaded. If ctx is done, it returns the cause. A share above MaxShare is
// reduced to MaxShare.
func (b *Budget) Acquire(ctx context.Context, bytes int64) (*Share, error) {
	if s, err := b.try(FromContext(ctx), bytes); s != nil || err != nil { // common case
		return s, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout, feed.ErrOverloaded)
	defer cancel()
	return b.Wait(ctx, bytes)
}

// Wait is like Acquire, but waits until ctx is done.
func (b *Budget) Wait(ctx context.Context, bytes int64) (*Share, error) {
	user := FromContext(ctx)
	if s, err := b.try(user, bytes); s != nil || err != nil {
		return s, err
	}
	r := &request{user: user, bytes: min(bytes, b.maxShare(user)), granted: make(chan struct{})}
	b.mu.Lock()
	e := b.waiting.PushBack(r)
	b.admitLocked() // the memory may suffice already
	b.mu.Unlock()
	select {
	case <-r.granted:
		return &Share{budget: b, user: user, bytes: r.bytes}, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.granted: // granted at the same moment
		b.addLocked(user, -r.bytes)
	default:
		b.waiting.Remove(e)
	}
	b.admitLocked() // a smaller request may be next
	return nil, context.Cause(ctx)
}

// try acquires a share if there is memory and no other request comes first. Otherwise it returns nil, or
// errShare for a User that has its half.
func (b *Budget) try(user *User, bytes int64) (*Share, error) {
	bytes = min(bytes, b.maxShare(user))
	b.mu.Lock()
	defer b.mu.Unlock()
	if user != nil && b.users[user]+bytes > b.maxShare(user) {
		return nil, errShare
	}
	if first := b.waiting.Front(); first != nil && (user != nil || first.Value.(*request).user == nil) || !b.fitsLocked(user, bytes) {
		return nil, nil
	}
	b.addLocked(user, bytes)
	return &Share{budget: b, user: user, bytes: bytes}, nil
}

// errShare is the error for a User that has its half. It is like feed.ErrOverloaded, but caused by the
// client.
var errShare = &feed.Error{Code: feed.ErrOverloaded.Code, Status: 429, RetryAfter: feed.ErrOverloaded.RetryAfter, Text: "a caller has reached its limit of memory",
	Detail: "your requests in progress use the maximum memory of one caller, half of that of the hub; retry after their responses"}

// fitsLocked reports whether there is memory for a share. The caller must hold b.mu.
func (b *Budget) fitsLocked(user *User, bytes int64) bool {
	return b.taken+bytes <= b.max && (user == nil || b.users[user]+bytes <= b.max/2 && b.ofUsers+bytes <= b.max-b.max/8)
}

// addLocked counts taken bytes, or returned ones if bytes is negative. The caller must hold b.mu.
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

// admitLocked grants shares to pending requests while there is memory. A request that waits only for the
// half of its own user does not delay others. The caller must hold b.mu.
func (b *Budget) admitLocked() {
	for e := b.waiting.Front(); e != nil; {
		r, next := e.Value.(*request), e.Next()
		switch {
		case b.fitsLocked(r.user, r.bytes):
			b.addLocked(r.user, r.bytes)
			b.waiting.Remove(e)
			close(r.granted)
		case r.user == nil || b.users[r.user]+r.bytes <= b.max/2:
			return
		}
		e = next
	}
}

// Taken returns the number of taken bytes.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// A Share is an acquired part of a Budget.
type Share struct {
	budget *Budget
	user   *User
	bytes  int64 // guarded by budget.mu
}

// Grow increases the share to at least the given number of bytes. It does not wait, because two owners of
// shares could deadlock. If there is no memory, it returns feed.ErrOverloaded.
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

// Shrink reduces the share to at most the given number of bytes. It has no effect on a smaller
// share.
func (s *Share) Shrink(bytes int64) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes < s.bytes {
		b.addLocked(s.user, bytes-s.bytes)
		s.bytes = bytes
		b.admitLocked()
	}
}

// Release returns the share. It may be called more than once.
func (s *Share) Release() { s.Shrink(0) }
