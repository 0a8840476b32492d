package writer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/resourcesync"
)

func TestDisk(t *testing.T) {
	t.Parallel()
	log := memorytest.Open(t)
	claims, err := claim.OpenLocal(t.Context(), &testutil.Map{}, Shards)
	if err != nil {
		t.Fatal(err)
	}
	testStore(t, log, log.Inventories(), claims)
}

// TestRedis runs two hubs.
func TestRedis(t *testing.T) {
	t.Parallel()
	conn := conntest.Open(t, redistest.Start(t).Addr, redisconn.Options{})
	log, err := redislog.Open(t.Context(), conn, redislog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	open := func() claim.Store {
		return claim.NewRedis(conn, "rshub", Kind, claim.RedisOptions{ClaimFor: time.Second, LiveFor: time.Second, Hubs: "inventory-hubs"})
	}
	testStore(t, log, log.Inventories(), open(), open())
}

// A sourceSet is a set to which a test publishes.
type sourceSet struct {
	name string
	held sourcetest.Set
	head feed.Cursor
}

// A storeTest is a log with several hubs.
type storeTest struct {
	*testing.T
	log   changelog.Log
	store inventory.Store
	hubs  []*hub
	src   *sourcetest.Source
}

func (s *storeTest) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// recreate deletes a set, if it exists, and creates it.
func (s *storeTest) recreate(set *sourceSet) {
	if set.held != nil {
		s.ok(s.log.Delete(s.Context(), set.name))
	}
	set.held = sourcetest.Set{}
	s.ok(s.log.Make(s.Context(), set.name, feed.Description{}, 10_000))
}

// publish publishes up to 2,000 changes.
func (s *storeTest) publish(set *sourceSet) {
	var changes []resourcesync.Change
	for range 1 + s.src.IntN(2_000) {
		changes = append(changes, s.src.Next().Change)
	}
	a, err := s.log.Append(s.Context(), set.name, changelog.Publish{Changes: changes})
	s.ok(err)
	for _, e := range feed.NewBatch(set.name, a[0].After, a[0].Cursor, changes).Entries {
		set.held.Add(e)
	}
	set.head = a[0].Cursor
}

// request requests roots until the newest one is at the head of the log and suffices.
func (s *storeTest) request(set *sourceSet, suffices func(inventory.Kept) bool) (newest inventory.Root) {
	s.Helper()
	testutil.Until(s, "the hubs have committed everything", func() bool {
		for _, h := range s.hubs {
			h.Request(set.name, false)
		}
		_, head, err := inventory.New(s.store, set.name, inventory.Options{}).Load(s.Context())
		s.ok(err)
		newest = head.Newest()
		return newest.Cursor == set.head && suffices(head.Roots[len(head.Roots)-1])
	})
	return newest
}

// commit requests a root, and checks that it has the resources of the log.
func (s *storeTest) commit(set *sourceSet) {
	s.Helper()
	root := s.request(set, func(inventory.Kept) bool { return true })
	v := inventory.New(s.store, set.name, inventory.Options{})
	_, err := v.Pin(s.Context(), root.Upto, "reader", time.Minute)
	s.ok(err)
	n := 0
	for e, err := range v.Tree(root).Walk(s.Context(), inventory.Range{}) {
		s.ok(err)
		if n++; set.held[e.Change.Loc].Position != e.Position {
			s.Fatalf("set %q at %v: %s has position %d, want %d", set.name, root.Cursor, e.Change.Loc, e.Position, set.held[e.Change.Loc].Position)
		}
	}
	if n != len(set.held) || root.Tally.Count != uint64(n) {
		s.Fatalf("set %q at %v: got %d resources, Tally.Count = %d, want %d", set.name, root.Cursor, n, root.Tally.Count, len(set.held))
	}
}

// testStore publishes to some sets, deletes them and creates them again, while one hub for each of the claims
// runs. Each requested root must have the resources of the log. If there are several hubs, they share the sets, and one
// takes over the sets of another that stops.
func testStore(t *testing.T, log changelog.Log, store inventory.Store, claims ...claim.Store) {
	s := &storeTest{T: t, log: log, store: store, src: sourcetest.New(5, 3_000)}
	for _, c := range claims {
		s.hubs = append(s.hubs, start(t, New(log, store, c, Options{Poll: 20 * time.Millisecond, PendingBytes: 1 << 20})))
	}
	sets := make([]*sourceSet, 5)
	for i := range sets {
		sets[i] = &sourceSet{name: fmt.Sprint("set-", i)}
		s.recreate(sets[i])
	}
	for i := range 40 {
		if testing.Short() && i == 15 {
			break
		}
		set := sets[s.src.IntN(len(sets))]
		if s.src.IntN(20) == 0 {
			s.recreate(set)
		}
		if s.publish(set); s.src.IntN(3) == 0 {
			s.commit(set)
		}
	}
	for i, h := range s.hubs {
		for _, set := range sets {
			s.publish(set)
			s.commit(set)
			testutil.Until(t, "one hub owns the set", func() bool {
				owners := slices.DeleteFunc(slices.Clone(s.hubs), func(h *hub) bool { return !h.Owns(set.name) })
				return len(owners) == 1
			})
		}
		if i == len(s.hubs)-1 {
			break
		}
		own := 0
		for n := range 1_000 {
			if h.Owns(fmt.Sprint("set-", n)) {
				own++
			}
		}
		if own == 0 || own == 1_000 {
			t.Errorf("hub %d owns %d of 1,000 sets, want some", i, own)
		}
		h.stop()
	}
	for _, set := range sets {
		v := inventory.New(store, set.name, inventory.Options{})
		s.ok(v.SetComplete(t.Context(), set.head, ""))
		s.request(set, func(k inventory.Kept) bool { return k.Listed > 0 })
		s.ok(v.Check(t.Context()))
	}
}
