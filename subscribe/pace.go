package subscribe

import "time"

const (
	restFrom = time.Millisecond // after a shorter delivery, a rest would take longer than it saves
	maxRest  = 10 * time.Millisecond
)

// A pace lets a group rest a moment after a delivery, if of late it has written more than
// half of the time. It is good for a set that is published to faster than all connections can
// be written to: what is published meanwhile goes to each of them in one write. A group that
// has time never rests, so a change that comes alone is not held up.
type pace struct {
	began, ended time.Time // the last delivery, with its rest
	busy         float64   // which share of its time the group took for deliveries of late
}

// begin notes that a delivery begins.
func (p *pace) begin(now time.Time) {
	if !p.began.IsZero() {
		p.busy = (3*p.busy + float64(p.ended.Sub(p.began))/float64(now.Sub(p.began))) / 4
	}
	p.began = now
}

// end notes that the delivery has ended, and returns how long to rest at most.
func (p *pace) end(now time.Time) (rest time.Duration) {
	p.ended = now
	if took := now.Sub(p.began); took >= restFrom && p.busy > 0.5 {
		rest = min(took, maxRest)
		p.ended = now.Add(rest / 2)
	}
	return rest
}
