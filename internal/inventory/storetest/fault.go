package storetest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A fault says how a call of a store fails.
type fault int

const (
	refused fault = iota // the call is not done, and says so
	unknown              // the call is done, but its answer is lost
	crash                // the call is not done, nor is any behind it
	crashed              // the call is done, but none behind it
	half                 // a call with pages is done for half of them, and none behind it
	most                 // a call with pages is done for all but the last, and none behind it
	faults               // how many there are
)

// A hooked store makes each call through a function.
type hooked struct {
	inventory.Store
	call func(do func() error) error
	part func(n int) int // for how many of n pages a call is done
}

func (s *hooked) Load(ctx context.Context, set string) (r inventory.Record, err error) {
	err = s.call(func() error {
		r, err = s.Store.Load(ctx, set)
		return err
	})
	return r, err
}

func (s *hooked) Swap(ctx context.Context, set string, w inventory.Swap) error {
	return s.call(func() error { return s.Store.Swap(ctx, set, w) })
}

func (s *hooked) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	part := pages[:s.part(len(pages))]
	return s.call(func() error { return s.Store.Put(ctx, set, begin, attempt, part) })
}

func (s *hooked) Get(ctx context.Context, set string, begin int64, numbers []uint64) (pages [][]byte, err error) {
	err = s.call(func() error {
		pages, err = s.Store.Get(ctx, set, begin, numbers)
		return err
	})
	return pages, err
}

func (s *hooked) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	part := numbers[:s.part(len(numbers))]
	return s.call(func() error { return s.Store.Remove(ctx, set, begin, part) })
}

func (s *hooked) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if err := s.call(func() error { return nil }); err != nil {
			yield(0, err)
			return
		}
		s.Store.Numbers(ctx, set, begin)(yield)
	}
}

// A faulty store fails once, or from one call on.
type faulty struct {
	hooked

	mu    sync.Mutex
	calls int // since set
	left  int // calls until the fault; below 0: there is none
	fault fault
	met   bool // the fault has happened
	clog  bool // nothing is removed
}

func newFaulty(s inventory.Store) *faulty {
	f := &faulty{left: -1}
	f.hooked = hooked{s, f.call, f.part}
	return f
}

func (s *faulty) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	if s.clogged() {
		return fmt.Errorf("a planned fault: %w", feed.ErrUnavailable)
	}
	return s.hooked.Remove(ctx, set, begin, numbers)
}

// set arms the store: the call after n others fails.
func (s *faulty) set(n int, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.left, s.fault, s.met = 0, n, f, false
}

// keeps makes the store remove nothing while do runs.
func (s *faulty) keeps(do func()) {
	set := func(clog bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clog = clog
	}
	set(true)
	defer set(false)
	do()
}

func (s *faulty) clogged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clog
}

// heal disarms the store. It returns how often it was called since set, and whether the
// fault has happened.
func (s *faulty) heal() (calls int, met bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = -1
	return s.calls, s.met
}

// part returns for how many of n pages the failing call is still done.
func (s *faulty) part(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 && !s.met && s.fault == half {
		return n / 2
	}
	if s.left == 0 && !s.met && s.fault == most {
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
		return fmt.Errorf("a planned fault: %w", feed.ErrUnavailable)
	}
	if err := do(); err != nil {
		return err
	}
	return fmt.Errorf("a planned fault: %w", feed.ErrUnknown)
}
