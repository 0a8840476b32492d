package changelog

// A Clock records what a store knows about its clock, in microseconds since 1970. See Log.Tick.
type Clock struct {
	At      int64 // newest recorded time; zero means none
	Doubted int64 // time since which the clock is in doubt; zero means it is not
}

// Tick returns the Clock after recording the time now.
func (c Clock) Tick(now int64) Clock {
	return Clock{At: now, Doubted: c.doubted(now)}
}

// Doubtful reports whether the clock is in doubt at the time now, even if now was not recorded.
func (c Clock) Doubtful(now int64) bool { return c.doubted(now) > 0 }

func (c Clock) doubted(now int64) int64 {
	switch step, doubt := ClockStep.Microseconds(), ClockDoubt.Microseconds(); {
	case c.At > 0 && now-c.At > step:
		return now
	case now < c.Doubted || now-c.Doubted >= doubt:
		return 0
	}
	return c.Doubted
}
