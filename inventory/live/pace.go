package live

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A pace keeps the maker from taking too much processor time from publishing. The maker
// works in slices. While changes come, it rests between slices, and works a quarter of
// the time. If changes come faster than it can commit them in that time, it works much
// less; it cannot keep up then, and finishes soonest if the publishers finish first.
// While no changes come, and for a set that a reader waits for, it rests less.
type pace struct {
	look func(ctx context.Context) // looks at the heads, and calls saw

	begun time.Time // when the present slice began
	steps int
	asked bool // a reader waits for the present work

	every   time.Duration         // how often all sets are looked at
	heads   map[string]feed.State // the states of the last look
	strange bool                  // the last look was the first look at some set
	moved   time.Time             // when a look last found a new head; zero: never
	since   time.Time             // when the changes began to be counted
	came    uint64                // changes since then, in the sets that this hub makes
	rate    float64               // such changes per second, at the last look
}

const (
	slice    = 5 * time.Millisecond
	maxRest  = 200 * time.Millisecond
	restFor  = 3  // a rest is so many slices while changes come
	yieldFor = 40 // a rest is so many slices while too many changes come
	stepSize = 32 // steps between two looks at the clock

	busyFor   = 5 * time.Second // how long after a new head changes are assumed to come
	tooMany   = 50_000          // changes per second; about what a quarter of a core can commit
	lookEvery = 500 * time.Millisecond
	lookSoon  = 50 * time.Millisecond // after the first look at a set
)

// saw notes the states of a look. mine reports whether this hub makes a set's inventory.
// all means that there are no other sets.
func (p *pace) saw(states []feed.State, all bool, mine func(set string) bool) {
	now, before := time.Now(), p.heads
	if all || p.heads == nil {
		p.heads = make(map[string]feed.State, len(states))
	}
	p.strange = false
	for _, s := range states {
		old, known := before[s.Set]
		p.heads[s.Set] = s
		switch {
		case !known || old.Begin != s.Begin:
			p.strange = true
		case old.Head != s.Head:
			p.moved = now
			if s.Head.Position > old.Head.Position && mine(s.Set) {
				p.came += s.Head.Position - old.Head.Position
			}
		}
	}
	if took := now.Sub(p.since); took >= lookSoon {
		p.rate = float64(p.came) / took.Seconds()
		p.since, p.came = now, 0
	}
}

// begin begins a slice. asked means that a reader waits for the work.
func (p *pace) begin(asked bool) { p.begun, p.asked = time.Now(), asked }

// step is called between small steps of work. Its error is that of ctx.
func (p *pace) step(ctx context.Context) error {
	if p.steps++; p.steps%stepSize == 0 {
		p.breathe(ctx)
		return ctx.Err()
	}
	return nil
}

// breathe rests if the slice is over.
func (p *pace) breathe(ctx context.Context) {
	now := time.Now()
	took := now.Sub(p.begun)
	if took < slice {
		return
	}
	if since := now.Sub(p.since); since >= lookEvery || p.strange && since >= lookSoon {
		p.look(ctx)
	}
	if times := p.rests(now); times > 0 {
		_ = backoff.Sleep(ctx, min(times*took, maxRest)) // the caller sees that ctx is done
	}
	p.begun = time.Now()
}

// rests returns how many slices long the next rest is.
func (p *pace) rests(now time.Time) time.Duration {
	switch {
	case p.moved.IsZero() || now.Sub(p.moved) >= max(busyFor, 2*p.every):
		return 0
	case p.rate > tooMany && !p.asked:
		return yieldFor
	}
	return restFor
}
