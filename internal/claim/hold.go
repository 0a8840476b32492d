package claim

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time since some moment. It does not stop while the machine
// is suspended.
type Clock func() time.Duration

// wallClock is a Clock. An operator may set it back, so a deadline never relies on
// it alone.
func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// A Hold is a claim that this hub has, or had until it was lost or released.
type Hold struct {
	Claim
	clock    Clock
	until    atomic.Pointer[deadline]
	yielding bool // Yield was called for it; only the goroutine of Keeper.step uses it
}

// A deadline is when a claim ends for this hub, by two clocks. The claim ends
// when the first of them reaches it. Go's own clock stands still while the
// machine is suspended, and an operator may set the other clock back.
type deadline struct {
	at    time.Time
	clock time.Duration
}

// in returns the deadline a while from now.
func (k *Keeper) in(while time.Duration) *deadline {
	return &deadline{time.Now().Add(while), k.clock() + while}
}

// over reports whether the deadline has passed.
func (d *deadline) over(clock Clock) bool {
	return !d.at.After(time.Now()) || d.clock <= clock()
}

// Until returns when the claim ends for this hub, by its own clock. That is
// earlier than the end in the store, because it is counted from before the
// request for the claim. After Until, no work may begin under the claim, and
// all work under it must have ended. Each renewal moves Until. Until ignores
// time for which the machine was suspended; Over counts it.
func (h *Hold) Until() time.Time { return h.until.Load().at }

// Over reports whether the claim has ended for this hub. Another hub may have
// it then. A worker must ask Over directly before it calls another system under
// the claim.
func (h *Hold) Over() bool { return h.until.Load().over(h.clock) }
