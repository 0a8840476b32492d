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
	version uint64
	attempt uint64
	head    []byte
	pages   map[uint64][]byte
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
	s := m.of(set, 0)
	return Record{Log: feed.State{Set: set}, Now: time.Now().UnixMicro(), Version: s.version, Attempt: s.attempt, Head: slices.Clone(s.head)}, nil
}

// Swap replaces the record of a set, see Store.
func (m *Memory) Swap(_ context.Context, set string, w Swap) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, 0)
	if w.Begin != 0 {
		return ErrLog
	}
	if s.version != w.Version {
		return ErrRaced
	}
	s.version, s.attempt, s.head = w.Version+1, w.Attempt, slices.Clone(w.Head)
	m.sets[set] = s
	return nil
}

// Put writes pages, see Store.
func (m *Memory) Put(_ context.Context, set string, begin int64, attempt uint64, pages []Page) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, begin)
	if s.attempt != attempt || attempt == 0 {
		return ErrRaced
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
func (m *Memory) Remove(_ context.Context, set string, begin int64, numbers []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set, begin)
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
