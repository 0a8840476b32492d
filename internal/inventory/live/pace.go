package live

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A pace keeps the maker from taking too much processor time from publishing. The maker
// works in slices. While changes come, it rests between slices, and works a quarter of the
// time. While no changes come, it does not rest.
type pace struct {
	look func(ctx context.Context) // looks at the heads, and calls saw

	begun time.Time // when the present slice began
	steps int

	every  time.Duration          // how often all sets are looked at
	heads  map[string]feed.Cursor // of the sets, at the last look
	looked time.Time              // when it was
	moved  time.Time              // when a look last found a new head; zero: never
}

const (
	slice    = 5 * time.Millisecond
	maxRest  = 200 * time.Millisecond
	restFor  = 3  // a rest is so many slices
	stepSize = 32 // steps between two looks at the clock

	busyFor   = 5 * time.Second // how long after a new head changes are assumed to come
	lookEvery = 500 * time.Millisecond
)

// saw notes the states of a look. all means that there are no other sets.
func (p *pace) saw(states []feed.State, all bool) {
	before := p.heads
	p.looked = time.Now()
	if all || p.heads == nil {
		p.heads = make(map[string]feed.Cursor, len(states))
	}
	for _, s := range states {
		if old, known := before[s.Set]; known && old != s.Head {
			p.moved = p.looked
		}
		p.heads[s.Set] = s.Head
	}
}

// begin begins a slice.
func (p *pace) begin() { p.begun = time.Now() }

// step is called between small steps of work. Its error is that of ctx.
func (p *pace) step(ctx context.Context) error {
	if p.steps++; p.steps%stepSize == 0 {
		p.breathe(ctx)
		return ctx.Err()
	}
	return nil
}

// breathe rests if the slice is over, and if changes come.
func (p *pace) breathe(ctx context.Context) {
	now := time.Now()
	took := now.Sub(p.begun)
	if took < slice {
		return
	}
	if now.Sub(p.looked) >= lookEvery {
		p.look(ctx)
	}
	if !p.moved.IsZero() && now.Sub(p.moved) < max(busyFor, 2*p.every) {
		_ = backoff.Sleep(ctx, min(restFor*took, maxRest)) // the caller sees that ctx is done
	}
	p.begun = time.Now()
}
