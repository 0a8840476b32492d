package writer

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A pacer leaves processor time to publishing. Updates work in slices. While changes arrive, the pacer sleeps
// between slices, so that updates work a quarter of the time. Otherwise it does not sleep.
type pacer struct {
	poll         func(ctx context.Context) // polls the heads of active sets, and calls observe
	scanInterval time.Duration             // between scans of all sets

	sliceStart time.Time
	steps      int

	newest   int64     // datetime of the newest change of all sets, in microseconds since 1970; zero if unknown
	observed time.Time // when observe was last called
	changed  time.Time // when observe last found a newer change; zero means never
}

const (
	slice        = 5 * time.Millisecond
	sleepSlices  = 3 // length of a sleep, in slices
	maxSleep     = 200 * time.Millisecond
	stepsPerRead = 32 // steps between two reads of the clock

	busyFor      = 5 * time.Second // time after a new change for which more are expected
	pollInterval = 500 * time.Millisecond
)

// observe looks for a newer change in polled states of some sets.
func (p *pacer) observe(states []feed.State) {
	before := p.newest
	p.observed = time.Now()
	for _, s := range states {
		p.newest = max(p.newest, s.Head.Micros)
	}
	if before > 0 && p.newest > before {
		p.changed = p.observed
	}
}

// startSlice starts a slice.
func (p *pacer) startSlice() { p.sliceStart = time.Now() }

// step must be called between small steps of work. It may sleep. It returns ctx's error.
func (p *pacer) step(ctx context.Context) error {
	if p.steps++; p.steps%stepsPerRead == 0 {
		p.sleepIfDue(ctx)
		return ctx.Err()
	}
	return nil
}

// sleepIfDue sleeps if the slice is over and changes arrive, and then starts the next slice.
func (p *pacer) sleepIfDue(ctx context.Context) {
	now := time.Now()
	worked := now.Sub(p.sliceStart)
	if worked < slice {
		return
	}
	if now.Sub(p.observed) >= pollInterval {
		p.poll(ctx)
	}
	if !p.changed.IsZero() && now.Sub(p.changed) < max(busyFor, 2*p.scanInterval) {
		_ = backoff.Sleep(ctx, min(sleepSlices*worked, maxSleep)) // the caller sees that ctx is done
	}
	p.startSlice()
}
