package live

import (
	"context"
	"time"
)

// A pace keeps the maker from taking the processor away from publishing. While changes
// come, the maker works a quarter of the time, in slices; else it does not rest.
type pace struct {
	busy  bool      // changes come
	begun time.Time // when the present slice began
	steps int
}

const (
	slice    = 5 * time.Millisecond
	maxRest  = 100 * time.Millisecond
	restFor  = 3  // times the slice
	stepSize = 32 // steps between two looks at the clock
)

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

// breathe rests if the slice is over.
func (p *pace) breathe(ctx context.Context) {
	took := time.Since(p.begun)
	if took < slice {
		return
	}
	if p.busy {
		wait(ctx, min(restFor*took, maxRest))
	}
	p.begin()
}

// wait returns after a while, or when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
