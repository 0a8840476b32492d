// Package backoff computes the time before a retry and waits for it. Waits are random within
// bounds, so that callers that failed together do not retry together.
//
// It does not retry: the caller owns the loop, and decides which errors are retryable.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. If ctx is done first, it returns ctx's error immediately.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOrWake(ctx, d, nil) }

// SleepOrWake is like Sleep, but returns early if wake.Wake is called. wake may be nil.
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

// A Wakeup wakes a goroutine that receives from it. Calls of Wake before the goroutine receives
// count as one. Use NewWakeup to create a Wakeup.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Wake wakes the goroutine. It does not block.
func (w Wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Exponential returns first, doubled for each of the earlier failures, but at most most.
func Exponential(first, most time.Duration, times int) time.Duration {
	for ; times > 0 && first < most; times-- {
		first *= 2
	}
	return min(first, most)
}

// Wait waits for a random time from d/2 to d, and returns true. If ctx is done first, it returns
// false immediately.
func Wait(ctx context.Context, d time.Duration) bool {
	return Sleep(ctx, d/2+rand.N(d/2+1)) == nil
}

// Jitter returns d, randomly varied by up to a fifth.
func Jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(2*d/5+1) }
