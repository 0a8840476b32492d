package inventory

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// Memory is a Store in memory: for tests, and for the inventory that a destination has of its own resources.
// Nothing in it survives the process. It has no log: every set exists, its log began at 0, and it has every
// cursor.
type Memory struct {
	mu   sync.Mutex
	sets map[string]*memorySet
}

// A memorySet is the data of a set in a Memory.
type memorySet struct {
	term  uint64
	head  []byte
	pages map[uint64][]byte
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{sets: map[string]*memorySet{}} }

// of returns the memorySet of a set, which may be empty, for the log that began at begin.
func (m *Memory) of(set string, begin int64) *memorySet {
	s := m.sets[set]
	if s == nil || begin != 0 {
		return &memorySet{pages: map[uint64][]byte{}}
	}
	return s
}

// Load returns the record of a set, see Store.
func (m *Memory) Load(_ context.Context, set string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(set, 0).record(set), nil
}

func (s *memorySet) record(set string) Record {
	return Record{Log: feed.State{Set: set}, Now: time.Now().UnixMicro(), Term: s.term, Head: slices.Clone(s.head)}
}

// Update changes the record of a set, see Store.
func (m *Memory) Update(_ context.Context, set string, u Update) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, 0)
	r := s.record(set)
	if err := u.Change(&r); err != nil {
		return err
	}
	s.term, s.head = r.Term, slices.Clone(r.Head)
	m.sets[set] = s
	return nil
}

// Put writes pages, see Store.
func (m *Memory) Put(_ context.Context, set string, begin int64, term uint64, pages []Page) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, begin)
	switch {
	case begin != 0:
		return ErrLog
	case s.term != term || term == 0:
		return ErrFenced
	}
	for _, p := range pages {
		s.pages[p.Number] = slices.Clone(p.Bytes)
	}
	return nil
}

// Get returns the bytes of pages, see Store.
func (m *Memory) Get(_ context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pages := make([][]byte, len(numbers))
	s := m.of(set, begin)
	for i, n := range numbers {
		pages[i] = s.pages[n]
	}
	return pages, nil
}

// Remove removes pages, see Store.
func (m *Memory) Remove(_ context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, begin)
	if begin == 0 && (s.term != term || term == 0) {
		return ErrFenced
	}
	for _, n := range numbers {
		delete(s.pages, n)
	}
	return nil
}

// Numbers yields the numbers of the pages of a set, see Store.
func (m *Memory) Numbers(_ context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	numbers := slices.Collect(maps.Keys(m.of(set, begin).pages))
	return func(yield func(uint64, error) bool) {
		for _, n := range numbers {
			if !yield(n, nil) {
				return
			}
		}
	}
}
