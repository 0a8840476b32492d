package claim

import (
	"sync/atomic"
	"time"
)

// A Clock returns the time since a fixed moment. It does not stop while the machine is suspended.
type Clock func() time.Duration

// wallClock is a Clock. An operator may set it back, so no deadline relies on it alone.
func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// A Hold is a claim of this hub, or a former one that was lost or released.
type Hold struct {
	Claim
	clock    Clock
	until    atomic.Pointer[deadline]
	yielding bool // whether Worker.Yield was called; accessed only by the goroutine of Keeper.step
}

// A deadline is the end of a claim for this hub, by two clocks. The claim ends when the first of
// them reaches it: Go's monotonic clock stops while the machine is suspended, and an operator may
// set the other clock back.
type deadline struct {
	at    time.Time
	clock time.Duration
}

// deadlineIn returns the deadline after the given time.
func (k *Keeper) deadlineIn(while time.Duration) *deadline {
	return &deadline{time.Now().Add(while), k.clock() + while}
}

// passed reports whether the deadline has passed.
func (d *deadline) passed(clock Clock) bool {
	return !d.at.After(time.Now()) || d.clock <= clock()
}

// Until returns the end of the claim for this hub, by its own clock. It is earlier than the end in
// the store, because it is computed before the claim is requested. After Until, no work under the
// claim may start, and all work under it must have ended. Each renewal moves Until. It does not
// take into account time during which the machine was suspended; Expired does.
func (h *Hold) Until() time.Time { return h.until.Load().at }

// Expired reports whether the claim has ended for this hub. Another hub may then have it. A worker
// must call Expired immediately before it calls another system under the claim.
func (h *Hold) Expired() bool { return h.until.Load().passed(h.clock) }
