package hubmirror

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/home"
)

// An opening opens the mirror of a set while it is used.
type opening struct {
	mu    sync.Mutex
	users int    // number of goroutines that use open
	open  *Set   // nil without users
	stop  func() // stops serving copies
}

// withOpen calls f with the open mirror of s, when there is a free slot. Then it stores the record, and
// schedules a retry of the failures of the mirror after the delay that f returns.
func (m *Mirrors) withOpen(ctx context.Context, free slots, s *set, f func(*Set) (retry time.Duration, err error)) error {
	if err := free.acquire(ctx); err != nil {
		return err
	}
	defer free.release()
	open, err := m.acquire(ctx, s)
	if err != nil {
		return err
	}
	retry, err := f(open)
	return errors.Join(err, m.save(ctx, s, open, retry), s.opening.release(m.opts.Dir(s.name)))
}

// acquire opens the mirror of s, unless another goroutine uses it.
func (m *Mirrors) acquire(ctx context.Context, s *set) (*Set, error) {
	o := &s.opening
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == 0 {
		if !home.IsUnchanged(m.opts.Dir(s.name)) {
			m.distrustRecord(ctx, s)
		}
		open, err := m.opts.Open(s.name)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { open.Mirror.ServeCopies(ctx) })
		o.open, o.stop = open, func() {
			cancel()
			wg.Wait()
		}
	}
	o.users++
	return o.open, nil
}

// distrustRecord lets the mirror of s catch up if it has a record: its directory was removed, or another
// process may have changed the mirror.
func (m *Mirrors) distrustRecord(ctx context.Context, s *set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.record.Cursor.IsZero() && !s.hidden {
		s.record.Cursor = feed.Cursor{}
		m.setPendingLocked(s, diverged(&feed.Batch{Set: s.name}))
		m.startLocked(ctx, s)
	}
}

// release closes the mirror after its last use, and marks it, so that changes by another process are
// noticed.
func (o *opening) release(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users > 0 {
		return nil
	}
	o.stop()
	err := o.open.Home.Close()
	if err == nil {
		err = home.MarkUnchanged(dir)
	}
	o.open, o.stop = nil, nil // a closed mirror retains memory
	return err
}
