package testutil

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Map is an ordered map of bytes in memory, with the methods of disklog.Keep. Its zero value is
// empty and ready to use. It is safe for concurrent use.
type Map struct {
	mu     sync.Mutex
	values map[string][]byte
}

// Get returns the value of a key, or nil if there is none.
func (m *Map) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[key], nil
}

// Scan calls do for the keys that start with prefix and are greater than after, in ascending order,
// until do returns false. It uses a snapshot of the map.
func (m *Map) Scan(_ context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	m.mu.Lock()
	kept := maps.Clone(m.values)
	m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if strings.HasPrefix(key, prefix) && key > after && !do(key, kept[key]) {
			break
		}
	}
	return nil
}

// Apply sets keys to values, and removes those whose value is nil.
func (m *Map) Apply(_ context.Context, writes map[string][]byte, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = make(map[string][]byte)
	}
	for key, v := range writes {
		if m.values[key] = v; v == nil {
			delete(m.values, key)
		}
	}
	return nil
}
