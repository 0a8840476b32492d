package hubmirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// A set is the state of the mirror of a set. Mirrors.mu guards its fields, except opening.
type set struct {
	name    string
	record  record
	pending *feed.Batch // changes to apply; may be nil
	started bool        // whether there was work since the start of Run
	gone    bool        // whether the set was deleted or hidden
	running bool        // whether a goroutine applies changes
	delay   *time.Timer // ends the time in which no goroutine may start; nil if one may

	check    *time.Timer // lets the mirror catch up because it has leftovers; nil if it has none
	failures int         // number of failures since the last success
	failed   bool        // whether the last attempt failed
	away     bool        // whether it failed because the source was unavailable

	retrying   bool        // whether a goroutine retries failures
	retryTimer *time.Timer // starts it; nil if there are no failures
	retryAt    time.Time   // time of retryTimer

	opening opening
	saving  sync.Mutex // held while record is stored, so that the newest one is stored last
}

// A record is what is stored of a set. It may be older than the mirror.
type record struct {
	Cursor  feed.Cursor `json:"cursor"` // position in the hub's log that the mirror has reached; zero if unknown
	Files   int64       `json:"files"`
	Bytes   int64       `json:"bytes"`   // of all files
	Missing int64       `json:"missing"` // number of resources that could not be fetched

	Leftovers bool `json:"leftovers,omitempty"` // see mirror.Position
}

// needsCatchUp reports whether a mirror that has the hub's cursor has work to do at the start of Run.
func (r *record) needsCatchUp(once bool) bool { return r.Leftovers || r.Missing > 0 && once }

const recordPrefix = "set/" // of the names of records in the ledger

// limits are constants that tests change.
type limits struct {
	pending  int           // maximum number of entries in the pending batches of all sets
	check    time.Duration // time between two CatchUps of a mirror with leftovers
	minDelay time.Duration // before the first attempt after a failure, doubled each time
	maxDelay time.Duration // and after too many deletions, which need an operator
	inUse    time.Duration // delay while another process, such as an audit, uses the directory
	retry    time.Duration // before the first retry of resources that could not be fetched
}

var defaultLimits = limits{pending: 50_000, check: time.Hour, minDelay: 10 * time.Second, maxDelay: time.Hour, inUse: 5 * time.Second, retry: 10 * time.Second}

// add adds a batch of FollowAll to the changes to apply.
func (m *Mirrors) add(ctx context.Context, b *feed.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[b.Set]
	if s == nil {
		s = &set{name: b.Set}
		m.sets[b.Set] = s
	}
	s.gone = false
	if s.pending == nil && len(b.Entries) == 0 && !b.Diverged && b.Cursor == s.record.Cursor {
		if s.started || !s.record.needsCatchUp(m.opts.Once) {
			return
		}
		b = diverged(b)
	}
	s.started = true
	m.setPendingLocked(s, merge(s.pending, b))
	if m.pending > m.limits.pending {
		m.setPendingLocked(s, diverged(b))
	}
	m.wakeLocked(ctx, s)
}

func (m *Mirrors) setPendingLocked(s *set, b *feed.Batch) {
	if s.pending != nil {
		m.pending -= len(s.pending.Entries)
	}
	if s.pending = b; b != nil {
		m.pending += len(b.Entries)
	}
}

// wakeLocked starts a goroutine that applies the pending changes, if there is work for it.
func (m *Mirrors) wakeLocked(ctx context.Context, s *set) {
	if m.stopped || s.running || s.delay != nil || s.pending == nil || onlyMoves(s.pending) {
		return
	}
	s.running = true
	m.wg.Go(func() {
		for b := m.next(ctx, s); b != nil; b = m.next(ctx, s) {
			if err := m.update(ctx, s, b); err != nil {
				m.fail(ctx, s, err)
			}
		}
	})
}

