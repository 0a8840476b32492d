package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A MemoryLog is a change memory without its store. It is a Log for tests, and it can lose entries as
// retention and failovers do.
type MemoryLog struct {
	mu    sync.Mutex
	sets  map[string]*memorySet
	last  int64 // newest datetime of an entry or a set, in microseconds
	reads int
}

// A memorySet is the log of a set in a MemoryLog.
type memorySet struct {
	state   feed.State
	entries []feed.Entry // entries after the floor
}

// NewMemoryLog returns a MemoryLog without sets.
func NewMemoryLog() *MemoryLog { return &MemoryLog{sets: map[string]*memorySet{}} }

// now returns the time in microseconds. It is later than the newest entry and the newest set.
func (m *MemoryLog) now() int64 {
	m.last = max(m.last+1, time.Now().UnixMicro())
	return m.last
}

// Make creates a set unless it exists.
func (m *MemoryLog) Make(_ context.Context, set string, _ feed.Description, listSize int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets[set] == nil {
		floor := feed.Cursor{Micros: m.now()}
		m.sets[set] = &memorySet{state: feed.State{Set: set, ListSize: listSize, Begin: floor.Micros, Floor: floor, Head: floor, BeforeLatest: floor}}
	}
	return nil
}

// Create creates a set unless it exists.
func (m *MemoryLog) Create(set string) {
	_ = m.Make(context.Background(), set, feed.Description{}, 1000)
}

// Delete deletes a set.
func (m *MemoryLog) Delete(_ context.Context, set string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, set)
	return nil
}

// Append appends changes to the log of a set.
func (m *MemoryLog) Append(_ context.Context, set string, publishes ...changelog.Publish) (all []changelog.Appended, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	if s == nil {
		return nil, feed.ErrNoSet
	}
	for _, p := range publishes {
		a := changelog.Appended{After: s.state.Head, Count: len(p.Changes)}
		first := m.now()
		for i, c := range p.Changes {
			m.last = first + int64(i)
			s.state.Head = feed.Cursor{Position: s.state.Head.Position + 1, Micros: m.last}
			s.entries = append(s.entries, feed.Entry{Cursor: s.state.Head, Change: c})
		}
		a.Cursor = s.state.Head
		all = append(all, a)
	}
	return all, nil
}

// Publish appends changes to the log of a set that exists: "+a" updates the resource
// http://example.org/a, and "-a" deletes it. It returns the cursor of the newest entry.
func (m *MemoryLog) Publish(set string, changes ...string) feed.Cursor {
	s, err := m.State(context.Background(), set)
	p := changelog.Publish{}
	for i, text := range changes {
		c := resourcesync.Change{Loc: "http://example.org/" + text[1:], Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x", s.Head.Position+uint64(i))}
		if text[0] == '-' {
			c.Change = resourcesync.Deleted
		}
		p.Changes = append(p.Changes, c)
	}
	var all []changelog.Appended
	if err == nil {
		all, err = m.Append(context.Background(), set, p)
	}
	if err != nil {
		panic(err)
	}
	return all[0].Cursor
}

// Trim removes the entries up to a position, as retention does.
func (m *MemoryLog) Trim(set string, to uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	for len(s.entries) > 0 && s.entries[0].Position <= to {
		s.state.Floor = s.entries[0].Cursor
		s.entries = s.entries[1:]
	}
}

// Lose removes the entries after a position, as a failover does.
func (m *MemoryLog) Lose(set string, after uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	s.entries = slices.Clone(s.entries[:after-s.state.Floor.Position])
	s.state.Head = s.state.Floor
	if n := len(s.entries); n > 0 {
		s.state.Head = s.entries[n-1].Cursor
	}
}

// SetNoInventory turns the inventory of a set off or on.
func (m *MemoryLog) SetNoInventory(set string, off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets[set].state.NoInventory = off
}

// Resources returns the resources that exist after the entries up to a position, with the position of
// the newest change of each. It knows only entries that the log still has.
func (m *MemoryLog) Resources(set string, to uint64) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	resources := map[string]uint64{}
	for _, e := range m.sets[set].entries {
		if e.Position > to {
			break
		}
		if delete(resources, e.Change.Loc); e.Change.Change != resourcesync.Deleted {
			resources[e.Change.Loc] = e.Position
		}
	}
	return resources
}

// Reads returns how often Since was called.
func (m *MemoryLog) Reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

// State returns the state of a set.
func (m *MemoryLog) State(_ context.Context, set string) (feed.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sets[set]; s != nil {
		return s.state, nil
	}
	return feed.State{}, feed.ErrNoSet
}

// Sets returns the states of the named sets that exist, or of all sets, by name.
func (m *MemoryLog) Sets(_ context.Context, names ...string) (states []feed.State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, set := range slices.Sorted(maps.Keys(m.sets)) {
		if len(names) == 0 || slices.Contains(names, set) {
			states = append(states, m.sets[set].state)
		}
	}
	return states, nil
}

// At returns the cursor at a position.
func (m *MemoryLog) At(_ context.Context, set string, position uint64) (feed.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	switch {
	case s == nil:
		return feed.Cursor{}, feed.ErrNoSet
	case position < s.state.Floor.Position:
		return feed.Cursor{}, feed.ErrGone
	case position > s.state.Head.Position:
		return feed.Cursor{}, resourcesync.Invalidf("no position %d", position)
	}
	return s.at(position), nil
}

// at returns the cursor at a position that the log has.
func (s *memorySet) at(position uint64) feed.Cursor {
	if position == s.state.Floor.Position {
		return s.state.Floor
	}
	return s.entries[position-s.state.Floor.Position-1].Cursor
}

// Since returns entries after a cursor, at most limit.
func (m *MemoryLog) Since(_ context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	s := m.sets[set]
	if s == nil {
		return nil, feed.ErrGone
	}
	floor := s.state.Floor
	b := &feed.Batch{Set: set, After: after}
	switch {
	case after.IsZero() && floor.Position == 0:
		after = floor
	case after.Position >= floor.Position && after.Position <= s.state.Head.Position && s.at(after.Position) == after:
	case after.Micros < floor.Micros:
		return nil, feed.ErrGone
	default:
		b.Diverged, b.After = true, floor
		for _, e := range s.entries {
			if e.Position < after.Position && e.Micros <= after.Micros-time.Minute.Microseconds() {
				b.After = e.Cursor
			}
		}
		after = b.After
	}
	b.Cursor = b.After
	if rest := s.entries[after.Position-floor.Position:]; len(rest) > 0 {
		b.Entries = slices.Clone(rest[:min(len(rest), limit)])
		b.Cursor = b.Entries[len(b.Entries)-1].Cursor
	}
	return b, nil
}
