package callback

import (
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// How failing deliveries are tried again, until the lease ends.
const (
	firstRetry  = time.Second     // the first wait; each is twice the one before
	lastRetry   = 5 * time.Minute // the longest wait
	slowAfter   = time.Second     // a success that took longer proves nothing
	memoryRetry = 2 * time.Second // the wait after the log could not be read

	// The wait after the hub made no connection, because there are enough to the
	// address. By then the task waits for the permits of that address.
	crowdedRetry = time.Second
)

// failLocked decides when to try again.
//
// A new change brings the next try forward, since a callback that is well again should
// not wait. But a change does so only once after each failure, and not before a tenth
// of the wait (at least 1 s) is over: under a stream of changes a dead callback is
// tried every 30 s instead of every five minutes. No try comes before the verdict's
// After is over.
func (s *sub) failLocked(d *delivery) {
	s.standing = doubtful
	now := time.Now()
	if d.verdict.Decision == outlet.Smaller && d.cut.changes > 1 {
		s.appetite.refuse(d.cut.changes)
		s.until = feed.Cursor{} // the callback may take fewer changes, so there is no reason to wait long
		s.setFailedLocked(s.failed + 1)
		s.next = now.Add(max(backoff.Jitter(firstRetry), d.verdict.After))
		s.earliest = s.next
		return
	}
	wait := max(backoff.Jitter(retryWait(s.failed)), d.verdict.After)
	s.setFailedLocked(s.failed + 1)
	s.next = now.Add(wait)
	s.earliest = now.Add(max(firstRetry, wait/10, d.verdict.After))
}

// doubtLocked notes how long a verification took: a slow one says that the callback is
// slow, and a quick one says nothing about deliveries.
func (s *sub) doubtLocked(took time.Duration) {
	if took > slowAfter {
		s.standing = doubtful
	}
}

// speed returns what a success says of a callback.
func speed(took time.Duration) standing {
	if took <= slowAfter {
		return proven
	}
	return doubtful
}

// setFailedLocked sets how many tries have failed in a row, and keeps Engine.failing.
func (s *sub) setFailedLocked(n int) {
	e := s.shard.engine
	switch {
	case s.failed == 0 && n > 0:
		e.failing++
	case s.failed > 0 && n == 0:
		e.failing--
	}
	s.failed = n
}

// retryWait returns how long to wait after a number of earlier failures.
func retryWait(failed int) time.Duration { return backoff.Doubled(firstRetry, lastRetry, failed) }
