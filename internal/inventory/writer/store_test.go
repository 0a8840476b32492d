package writer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
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

// A sourceSet is a set to which a test publishes at random.
type sourceSet struct {
	name string
	held map[string]uint64 // position of the newest change of each resource
	head feed.Cursor
}

// publish publishes up to 2,000 changes.
func (s *sourceSet) publish(ctx context.Context, log changelog.Log, random *rand.Rand) error {
	changes := make([]resourcesync.Change, 1+random.IntN(2_000))
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: fmt.Sprint("http://example.org/", random.IntN(3_000)), Change: resourcesync.Updated}
		if random.IntN(4) == 0 {
			changes[i].Change = resourcesync.Deleted
		}
	}
	a, err := log.Append(ctx, s.name, changelog.Publish{Changes: changes})
	if err != nil {
		return err
	}
	for i, c := range changes {
		if delete(s.held, c.Loc); c.Change != resourcesync.Deleted {
			s.held[c.Loc] = a[0].After.Position + uint64(i) + 1
		}
	}
	s.head = a[0].Cursor
	return nil
}

// recreate deletes the set, if it exists, and creates it.
func (s *sourceSet) recreate(ctx context.Context, log changelog.Log) error {
	if s.held != nil {
		if err := log.Delete(ctx, s.name); err != nil {
			return err
		}
	}
	s.held = map[string]uint64{}
	return log.Make(ctx, s.name, feed.Description{}, 10_000)
}

// testStore publishes to some sets, deletes them and creates them again, while one hub for each of the claims
// runs. Each requested root must have the resources of the log.
func testStore(t *testing.T, log changelog.Log, store inventory.Store, claims ...claim.Store) {
	rounds := 60
	if testing.Short() {
		rounds = 30
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hubs []*Writer
	var wg sync.WaitGroup
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	for _, c := range claims {
		w := New(log, store, c, Options{Poll: 20 * time.Millisecond, PendingBytes: 1 << 20})
		hubs = append(hubs, w)
		wg.Go(func() { w.Run(ctx) })
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	sets := make([]*sourceSet, 5)
	for i := range sets {
		sets[i] = &sourceSet{name: fmt.Sprint("set-", i)}
		ok(sets[i].recreate(ctx, log))
	}
	commit := func(s *sourceSet) {
		t.Helper()
		v := inventory.New(store, s.name, inventory.Options{})
		var root inventory.Root
		testutil.Until(t, "everything is committed", func() bool {
			for _, w := range hubs {
				w.Request(s.name, false)
			}
			_, head, err := v.Load(ctx)
			ok(err)
			root = head.Newest()
			return root.Cursor == s.head
		})
		_, err := v.Pin(ctx, root.Upto, "reader", time.Minute)
		ok(err)
		n := 0
		for e, err := range v.Tree(root).Walk(ctx, inventory.Range{}) {
			ok(err)
			if n++; s.held[e.Change.Loc] != e.Position {
				t.Fatalf("set %q at %v: %s has position %d, want %d", s.name, root.Cursor, e.Change.Loc, e.Position, s.held[e.Change.Loc])
			}
		}
		if n != len(s.held) || root.Tally.Count != uint64(n) {
			t.Fatalf("set %q at %v: got %d resources, Tally.Count = %d, want %d", s.name, root.Cursor, n, root.Tally.Count, len(s.held))
		}
	}
	for range rounds {
		s := sets[random.IntN(len(sets))]
		if random.IntN(20) == 0 {
			ok(s.recreate(ctx, log))
		}
		ok(s.publish(ctx, log, random))
		if random.IntN(3) == 0 {
			commit(s)
		}
	}
	for _, s := range sets {
		if s.head.IsZero() || len(s.held) == 0 {
			ok(s.publish(ctx, log, random))
		}
		commit(s)
		ok(inventory.New(store, s.name, inventory.Options{}).SetComplete(ctx, s.head, ""))
		testutil.Until(t, "there is a Resource List", func() bool {
			for _, w := range hubs {
				w.Request(s.name, false)
			}
			_, head, err := inventory.New(store, s.name, inventory.Options{}).Load(ctx)
			ok(err)
			newest := head.Roots[len(head.Roots)-1]
			return newest.Listed > 0 && newest.Cursor == s.head
		})
	}
	stop()
	for _, s := range sets {
		ok(inventory.New(store, s.name, inventory.Options{}).Check(t.Context()))
	}
}
