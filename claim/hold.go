package claim

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time since some moment. It goes on while the machine is
// suspended.
type Clock func() time.Duration

// wallClock is a Clock. It may be set back, so it is never the only one that
// counts.
func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// A Hold is a claim that this hub has, or had until it was lost or released.
type Hold struct {
	Claim
	clock    Clock
	until    atomic.Pointer[deadline]
	yielding bool // Yield was called for it; only the goroutine of Keeper.step uses it
}

// A deadline is when a claim ends for this hub, by two clocks. The first of
// them to get there counts: Go's own clock stands still while the machine is
// suspended, and the other one may be set back.
type deadline struct {
	at    time.Time
	clock time.Duration
}

// in returns the deadline that is a while from now.
func (k *Keeper) in(while time.Duration) *deadline {
	return &deadline{time.Now().Add(while), k.clock() + while}
}

// over reports whether a deadline has come.
func (d *deadline) over(clock Clock) bool {
	return !d.at.After(time.Now()) || d.clock <= clock()
}

// Until returns how long the claim counts for this hub, by its own clock. It is
// earlier than the end of the claim in the store, and counted from before the
// claim was asked for. After Until, nothing new may begin under the claim, and
// what was under way must have ended. Each renewal moves Until on. It does not
// count time for which the machine was suspended; Over does.
func (h *Hold) Until() time.Time { return h.until.Load().at }

// Over reports whether the claim counts no more for this hub: another hub may
// have it. Whoever calls the outside world under a claim asks directly before.
func (h *Hold) Over() bool { return h.until.Load().over(h.clock) }
