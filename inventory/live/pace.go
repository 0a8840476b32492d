package live

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A pace keeps the maker from taking the processor away from publishing. It works in
// slices and rests between them while changes come: it works a quarter of the time; or
// much less when more changes come than that is enough for, because it cannot keep up
// then, and is done soonest when it lets the publishers come to their end. While no changes
// come, and for a set that a reader waits for, it rests less.
type pace struct {
	look func(ctx context.Context) // looks at the heads, and calls saw

	begun time.Time // when the present slice began
	steps int
	asked bool // a reader waits for what is made now

	every   time.Duration         // how often all sets are looked at
	heads   map[string]feed.State // as of the last look
	strange bool                  // that was the first look at some set
	moved   time.Time             // when a head was last seen to have moved; zero: never
	since   time.Time             // when the changes began to be counted
	came    uint64                // changes, to the sets that this hub makes
	rate    float64               // how many of them came in a second
}

const (
	slice    = 5 * time.Millisecond
	maxRest  = 200 * time.Millisecond
	restFor  = 3  // times the slice, while changes come
	yieldFor = 40 // times the slice, while too many come
	stepSize = 32 // steps between two looks at the clock

	busyFor   = 5 * time.Second // after a head has moved, changes are taken to come
	tooMany   = 50_000          // changes a second: about what a quarter of a core commits
	lookEvery = 500 * time.Millisecond
	lookSoon  = 50 * time.Millisecond // after the first look at a set
)

// saw takes heads that were looked at; mine are sets that this hub makes. all means that
// there are no other sets.
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

// begin begins a slice. asked means that a reader waits for what is made now.
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

// rests returns how many times the length of a slice the rest behind it is.
func (p *pace) rests(now time.Time) time.Duration {
	switch {
	case p.moved.IsZero() || now.Sub(p.moved) >= max(busyFor, 2*p.every):
		return 0
	case p.rate > tooMany && !p.asked:
		return yieldFor
	}
	return restFor
}
