package callback

// maxPatience bounds how many deliveries a callback takes before it is offered more
// again: a callback that can never take more refuses one delivery of that many.
const maxPatience = 64

// An appetite is how many changes a callback takes at once, as far as its answers say.
// A refusal (413) halves the deliveries. Successes double them again, for a refusal may
// have been a passing trouble, and a backlog must not go out in small pieces for ever.
// The zero value has no bound.
type appetite struct {
	most     int  // changes in a delivery; 0: as many as the engine allows
	taken    int  // deliveries that succeeded since most was set
	patience int  // deliveries that have to succeed before most is doubled, less one
	grown    bool // most was doubled since the last refusal
}

// refuse notes that a delivery of so many changes was too large. A refusal of what was
// just doubled says that the callback has a limit of its own there, so the next
// doubling waits for twice as many successes.
func (a *appetite) refuse(changes int) {
	if a.grown {
		a.patience = min(2*a.patience+1, maxPatience-1)
	}
	a.most, a.taken, a.grown = changes/2, 0, false
}

// take notes a delivery that succeeded. limit is the engine's bound.
func (a *appetite) take(limit int) {
	if a.most == 0 {
		return
	}
	if a.taken++; a.taken <= a.patience {
		return
	}
	a.most, a.taken, a.grown = 2*a.most, 0, true
	if a.most >= limit {
		a.most = 0
	}
}
