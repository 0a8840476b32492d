package server

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A maker makes a memory with inventories.
type maker struct {
	*testing.T
	changelog.Log
	store inventory.Store
}

// openMemory makes the memory that c names. The test closes it.
func openMemory(t *testing.T, c Config) *maker {
	t.Helper()
	memory, err := disklog.Open(filepath.Join(c.Data, storeDir), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &maker{t, memory, memory.Inventories()}
}

func (m *maker) ok(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// publish makes a set if there is none, and publishes n resources.
func (m *maker) publish(set string, n int) feed.Cursor {
	m.Helper()
	m.ok(m.Make(m.Context(), set, feed.Description{}, 100))
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%06d", set, i), Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x", i)}
	}
	a, err := m.Append(m.Context(), set, changelog.Publish{Changes: changes})
	m.ok(err)
	return a[0].Cursor
}

// commit makes an inventory of a set up to its head.
func (m *maker) commit(set string) inventory.Root {
	m.Helper()
	v := inventory.New(m.store, set, inventory.Options{})
	state, err := m.State(m.Context(), set)
	m.ok(err)
	_, head, err := v.Load(m.Context())
	m.ok(err)
	newest := make(map[string]feed.Entry)
	for c := head.Newest().Cursor; c != state.Head; {
		b, err := m.Since(m.Context(), set, c, 0)
		m.ok(err)
		for _, e := range b.Entries {
			newest[e.Change.Loc] = e
		}
		c = b.Cursor
	}
	root, err := v.Commit(m.Context(), inventory.Changes{Base: head.Newest(), To: state.Head, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[loc]; !yield(&e) {
				return
			}
		}
	}})
	m.ok(err)
	return root
}
