package storetest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

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
)

// A hookedStore makes each call through a function.
type hookedStore struct {
	inventory.Store
	call  func(do func() error) error
	limit func(n int) int // how many of n pages a call affects
}

func (s *hookedStore) Load(ctx context.Context, set string) (r inventory.Record, err error) {
	err = s.call(func() error {
		r, err = s.Store.Load(ctx, set)
		return err
	})
	return r, err
}

func (s *hookedStore) Update(ctx context.Context, set string, u inventory.Update) error {
	return s.call(func() error { return s.Store.Update(ctx, set, u) })
}

func (s *hookedStore) Put(ctx context.Context, set string, begin int64, term uint64, pages []inventory.Page) error {
	some := pages[:s.limit(len(pages))]
	return s.call(func() error { return s.Store.Put(ctx, set, begin, term, some) })
}

func (s *hookedStore) Get(ctx context.Context, set string, begin int64, numbers []uint64) (pages [][]byte, err error) {
	err = s.call(func() error {
		pages, err = s.Store.Get(ctx, set, begin, numbers)
		return err
	})
	return pages, err
}

func (s *hookedStore) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	some := numbers[:s.limit(len(numbers))]
	return s.call(func() error { return s.Store.Remove(ctx, set, begin, term, some) })
}

func (s *hookedStore) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if err := s.call(func() error { return nil }); err != nil {
			yield(0, err)
			return
		}
		s.Store.Numbers(ctx, set, begin)(yield)
	}
}

// A faulty store fails once, or from a call on.
type faulty struct {
	hookedStore

	mu         sync.Mutex
	calls      int // since arm
	left       int // calls until the fault; below 0 there is none
	fault      fault
	met        bool // whether the fault has happened
	noRemovals bool // whether Remove fails
}

func newFaulty(s inventory.Store) *faulty {
	f := &faulty{left: -1}
	f.hookedStore = hookedStore{s, f.call, f.limit}
	return f
}

func (s *faulty) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	s.mu.Lock()
	fails := s.noRemovals
	s.mu.Unlock()
	if fails {
		return fmt.Errorf("planned fault: %w", feed.ErrUnavailable)
	}
	return s.hookedStore.Remove(ctx, set, begin, term, numbers)
}

// arm makes the call after n others fail.
func (s *faulty) arm(n int, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.left, s.fault, s.met = 0, n, f, false
}

// withoutRemovals calls do. In the meantime Remove fails.
func (s *faulty) withoutRemovals(do func()) {
	set := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noRemovals = on
	}
	set(true)
	defer set(false)
	do()
}

// disarm ends faults. It returns the number of calls since arm, and whether the fault has happened.
func (s *faulty) disarm() (calls int, met bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = -1
	return s.calls, s.met
}

// limit returns how many of n pages the next call affects.
func (s *faulty) limit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left != 0 || s.met:
		return n
	case s.fault == half:
		return n / 2
	case s.fault == most:
		return n - 1
	}
	return n
}

// call makes a call, or fails.
func (s *faulty) call(do func() error) error {
	s.mu.Lock()
	s.calls++
	now, dead := s.left == 0, s.left == 0 && s.met
	if s.left > 0 {
		s.left--
	}
	fault := s.fault
	if now {
		s.met = true
		if fault == refused || fault == unknown {
			s.left = -1
		}
	}
	s.mu.Unlock()
	switch {
	case !now:
		return do()
	case dead || fault == refused || fault == crash:
		return fmt.Errorf("planned fault: %w", feed.ErrUnavailable)
	}
	if err := do(); err != nil {
		return err
	}
	return fmt.Errorf("planned fault: %w", feed.ErrUnknown)
}
