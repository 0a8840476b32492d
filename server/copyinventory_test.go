package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A maker makes a memory to copy.
type maker struct {
	*testing.T
	changelog.Log
	store inventory.Store
}

// openMemory opens the memory that c names, and makes it if there is none. The test closes it.
func openMemory(t *testing.T, c Config) *maker {
	t.Helper()
	if c.RedisURL == "" {
		memory, err := disklog.Open(filepath.Join(c.Data, storeDir), disklog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return &maker{t, memory, memory.Inventories()}
	}
	conn, err := redisconn.Open(c.RedisURL, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	memory, err := redislog.Open(t.Context(), conn, redislog.Options{Prefix: c.Prefix})
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

// same checks that a set has an inventory with a root and no other, and nothing that is
// damaged or nobody's.
func (m *maker) same(set string, want inventory.Root, complete feed.Cursor) {
	m.Helper()
	v := inventory.New(m.store, set, inventory.Options{})
	r, head, err := v.Load(m.Context())
	m.ok(err)
	if got := head.Newest(); got != want || len(head.Roots) > 1 || head.Complete != complete || r.Attempt != 0 {
		m.Errorf("the inventory of %s is %+v, attempt %d, want %+v, complete as of %v", set, head, r.Attempt, want, complete)
	}
	m.ok(v.Check(m.Context()))
	n := uint64(0)
	for _, err := range v.Tree(head.Newest()).Walk(m.Context(), inventory.Range{}) {
		m.ok(err)
		n++
	}
	if n != want.Tally.Count {
		m.Errorf("%s has %d resources, want %d", set, n, want.Tally.Count)
	}
}

// copyMemory copies the memory that from names, once.
func copyMemory(t *testing.T, from, to Config) (*InventoryCopy, error) {
	t.Helper()
	source, err := OpenSource(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := OpenTarget(t.Context(), to, source.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	c := NewInventoryCopy(source, target, slog.New(slog.DiscardHandler))
	_, err = changelog.Copy(t.Context(), source, target, c, nil)
	return c, err
}

// places are a memory on the disk and one in a Redis.
func places(t *testing.T) map[string]func() Config {
	url := "redis://" + redistest.Start(t).Addr
	n := 0
	return map[string]func() Config{
		"disk":  func() Config { return Config{Data: t.TempDir()} },
		"redis": func() Config { n++; return Config{RedisURL: url, Prefix: fmt.Sprint("p", n)} },
	}
}

// A copy has the newest root of each inventory, whichever store it is in and goes to, and
// the log goes on behind it. A memory without inventories can be copied, too.
func TestCopyInventories(t *testing.T) {
	t.Parallel()
	all := places(t)
	for from, old := range all {
		for to, anew := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				old, anew := old(), anew()
				m := openMemory(t, old)
				m.publish("many", 3_000)
				m.commit("many")
				m.publish("many", 500)
				many := m.commit("many")
				complete := m.publish("many", 20) // behind the root
				m.ok(inventory.New(m.store, "many", inventory.Options{}).SetComplete(t.Context(), complete, ""))
				m.publish("none", 5)
				m.publish("gone", 5)
				m.commit("gone")
				m.ok(m.Delete(t.Context(), "gone"))
				m.publish("gone", 3)
				one := m.publish("one", 1)
				m.commit("one")
				_, err := m.Append(t.Context(), "one", changelog.Publish{Changes: []resourcesync.Change{{Loc: "https://example.org/one/000000", Change: resourcesync.Deleted}}})
				m.ok(err)
				empty := m.commit("one")
				if one == empty.Cursor || empty.Page != 0 {
					t.Fatalf("the root of no resource is %+v", empty)
				}
				m.ok(m.Close())

				c, err := copyMemory(t, old, anew)
				if err != nil || c.Sets != 2 || c.Resources != many.Tally.Count {
					t.Fatalf("%d inventories of %d resources, %v", c.Sets, c.Resources, err)
				}
				m = openMemory(t, anew)
				m.same("many", many, complete)
				m.same("one", empty, feed.Cursor{})
				m.same("none", inventory.Root{}, feed.Cursor{})
				m.same("gone", inventory.Root{}, feed.Cursor{})
				m.publish("many", 3_100) // the copy goes on
				if root := m.commit("many"); root.Tally.Count != 3_100 || root.Upto <= many.Upto {
					t.Errorf("the next root is %+v", root)
				}
				m.ok(inventory.New(m.store, "many", inventory.Options{}).Check(t.Context()))
				m.ok(m.Close())
				if from == "disk" {
					m = openMemory(t, old) // nobody holds on to its root any more
					_, head, err := inventory.New(m.store, "many", inventory.Options{}).Load(t.Context())
					m.ok(err)
					for _, k := range head.Roots {
						if len(k.Pins) > 0 {
							t.Errorf("the root %d has pins", k.Upto)
						}
					}
					m.ok(m.Close())
				}
			})
		}
	}
}

var errStops = errors.New("stopped in a test")

// A stopping store does some steps and no more.
type stopping struct {
	inventory.Store
	left int
}

func (s *stopping) step(do func() error) error {
	if s.left--; s.left < 0 {
		return errStops
	}
	return do()
}

func (s *stopping) Swap(ctx context.Context, set string, w inventory.Swap) error {
	return s.step(func() error { return s.Store.Swap(ctx, set, w) })
}

func (s *stopping) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	return s.step(func() error { return s.Store.Put(ctx, set, begin, attempt, pages) })
}

// A copy that was interrupted, between any two steps, begins with the inventories anew.
func TestCopyInventoriesAgain(t *testing.T) {
	t.Parallel()
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			old := Config{Data: t.TempDir()}
			m := openMemory(t, old)
			m.publish("set", 1_000)
			m.commit("set")
			m.ok(m.Close())
			for steps := 0; ; steps++ {
				anew := place()
				source, err := OpenSource(t.Context(), old)
				if err != nil {
					t.Fatal(err)
				}
				target, err := OpenTarget(t.Context(), anew, source.ID())
				if err != nil {
					t.Fatal(err)
				}
				c := NewInventoryCopy(source, target, slog.New(slog.DiscardHandler))
				stops := &stopping{Store: c.to, left: steps}
				c.to = stops
				_, err = changelog.Copy(t.Context(), source, target, c, nil)
				_, _ = target.Close(), source.Close()
				if err == nil {
					if steps != 3 {
						t.Errorf("it has %d steps", steps)
					}
					return
				}
				if !errors.Is(err, errStops) {
					t.Fatal(err)
				}
				m := openMemory(t, old)
				m.publish("set", 1_500+steps) // the next run copies another root
				root := m.commit("set")
				m.ok(m.Close())
				if _, err := copyMemory(t, old, anew); err != nil {
					t.Fatal(err)
				}
				m = openMemory(t, anew)
				m.same("set", root, feed.Cursor{})
				m.ok(m.Close())
			}
		})
	}
}

