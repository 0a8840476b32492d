package callback

// A nudge is a channel with room for one value. It wakes a goroutine that may be
// busy: several wants that come before the goroutine looks count as one.
type nudge chan struct{}

func (n nudge) want() {
	select {
	case n <- struct{}{}:
	default:
	}
}
