//go:build !linux

package claim

import "time"

// sinceBoot returns the time of the wall clock, which continues while the machine is suspended.
func sinceBoot() time.Duration { return wallClock() }
