package claim

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine was booted, including time during which it was
// suspended. Go's own monotonic clock stops during that time.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wallClock() // unreachable since Linux 2.6.39, which introduced the clock
	}
	return time.Duration(t.Nano())
}
