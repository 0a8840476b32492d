package hubmirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// fail handles an error of an attempt to update the mirror of s.
func (m *Mirrors) fail(ctx context.Context, s *set, err error) {
	switch {
	case m.endsRun(ctx, s, err):
	case errors.Is(err, feed.ErrNoSet):
		m.hide(s.name)
	default:
		if wait, report := m.delayAfter(ctx, s, err); report {
			m.opts.OnError(s.name, err, wait)
		}
	}
}

// delayAfter delays the next attempt after an error. report is whether the user must be told.
func (m *Mirrors) delayAfter(ctx context.Context, s *set, err error) (wait time.Duration, report bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.hidden {
		return 0, false
	}
	inUse := errors.Is(err, home.ErrInUse)
	report = !s.failed || !inUse // an audit may take long
	s.failed = true
	_, s.sourceFailed = errors.AsType[*mirror.SourceError](err)
	if m.opts.Once {
		m.setPendingLocked(s, nil)
		return 0, true
	}
	wait = backoff.Jitter(backoff.Exponential(m.limits.minDelay, m.limits.maxDelay, s.failures))
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](err); ok {
		wait = m.limits.maxDelay
	}
	if inUse {
		wait = m.limits.inUse
	} else {
		s.failures++
	}
	m.delayLocked(ctx, s, wait)
	return wait, report
}

// A sharedError is an error of the records of all sets.
type sharedError struct{ err error }

func (e *sharedError) Error() string { return e.err.Error() }
func (e *sharedError) Unwrap() error { return e.err }

// endsRun reports whether Run ends, because ctx is done or because of an error of the mirror of s that
// concerns all sets: a full disk does, and damage to the files of one mirror does not.
func (m *Mirrors) endsRun(ctx context.Context, s *set, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	_, shared := errors.AsType[*sharedError](err)
	if shared = shared || mirror.IsDiskFailure(err); shared {
		m.cancel(fmt.Errorf("mirror of set %q: %w", s.name, err))
	}
	return shared
}

// failStart handles an error of the hub for a set that it cannot start to follow.
func (m *Mirrors) failStart(e *client.SetError) {
	m.mu.Lock()
	m.setLocked(e.Set).failed = true
	m.mu.Unlock()
	wait := m.limits.follow
	if m.opts.Once {
		wait = 0
	}
	m.opts.OnError(e.Set, &mirror.SourceError{Err: e}, wait)
}

// retrySources ends the delays of sets that failed because their source was unavailable: the hub is
// available again.
func (m *Mirrors) retrySources(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sets {
		if s.delay != nil && s.failed && s.sourceFailed && s.delay.Stop() {
			s.failures = 0
			m.endDelayLocked(ctx, s)
		}
	}
}

// delayLocked lets the mirror of s catch up after a delay, and not before.
func (m *Mirrors) delayLocked(ctx context.Context, s *set, delay time.Duration) {
	if m.stopped {
		return
	}
	if s.delay != nil {
		s.delay.Stop()
	}
	s.delay = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.endDelayLocked(ctx, s)
	})
}

func (m *Mirrors) endDelayLocked(ctx context.Context, s *set) {
	if s.delay = nil; s.hidden {
		return
	}
	m.setPendingLocked(s, diverged(&feed.Batch{Set: s.name}))
	m.startLocked(ctx, s)
}

// scheduleCheckLocked lets the mirror of s catch up later, although it may not change.
func (m *Mirrors) scheduleCheckLocked(ctx context.Context, s *set) {
	if m.stopped || m.opts.Once || s.check != nil {
		return
	}
	s.check = time.AfterFunc(m.limits.check, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.check = nil; s.record.Leftovers && s.delay == nil {
			m.endDelayLocked(ctx, s)
		}
	})
}

// scheduleRetryLocked retries the failures of a mirror after a delay, or earlier if that was
// scheduled.
func (m *Mirrors) scheduleRetryLocked(ctx context.Context, s *set, delay time.Duration) {
	at := time.Now().Add(delay)
	s.retryAgain = s.retrying
	if m.stopped || m.opts.Once || s.hidden || s.retrying || s.retryTimer != nil && s.retryAt.Before(at) {
		return
	}
	if s.retryTimer != nil {
		s.retryTimer.Stop()
	}
	s.retryAt = at
	s.retryTimer = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.stopped || s.hidden || s.retrying {
			return
		}
		s.retrying, s.retryAgain, s.retryTimer = true, false, nil
		m.wg.Go(func() { m.retryFailures(ctx, s) })
	})
}

// retryFailures retries the failures that are due.
func (m *Mirrors) retryFailures(ctx context.Context, s *set) {
	err := m.withOpen(ctx, m.retries, s, func(open *Set) (time.Duration, error) {
		left, err := open.Sink.Retry(ctx, false)
		if err != nil {
			return m.limits.minDelay, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.retrying = false; s.retryAgain { // left may be older than other failures
			return m.limits.retry, nil
		}
		return max(time.Until(left.Next), m.limits.retry/10), nil
	})
	if err == nil || m.endsRun(ctx, s, err) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.retrying = false
	m.scheduleRetryLocked(ctx, s, m.limits.minDelay)
}
