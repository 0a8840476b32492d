package claim

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine started. It includes the time
// for which the machine was suspended, when Go's own monotonic clock stands
// still.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wallClock() // Linux has had that clock since 2.6.39
	}
	return time.Duration(t.Nano())
}