// next removes the pending changes of s and returns them. If there is no work left, it returns nil,
// and the calling goroutine must end.
func (m *Mirrors) next(ctx context.Context, s *set) *feed.Batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := s.pending
	if b == nil || onlyMoves(b) || s.delay != nil || ctx.Err() != nil {
		s.running = false
		return nil
	}
	m.setPendingLocked(s, nil)
	return b
}

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
	err = m.use(ctx, m.live, s, func(open *Set) (time.Duration, error) {
		if applied, err = open.Mirror.ApplyBatch(ctx, b); applied && err == nil {
			err = m.finish(ctx, s, open, b.Cursor)
		}
		return m.limits.retry, err
	})
	return applied, err
}

func (m *Mirrors) catchUp(ctx context.Context, s *set) error {
	return m.use(ctx, m.full, s, func(open *Set) (time.Duration, error) {
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
	return m.home.Ledger.Commit(&b)
}

// fail handles an error of an attempt to update the mirror of s.
func (m *Mirrors) fail(ctx context.Context, s *set, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil, s.gone:
		return
	case !concernsOneSet(err):
		m.cancel(fmt.Errorf("mirror of set %q: %w", s.name, err))
		return
	case m.opts.Once:
		s.failed = true
		m.setPendingLocked(s, nil)
		m.opts.OnError(s.name, err, 0)
		return
	}
	wait := backoff.Jitter(backoff.Exponential(m.limits.minDelay, m.limits.maxDelay, s.failures))
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](err); ok {
		wait = m.limits.maxDelay
	}
	if errors.Is(err, home.ErrInUse) {
		wait = m.limits.inUse
	} else {
		s.failures++
	}
	if !s.failed || !errors.Is(err, home.ErrInUse) {
		m.opts.OnError(s.name, err, wait)
	}
	s.failed = true
	_, s.away = errors.AsType[*mirror.SourceError](err)
	m.delayLocked(ctx, s, wait)
}

// retrySources ends the delays of sets that failed because their source was unavailable: the hub is
// available again.
func (m *Mirrors) retrySources(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sets {
		if s.delay != nil && s.failed && s.away && s.delay.Stop() {
			s.failures = 0
			m.endDelayLocked(ctx, s)
		}
	}
}

// concernsOneSet reports whether an error leaves other sets alone. Errors of the disk do not.
func concernsOneSet(err error) bool {
	_, source := errors.AsType[*mirror.SourceError](err)
	_, deletions := errors.AsType[*reconcile.TooManyDeletions](err)
	_, open := errors.AsType[*openError](err)
	return source || deletions || open
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
	if s.delay = nil; s.gone {
		return
	}
	m.setPendingLocked(s, diverged(&feed.Batch{Set: s.name}))
	m.wakeLocked(ctx, s)
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

// hide records that a set was deleted or hidden. Its files stay.
func (m *Mirrors) hide(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sets[name]; s != nil && !s.gone {
		s.gone = true
		m.setPendingLocked(s, nil)
		m.opts.Logf("set %q was deleted, or may no longer be followed; its files stay", name)
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

// scheduleRetryLocked retries the failures of a mirror after a delay, or earlier if that was
// scheduled.
func (m *Mirrors) scheduleRetryLocked(ctx context.Context, s *set, delay time.Duration) {
	at := time.Now().Add(delay)
	if m.stopped || m.opts.Once || s.retrying || s.retryTimer != nil && s.retryAt.Before(at) {
		return
	}
	if s.retryTimer != nil {
		s.retryTimer.Stop()
	}
	s.retryAt = at
	s.retryTimer = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.stopped || s.retrying {
			return
		}
		s.retrying, s.retryTimer = true, nil
		m.wg.Go(func() { m.retryFailures(ctx, s) })
	})
}

// retryFailures retries the failures that are due.
func (m *Mirrors) retryFailures(ctx context.Context, s *set) {
	err := m.use(ctx, m.retry, s, func(open *Set) (time.Duration, error) {
		left, err := open.Sink.Retry(ctx, false)
		if err != nil {
			return m.limits.minDelay, err
		}
		m.mu.Lock()
		s.retrying = false
		m.mu.Unlock()
		return max(time.Until(left.Next), m.limits.retry/10), nil
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	if !concernsOneSet(err) {
		m.cancel(fmt.Errorf("mirror of set %q: %w", s.name, err))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.retrying = false
	m.scheduleRetryLocked(ctx, s, m.limits.minDelay)
}
