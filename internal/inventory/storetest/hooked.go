package storetest

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A HookedStore is a Store whose calls and whose clock a test controls.
type HookedStore struct {
	inventory.Store
	Ahead atomic.Int64 // how far the clock is ahead, a time.Duration

	mu   sync.Mutex
	hook hook
}

// A hook makes a call, which has a number of pages. do makes it with the first n of them.
type hook func(set, call string, pages int, do func(n int) error) error

// Before makes the store call a function before each call from now on. Its error is returned instead.
func (s *HookedStore) Before(f func(set, call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = func(set, call string, pages int, do func(int) error) error {
		if err := f(set, call); err != nil {
			return err
		}
		return do(pages)
	}
}

func (s *HookedStore) call(set, name string, pages int, do func(n int) error) error {
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if hook == nil {
		return do(pages)
	}
	return hook(set, name, pages, do)
}

func (s *HookedStore) setClock(r *inventory.Record) {
	r.Now += time.Duration(s.Ahead.Load()).Microseconds()
}

func (s *HookedStore) Load(ctx context.Context, set string) (r inventory.Record, err error) {
	err = s.call(set, "load", 0, func(int) error {
		r, err = s.Store.Load(ctx, set)
		return err
	})
	s.setClock(&r)
	return r, err
}

func (s *HookedStore) Update(ctx context.Context, set string, u inventory.Update) error {
	change := u.Change
	u.Change = func(r *inventory.Record) error {
		s.setClock(r)
		return change(r)
	}
	return s.call(set, "update", 0, func(int) error { return s.Store.Update(ctx, set, u) })
}

func (s *HookedStore) Put(ctx context.Context, set string, begin int64, term uint64, pages []inventory.Page) error {
	return s.call(set, "put", len(pages), func(n int) error { return s.Store.Put(ctx, set, begin, term, pages[:n]) })
}

func (s *HookedStore) Get(ctx context.Context, set string, begin int64, numbers []uint64) (pages [][]byte, err error) {
	err = s.call(set, "get", len(numbers), func(int) error {
		pages, err = s.Store.Get(ctx, set, begin, numbers)
		return err
	})
	return pages, err
}

func (s *HookedStore) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	return s.call(set, "remove", len(numbers), func(n int) error { return s.Store.Remove(ctx, set, begin, term, numbers[:n]) })
}

func (s *HookedStore) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if err := s.call(set, "numbers", 0, func(int) error { return nil }); err != nil {
			yield(0, err)
			return
		}
		s.Store.Numbers(ctx, set, begin)(yield)
	}
}

// A fault is a way in which a call of a store fails.
type fault int

const (
	refused fault = iota // the call has no effect, and its error says so
	unknown              // the call has taken effect, but its reply is lost
	crash                // the call has no effect, nor have those after it
	crashed              // the call has taken effect, but those after it have none
	half                 // a call with pages affects half of them; those after it have no effect
	most                 // a call with pages affects all but the last; those after it have no effect
	faults               // number of faults
	pause                // the call waits
)

// A faultyStore fails or pauses once, or fails from a call on.
type faultyStore struct {
	HookedStore

	faultMu        sync.Mutex
	calls          int // since arm
	left           int // calls until the fault; below 0 means no fault
	fault          fault
	met            bool // whether the fault has happened
	paused, resume chan struct{}
}

func newFaultyStore(s inventory.Store) *faultyStore {
	f := &faultyStore{left: -1}
	f.Store, f.hook = s, f.makeCall
	return f
}

// arm makes the call after n others fail.
func (s *faultyStore) arm(n int, f fault) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.calls, s.left, s.fault, s.met = 0, n, f, false
}

// disarm ends faults. It returns the number of calls since arm, and whether the fault has happened.
func (s *faultyStore) disarm() (calls int, met bool) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.left = -1
	return s.calls, s.met
}

func (s *faultyStore) makeCall(_, _ string, pages int, do func(n int) error) error {
	s.faultMu.Lock()
	s.calls++
	now, dead, fault := s.left == 0, s.met, s.fault
	s.met = s.met || now
	if s.left > 0 || now && (fault == refused || fault == unknown || fault == pause) {
		s.left--
	}
	s.faultMu.Unlock()
	switch {
	case !now:
		return do(pages)
	case dead, fault == refused, fault == crash:
		return fmt.Errorf("planned fault: %w", feed.ErrUnavailable)
	case fault == pause:
		close(s.paused)
		<-s.resume
		return do(pages)
	case fault == half:
		pages /= 2
	case fault == most:
		pages = max(0, pages-1)
	}
	if err := do(pages); err != nil {
		return err
	}
	return fmt.Errorf("planned fault: %w", feed.ErrUnknown)
}

// start starts an operation, and returns when it pauses before call n, counted from 0, or has ended before. finish
// waits for its end, and returns its error.
func (s *faultyStore) start(n int, operation func() error) (ended bool, finish func() error) {
	s.arm(n, pause)
	s.paused, s.resume = make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	go func() { result <- operation() }()
	select {
	case <-s.paused:
		return false, func() error {
			close(s.resume)
			return <-result
		}
	case err := <-result:
		return true, func() error { return err }
	}
}
