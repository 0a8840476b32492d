package claim

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine started, with the time for which
// it was suspended. Go's own monotonic clock stands still meanwhile.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wallClock() // Linux has had that clock since 2.6.39
	}
	return time.Duration(t.Nano())
}
