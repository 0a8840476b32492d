package hubmirror

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An opening opens the mirror of a set while it is used.
type opening struct {
	mu    sync.Mutex
	users int    // number of goroutines that use open
	open  *Set   // nil without users
	stop  func() // stops serving copies
}

// An openError reports that the mirror of a set could not be opened.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

// use calls f with the open mirror of s, when there is a free slot. Then it stores the record, and
// schedules a retry of the failures of the mirror after the delay that f returns.
func (m *Mirrors) use(ctx context.Context, free slots, s *set, f func(*Set) (retry time.Duration, err error)) error {
	if err := free.acquire(ctx); err != nil {
		return err
	}
	defer free.release()
	open, err := m.acquire(ctx, s)
	if err != nil {
		return &openError{err}
	}
	retry, err := f(open)
	return errors.Join(err, m.save(ctx, s, open, retry), s.opening.release())
}

// acquire opens the mirror of s, unless another goroutine uses it.
func (m *Mirrors) acquire(ctx context.Context, s *set) (*Set, error) {
	o := &s.opening
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == 0 {
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

// release closes the mirror after its last use.
func (o *opening) release() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users > 0 {
		return nil
	}
	o.stop()
	err := o.open.Home.Close()
	o.open, o.stop = nil, nil // a closed mirror retains memory
	return err
}
