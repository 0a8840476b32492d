package limit

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/internal/problem"
)

// A User is a caller or an address with its use. Its methods never block and are safe for concurrent use.
// A nil *User has no limits.
type User struct {
	whose   string                // subject of the sentence "… has reached its limit"
	refused *[kinds]atomic.Uint64 // refusals of all callers, or of all addresses
	limiter *Limiter
	limits  atomic.Pointer[Limits]

	full [rates]atomic.Int64  // time of Limiter.clock at which the bucket is full again
	held [gauges]atomic.Int64 // acquired and not yet released
	seen atomic.Int64         // time of the last Limiter.Caller or Address
}

// Use uses n of a rate. If the limit is reached, it uses nothing and returns a *feed.Problem for the
// response. If one token is left, Use succeeds for any n: a publish with more changes than the limit is
// accepted, and the next one waits longer.
func (u *User) Use(kind Kind, n int64) error {
	if u == nil {
		return nil
	}
	now := u.limiter.clock()
	if p := u.check(kind, now); p != nil {
		return p
	}
	u.spend(kind, n, now)
	return nil
}

// Check returns the error of Use if the limit is reached, and uses nothing.
func (u *User) Check(kind Kind) error { return u.Use(kind, 0) }

// Spend uses n of a rate even if the limit is reached, for a request that turns out to be larger than
// expected.
func (u *User) Spend(kind Kind, n int64) {
	if u != nil {
		u.spend(kind, n, u.limiter.clock())
	}
}

// Wait returns the time until Use of a kind succeeds, without further use.
func (u *User) Wait(kind Kind) time.Duration {
	if u == nil {
		return 0
	}
	return u.wait(kind, u.limiter.clock())
}

func (u *User) wait(kind Kind, now int64) time.Duration {
	l := u.limits.Load()[kind]
	if l.Most == None || l.Most == 0 {
		return 0
	}
	return max(0, time.Duration(max(0, u.full[kind].Load()-now)+l.cost(1))-l.Within)
}

// check returns the problem of a reached limit, or nil.
func (u *User) check(kind Kind, now int64) error {
	wait := u.wait(kind, now)
	if wait == 0 {
		return nil
	}
	u.refused[kind].Add(1)
	l := u.limits.Load()[kind]
	p := problem.New(http.StatusTooManyRequests, "limit", fmt.Sprintf("%s has reached its limit of %d %s in %s; retry later", u.whose, l.Most, kind, windowText(l.Within)))
	p.RetryAfter = int((wait + time.Second - 1) / time.Second)
	p.Header = http.Header{
		// draft-ietf-httpapi-ratelimit-headers
		"Ratelimit-Policy": {strconv.Quote(kind.String()) + ";q=" + strconv.FormatInt(l.Most, 10) + ";w=" + strconv.FormatInt(int64(l.Within/time.Second), 10)},
		"Ratelimit":        {strconv.Quote(kind.String()) + ";r=0;t=" + strconv.Itoa(p.RetryAfter)},
	}
	return p
}

// windowText returns a window of Parse as text.
func windowText(d time.Duration) string {
	switch d {
	case time.Second:
		return "a second"
	case time.Minute:
		return "a minute"
	case time.Hour:
		return "an hour"
	}
	return "a day"
}

func (u *User) spend(kind Kind, n, now int64) {
	if n == 0 {
		return
	}
	l := u.limits.Load()[kind]
	if l.Most == None || l.Most == 0 {
		return
	}
	cost := l.cost(n)
	for {
		old := u.full[kind].Load()
		if u.full[kind].CompareAndSwap(old, min(max(old, now)+cost, maxDuration)) {
			return
		}
	}
}

// cost returns the nanoseconds in which n tokens are refilled, at most maxDuration.
func (l Limit) cost(n int64) int64 {
	return int64(min(float64(l.Within)/float64(l.Most)*float64(n), float64(maxDuration)))
}

// maxDuration is the maximum of durations in nanoseconds, 73 years, so that the sum of two does not overflow.
const maxDuration = 1 << 61

// Acquire takes n of a gauge, which the caller must return with Release. If the limit would be exceeded, it
// takes nothing and returns a *feed.Problem for the response.
func (u *User) Acquire(kind Kind, n int64) error {
	if u == nil {
		return nil
	}
	limit, held := u.limits.Load()[kind].Most, u.gauge(kind)
	for {
		old := held.Load()
		if limit != 0 && n > limit-old {
			break
		}
		if held.CompareAndSwap(old, old+n) {
			return nil
		}
	}
	u.refused[kind].Add(1)
	p := problem.New(http.StatusTooManyRequests, "limit", fmt.Sprintf("%s has reached its limit of %d concurrent %s; end some, or retry later", u.whose, limit, kind))
	p.RetryAfter = 10
	p.Header = http.Header{
		"Ratelimit-Policy": {strconv.Quote(kind.String()) + ";q=" + strconv.FormatInt(limit, 10)},
		"Ratelimit":        {strconv.Quote(kind.String()) + ";r=0"},
	}
	return p
}

// Release returns n of a gauge that Acquire took.
func (u *User) Release(kind Kind, n int64) {
	if u != nil {
		u.gauge(kind).Add(-n)
	}
}

// gauge returns how much of a gauge is held.
func (u *User) gauge(kind Kind) *atomic.Int64 { return &u.held[int(kind)-rates] }

// Open acquires a connection. The caller must call done once, when it is closed. Errors are the same as
// Acquire's.
func (u *User) Open() (done func(), err error) {
	if err := u.Acquire(Connections, 1); err != nil {
		return nil, err
	}
	return func() { u.Release(Connections, 1) }, nil
}

// idle reports whether u can be evicted without effect: its buckets are full, it holds nothing of a gauge, and
// it was not requested within minIdle.
func (u *User) idle(now int64) bool {
	if now-u.seen.Load() < int64(minIdle) {
		return false
	}
	for k := range u.held {
		if u.held[k].Load() != 0 {
			return false
		}
	}
	for k := range u.full {
		if u.full[k].Load() > now {
			return false
		}
	}
	return true
}

// minIdle is the minimum time since the last request for a User before it is evicted. It protects a User
// that a request has but has not used yet.
const minIdle = 10 * time.Second
