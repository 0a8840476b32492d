// Package backoff computes and waits for the time before another try. Waits are random within
// bounds, so that callers that failed together do not try again together.
//
// It does not retry: the caller owns the loop, and decides which errors are worth another try.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. If ctx is done first, it returns ctx's error at once.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOrWake(ctx, d, nil) }

// SleepOrWake is Sleep, which ends also after wake.Wake; wake may be nil.
func SleepOrWake(ctx context.Context, d time.Duration, wake Wakeup) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// A Wakeup wakes a goroutine that may be busy, and receives from it: several calls of Wake that
// come before the goroutine looks count as one. NewWakeup makes it.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Wake has the goroutine look. It does not block.
func (w Wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Exponential returns first, doubled times times, but at most most. times is the number of
// earlier failures.
func Exponential(first, most time.Duration, times int) time.Duration {
	for ; times > 0 && first < most; times-- {
		first *= 2
	}
	return min(first, most)
}

// Wait waits for a random time between half of d and d, and returns true. If ctx is done
// first, it returns false at once.
func Wait(ctx context.Context, d time.Duration) bool {
	return Sleep(ctx, d/2+rand.N(d/2+1)) == nil
}

// Jitter returns d, made longer or shorter at random by up to a fifth.
func Jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(2*d/5+1) }
