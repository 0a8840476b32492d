package hubmirror

import (
	"context"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// A set is the state of the mirror of a set. Mirrors.mu guards its fields, except opening.
type set struct {
	name    string
	record  record
	pending *feed.Batch // changes to apply; may be nil
	started bool        // whether there was work since the start of Run
	hidden  bool        // whether the set was deleted or hidden
	running bool        // whether a goroutine applies changes
	taken   int         // number of entries that it applies, or will when there is a free slot
	delay   *time.Timer // ends the time in which no goroutine may start; nil if one may

	check        *time.Timer // lets the mirror catch up because it has leftovers; nil if it has none
	failures     int         // number of failures since the last success
	failed       bool        // whether the last attempt failed
	sourceFailed bool        // whether it failed because the source was unavailable

	retrying   bool        // whether a goroutine retries failures
	retryAgain bool        // whether failures were added in the meantime
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
	follow   time.Duration // before sets that the hub could not start are followed again
	retry    time.Duration // before the first retry of resources that could not be fetched
}

var defaultLimits = limits{
	pending: 50_000, check: time.Hour,
	minDelay: 10 * time.Second, maxDelay: time.Hour, inUse: 5 * time.Second, follow: 10 * time.Minute,
	retry: 10 * time.Second,
}

// add adds a batch of FollowAll to the changes to apply.
func (m *Mirrors) add(ctx context.Context, b *feed.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.setLocked(b.Set)
	if s.hidden {
		s.hidden, s.failures = false, 0
		if s.delay != nil { // it was for the former set
			s.delay.Stop()
			s.delay = nil
		}
		if s.record.Missing > 0 {
			m.scheduleRetryLocked(ctx, s, m.limits.retry)
		}
	}
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
	m.startLocked(ctx, s)
}

// setLocked returns the state of a set, which may be new.
func (m *Mirrors) setLocked(name string) *set {
	s := m.sets[name]
	if s == nil {
		s = &set{name: name}
		m.sets[name] = s
	}
	return s
}

func (m *Mirrors) setPendingLocked(s *set, b *feed.Batch) {
	if s.pending != nil {
		m.pending -= len(s.pending.Entries)
	}
	if s.pending = b; b != nil {
		m.pending += len(b.Entries)
	}
}

// startLocked starts a goroutine that applies the pending changes, if there is work for it.
func (m *Mirrors) startLocked(ctx context.Context, s *set) {
	if m.stopped || s.running || s.delay != nil || s.pending == nil || onlyMoves(s.pending) {
		return
	}
	s.running = true
	m.wg.Go(func() {
		for b := m.popPending(ctx, s); b != nil; b = m.popPending(ctx, s) {
			if err := m.update(ctx, s, b); err != nil {
				m.fail(ctx, s, err)
			}
		}
	})
}

// popPending removes the pending changes of s and returns them. If there is no work left, it returns nil,
// and the calling goroutine must end.
func (m *Mirrors) popPending(ctx context.Context, s *set) *feed.Batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending, s.taken = m.pending-s.taken, 0
	b := s.pending
	if b == nil || onlyMoves(b) || s.delay != nil || ctx.Err() != nil {
		s.running = false
		return nil
	}
	m.setPendingLocked(s, nil)
	s.taken = len(b.Entries)
	m.pending += s.taken
	return b
}
