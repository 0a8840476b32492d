package testutil

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Map is an ordered map of bytes, like a disklog.Keep, that keeps all in
// memory. Its zero value is empty, and its methods may be called concurrently.
type Map struct {
	mu   sync.Mutex
	kept map[string][]byte
}

// Get returns the value of a key, nil when there is none.
func (m *Map) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key], nil
}

// Scan calls do with the keys that begin with prefix and are greater than after,
// in ascending order, until do returns false. It sees the map as it is at the call.
func (m *Map) Scan(_ context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	m.mu.Lock()
	kept := maps.Clone(m.kept)
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
	if m.kept == nil {
		m.kept = make(map[string][]byte)
	}
	for key, v := range writes {
		if m.kept[key] = v; v == nil {
			delete(m.kept, key)
		}
	}
	return nil
}
