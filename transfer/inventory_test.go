package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A location is where a memory is: in a directory, or in a Redis.
type location struct{ dir, url, prefix string }

func (l location) source(t *testing.T) *Source {
	t.Helper()
	m := openMemory(t, l)
	return &Source{Exporter: m.Log.(changelog.Exporter), Beside: Beside{Inventories: m.store}}
}

// target opens what is to become a copy of the memory with an identity.
func (l location) target(t *testing.T, id string) *Target {
	t.Helper()
	if l.url == "" {
		memory, err := disklog.OpenImport(l.dir, id, disklog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return &Target{Importer: memory, Beside: Beside{Inventories: memory.Inventories()}}
	}
	conn := connect(t, l.url)
	memory, err := redislog.OpenImport(t.Context(), conn, id, redislog.Options{Prefix: l.prefix})
	if err != nil {
		t.Fatal(err)
	}
	return &Target{Importer: memory, Beside: Beside{Inventories: memory.Inventories(), Conn: conn}}
}

func connect(t *testing.T, url string) *redisconn.Conn {
	t.Helper()
	conn, err := redisconn.Open(url, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A maker makes a memory to copy.
type maker struct {
	*testing.T
	changelog.Log
	store inventory.Store
}

// openMemory opens the memory that c names, and makes it if there is none. The test closes it.
func openMemory(t *testing.T, c location) *maker {
	t.Helper()
	if c.url == "" {
		memory, err := disklog.Open(c.dir, disklog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return &maker{t, memory, memory.Inventories()}
	}
	memory, err := redislog.Open(t.Context(), connect(t, c.url), redislog.Options{Prefix: c.prefix})
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
	return memorytest.Inventory(m.T, m.Log, m.store, set)
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
func copyMemory(t *testing.T, from, to location) (*inventoryCopy, error) {
	t.Helper()
	source := from.source(t)
	defer source.Close()
	target := to.target(t, source.ID())
	defer target.Close()
	c := newInventoryCopy(source.Beside.Inventories, target.Beside.Inventories, slog.New(slog.DiscardHandler))
	_, err := changelog.Copy(t.Context(), source, target, c, nil)
	return c, err
}

// places are a memory on the disk and one in a Redis.
func places(t *testing.T) map[string]func() location {
	url := "redis://" + redistest.Start(t).Addr
	n := 0
	return map[string]func() location{
		"disk":  func() location { return location{dir: t.TempDir()} },
		"redis": func() location { n++; return location{url: url, prefix: fmt.Sprint("p", n)} },
	}
}

// A copy has the newest root of each inventory, whichever store it is in and goes to, and
// the log goes on behind it. A memory without inventories can be copied, too.
func TestCopyInventories(t *testing.T) {
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
				if err != nil || c.sets != 2 || c.resources != many.Tally.Count {
					t.Fatalf("%d inventories of %d resources, %v", c.sets, c.resources, err)
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
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			old := location{dir: t.TempDir()}
			m := openMemory(t, old)
			m.publish("set", 1_000)
			m.commit("set")
			m.ok(m.Close())
			for steps := 0; ; steps++ {
				anew := place()
				source := old.source(t)
				target := anew.target(t, source.ID())
				c := newInventoryCopy(source.Beside.Inventories, target.Beside.Inventories, slog.New(slog.DiscardHandler))
				stops := &stopping{Store: c.to, left: steps}
				c.to = stops
				_, err := changelog.Copy(t.Context(), source, target, c, nil)
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
			old, anew := location{dir: t.TempDir()}, place()
			m := openMemory(t, old)
			m.publish("set", 1_000)
			root := m.commit("set")
			m.ok(m.store.Remove(t.Context(), "set", root.Begin, []uint64{root.Page - 1}))
			m.ok(m.Close())
			source := old.source(t)
			target := anew.target(t, source.ID())
			var log logged.Log
			c := newInventoryCopy(source.Beside.Inventories, target.Beside.Inventories, slog.New(slog.NewTextHandler(&log, nil)))
			if _, err := changelog.Copy(t.Context(), source, target, c, nil); err != nil || c.sets != 0 {
				t.Errorf("%d inventories, %v", c.sets, err)
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
