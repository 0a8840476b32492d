package hubmirror

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/ledger"
)

// update applies a batch to the mirror of s, or lets it catch up if it does not continue with the
// batch.
func (m *Mirrors) update(ctx context.Context, s *set, b *feed.Batch) error {
	if !b.Diverged {
		if applied, err := m.applyBatch(ctx, s, b); applied || err != nil {
			return err
		}
	}
	return m.catchUp(ctx, s)
}

func (m *Mirrors) applyBatch(ctx context.Context, s *set, b *feed.Batch) (applied bool, err error) {
	err = m.withOpen(ctx, m.batches, s, func(open *Set) (time.Duration, error) {
		if applied, err = open.Mirror.ApplyBatch(ctx, b); applied && err == nil {
			err = m.finish(ctx, s, open, b.Cursor)
		}
		return m.limits.retry, err
	})
	return applied, err
}

func (m *Mirrors) catchUp(ctx context.Context, s *set) error {
	return m.withOpen(ctx, m.catchUps, s, func(open *Set) (time.Duration, error) {
		source, err := m.opts.Find(ctx, s.name)
		if err != nil {
			return m.limits.retry, err
		}
		open.Mirror.SetSource(source)
		at, err := open.Mirror.CatchUp(ctx)
		if err != nil {
			return m.limits.retry, err
		}
		m.mu.Lock()
		m.setPendingLocked(s, rest(s.pending, at.Cursor))
		if at.Cursor.IsZero() && !m.opts.Once { // it polls lists
			m.delayLocked(ctx, s, m.opts.PollInterval)
		}
		if s.record.Leftovers = at.Leftovers; at.Leftovers {
			m.scheduleCheckLocked(ctx, s)
		}
		m.mu.Unlock()
		return m.limits.retry, m.finish(ctx, s, open, at.Cursor)
	})
}

// finish records that a mirror has reached a cursor. With Once it retries the failures.
func (m *Mirrors) finish(ctx context.Context, s *set, open *Set, at feed.Cursor) error {
	if m.opts.Once {
		if _, err := open.Sink.Retry(ctx, true); err != nil {
			return err
		}
	}
	m.mu.Lock()
	s.record.Cursor, s.failures, s.failed = at, 0, false
	m.mu.Unlock()
	return nil
}

// save stores the record of a set. If the mirror has failures, they are retried after a delay.
func (m *Mirrors) save(ctx context.Context, s *set, open *Set, delay time.Duration) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	n := open.Home.Ledger.Counts()
	m.mu.Lock()
	s.record.Files, s.record.Bytes, s.record.Missing = n.Files, n.Bytes, n.Failures
	r := s.record
	if n.Failures > 0 {
		m.scheduleRetryLocked(ctx, s, delay)
	}
	m.mu.Unlock()
	var b ledger.Batch
	b.PutMeta(recordPrefix+s.name, r)
	if err := m.home.Ledger.Commit(&b); err != nil {
		return &sharedError{err}
	}
	return nil
}

// hide records that a set was deleted or hidden. Its files stay.
func (m *Mirrors) hide(name string) {
	m.mu.Lock()
	s := m.sets[name]
	news := s != nil && !s.hidden
	if news {
		s.hidden = true
		m.setPendingLocked(s, nil)
		if s.retryTimer != nil {
			s.retryTimer.Stop()
			s.retryTimer = nil
		}
	}
	m.mu.Unlock()
	if news {
		m.opts.Logf("set %s was deleted, or may no longer be followed; its files stay", name)
	}
}

// hideOthers hides all sets but those in seen.
func (m *Mirrors) hideOthers(seen map[string]bool) {
	m.mu.Lock()
	var others []string
	for name := range m.sets {
		if !seen[name] {
			others = append(others, name)
		}
	}
	m.mu.Unlock()
	for _, name := range others {
		m.hide(name)
	}
}
