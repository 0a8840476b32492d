package inventory

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
)

// A Log is what a Memory needs of the logs. Every changelog.Log is one.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Memory is a Store in memory: for tests, and for the inventory that a destination keeps
// of its own resources. Nothing in it survives the process.
type Memory struct {
	log Log

	mu   sync.Mutex
	sets map[string]*memorySet
}

// A memorySet is what a Memory keeps of a set, for the log that began at begin.
type memorySet struct {
	begin   int64
	version uint64
	attempt uint64
	head    []byte
	pages   map[uint64][]byte
}

// NewMemory returns an empty Memory beside a log. Without a log (nil) every set exists,
// its log began at 0, and it holds every cursor.
func NewMemory(log Log) *Memory { return &Memory{log: log, sets: map[string]*memorySet{}} }

// Load returns the record of a set, see Store.
func (m *Memory) Load(ctx context.Context, set string) (Record, error) {
	r := Record{Log: feed.State{Set: set}, Now: time.Now().UnixMicro()}
	if m.log != nil {
		state, err := m.log.State(ctx, set)
		if err != nil {
			return Record{}, err
		}
		r.Log = state
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.of(set, r.Log.Begin); s != nil {
		r.Version, r.Attempt, r.Head = s.version, s.attempt, slices.Clone(s.head)
	}
	return r, nil
}

// of returns the memorySet of a set, for the log that began at begin; nil if
// there is none.
func (m *Memory) of(set string, begin int64) *memorySet {
	if s := m.sets[set]; s != nil && s.begin == begin {
		return s
	}
	return nil
}

// Swap replaces the record of a set, see Store.
func (m *Memory) Swap(ctx context.Context, set string, w Swap) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.holds(ctx, set, w); err != nil {
		return err
	}
	s := m.of(set, w.Begin)
	if s == nil {
		s = &memorySet{begin: w.Begin, pages: map[uint64][]byte{}}
	}
	if s.version != w.Version {
		return ErrRaced
	}
	s.version, s.attempt, s.head = w.Version+1, w.Attempt, slices.Clone(w.Head)
	m.sets[set] = s
	return nil
}

// holds returns ErrLog unless the set's log is the one that the swap names, and
// holds its cursor.
func (m *Memory) holds(ctx context.Context, set string, w Swap) error {
	if m.log == nil {
		return nil
	}
	state, err := m.log.State(ctx, set)
	if err != nil {
		return err
	}
	if state.Begin != w.Begin {
		return ErrLog
	}
	if w.At.IsZero() || w.At == state.Floor {
		return nil
	}
	if w.At.Position <= state.Floor.Position || w.At.Position > state.Head.Position {
		return ErrLog
	}
	at, err := m.log.At(ctx, set, w.At.Position)
	if errors.Is(err, feed.ErrGone) || err == nil && at != w.At {
		return ErrLog
	}
	return err
}

// current is of, if the set's log is still the one that began at begin.
func (m *Memory) current(ctx context.Context, set string, begin int64) *memorySet {
	if m.log != nil {
		if state, err := m.log.State(ctx, set); err != nil || state.Begin != begin {
			return nil
		}
	}
	return m.of(set, begin)
}

// Put writes pages, see Store.
func (m *Memory) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []Page) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.current(ctx, set, begin)
	if s == nil || s.attempt != attempt || attempt == 0 {
		return ErrRaced
	}
	for _, p := range pages {
		s.pages[p.Number] = slices.Clone(p.Bytes)
	}
	return nil
}

// Get returns the bytes of pages, see Store.
func (m *Memory) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pages := make([][]byte, len(numbers))
	if s := m.current(ctx, set, begin); s != nil {
		for i, n := range numbers {
			pages[i] = s.pages[n]
		}
	}
	return pages, nil
}

// Remove removes pages, see Store.
func (m *Memory) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.current(ctx, set, begin); s != nil {
		for _, n := range numbers {
			delete(s.pages, n)
		}
	}
	return nil
}

// Numbers yields the numbers of the pages of a set, see Store.
func (m *Memory) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	var numbers []uint64
	if s := m.current(ctx, set, begin); s != nil {
		for n := range s.pages {
			numbers = append(numbers, n)
		}
	}
	return func(yield func(uint64, error) bool) {
		for _, n := range numbers {
			if !yield(n, nil) {
				return
			}
		}
	}
}
