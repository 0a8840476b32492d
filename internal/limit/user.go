package limit

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/internal/problem"
)

// A User is a caller or an address, and what it uses. Its methods may be called
// concurrently, and never block. A nil *User has no limits.
type User struct {
	whose   string                // subject of the sentence "… has reached its limit"
	refused *[kinds]atomic.Uint64 // refusals of all callers, or of all addresses
	limiter *Limiter
	limits  atomic.Pointer[Limits]

	full [rates]atomic.Int64 // when the whole limit is regained, as a time of clock
	open atomic.Int64        // open Connections
	seen atomic.Int64        // when this User was last asked for
}

// Use uses n of a kind that counts in a time. If the limit is reached, nothing is used,
// and the error is the *feed.Problem to answer with. If at least one may be used, all
// n may: a publish with more changes than the limit is accepted, and the next publish
// waits longer.
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

// Check returns the error of Use if a limit is reached. It uses nothing.
func (u *User) Check(kind Kind) error { return u.Use(kind, 0) }

// Spend uses n of a kind, whether or not the limit is reached: it is for a request that
// turns out to be larger than expected.
func (u *User) Spend(kind Kind, n int64) {
	if u != nil {
		u.spend(kind, n, u.limiter.clock())
	}
}

// Wait returns how long it takes until Use of a kind succeeds, if nobody else uses it.
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

// check returns the problem of a limit that is reached, or nil.
func (u *User) check(kind Kind, now int64) error {
	wait := u.wait(kind, now)
	if wait == 0 {
		return nil
	}
	u.refused[kind].Add(1)
	l := u.limits.Load()[kind]
	p := problem.New(http.StatusTooManyRequests, "limit", fmt.Sprintf("%s has reached its limit of %d %s in %s; try again later", u.whose, l.Most, kind, spoken(l.Within)))
	p.RetryAfter = int((wait + time.Second - 1) / time.Second)
	p.Header = http.Header{
		// draft-ietf-httpapi-ratelimit-headers
		"Ratelimit-Policy": {strconv.Quote(kind.String()) + ";q=" + strconv.FormatInt(l.Most, 10) + ";w=" + strconv.FormatInt(int64(l.Within/time.Second), 10)},
		"Ratelimit":        {strconv.Quote(kind.String()) + ";r=0;t=" + strconv.Itoa(p.RetryAfter)},
	}
	return p
}

func spoken(d time.Duration) string {
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
		was := u.full[kind].Load()
		if u.full[kind].CompareAndSwap(was, min(max(was, now)+cost, longest)) {
			return
		}
	}
}

// cost returns the nanoseconds until n are regained, at most longest.
func (l Limit) cost(n int64) int64 {
	return int64(min(float64(l.Within)/float64(l.Most)*float64(n), float64(longest)))
}

// longest bounds a duration in nanoseconds, so that the sum of two does not overflow. It
// is 73 years.
const longest = 1 << 61

// Open opens one of the user's Connections. The caller calls done once, when it is
// closed. If the limit is reached, the error is the *feed.Problem to answer with.
func (u *User) Open() (done func(), err error) {
	if u == nil {
		return func() {}, nil
	}
	most := u.limits.Load()[Connections].Most
	if n := u.open.Add(1); most == 0 || n <= most {
		return func() { u.open.Add(-1) }, nil
	}
	u.open.Add(-1)
	u.refused[Connections].Add(1)
	p := problem.New(http.StatusTooManyRequests, "limit", fmt.Sprintf("%s has reached its limit of %d connections at once; close some, or try again later", u.whose, most))
	p.RetryAfter = 10
	p.Header = http.Header{
		"Ratelimit-Policy": {`"connections";q=` + strconv.FormatInt(most, 10)},
		"Ratelimit":        {`"connections";r=0`},
	}
	return nil, p
}

// idle reports whether u can be forgotten without a change: all that it used is
// regained, it has no open connection, and nobody asked for it within minIdle.
func (u *User) idle(now int64) bool {
	if u.open.Load() != 0 || now-u.seen.Load() < int64(minIdle) {
		return false
	}
	for k := range u.full {
		if u.full[k].Load() > now {
			return false
		}
	}
	return true
}

// minIdle is how long nobody must have asked for a User before it can be forgotten. It
// protects a User that a request has got but not used yet.
const minIdle = 10 * time.Second