// An inventory that is damaged is left out, and nothing of it is left in the copy.
func TestCopyDamagedInventory(t *testing.T) {
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			old, anew := Config{Data: t.TempDir()}, place()
			m := openMemory(t, old)
			m.publish("set", 1_000)
			root := m.commit("set")
			m.ok(m.store.Remove(t.Context(), "set", root.Begin, []uint64{root.Page - 1}))
			m.ok(m.Close())
			source, err := OpenSource(t.Context(), old)
			m.ok(err)
			target, err := OpenTarget(t.Context(), anew, source.ID())
			m.ok(err)
			var log logged.Log
			c := NewInventoryCopy(source, target, slog.New(slog.NewTextHandler(&log, nil)))
			if _, err := changelog.Copy(t.Context(), source, target, c, nil); err != nil || c.Sets != 0 {
				t.Errorf("%d inventories, %v", c.Sets, err)
			}
			if text := log.String(); text == "" {
				t.Error("nobody is told")
			}
			m.ok(errors.Join(target.Close(), source.Close()))
			m = openMemory(t, anew)
			m.same("set", inventory.Root{}, feed.Cursor{})
			for n := range m.store.Numbers(t.Context(), "set", root.Begin) {
				t.Errorf("the page %d is left", n)
			}
			m.commit("set")
			m.ok(m.Close())
		})
	}
}
