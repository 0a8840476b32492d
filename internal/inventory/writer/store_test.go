package writer

import (
	"context"
	"fmt"
	"math/rand/v2"
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
// runs. Each requested root must have the resources of the log. If there are several hubs, they share the sets, and one
// takes over the sets of another that stops.
func testStore(t *testing.T, log changelog.Log, store inventory.Store, claims ...claim.Store) {
	rounds := 60
	if testing.Short() {
		rounds = 30
	}
	var hubs []*hub
	for _, c := range claims {
		hubs = append(hubs, start(t, New(log, store, c, Options{Poll: 20 * time.Millisecond, PendingBytes: 1 << 20})))
	}
	ctx := t.Context()
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
	// request requests the next root until it suffices.
	request := func(s *sourceSet, what string, suffices func(inventory.Kept) bool) inventory.Root {
		t.Helper()
		var newest inventory.Kept
		testutil.Until(t, what, func() bool {
			for _, w := range hubs {
				w.Request(s.name, false)
			}
			_, head, err := inventory.New(store, s.name, inventory.Options{}).Load(ctx)
			if ok(err); len(head.Roots) > 0 {
				newest = head.Roots[len(head.Roots)-1]
			}
			return newest.Cursor == s.head && suffices(newest)
		})
		return newest.Root
	}
	commit := func(s *sourceSet) {
		t.Helper()
		v := inventory.New(store, s.name, inventory.Options{})
		root := request(s, "everything is committed", func(inventory.Kept) bool { return true })
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
	owners := func(s *sourceSet) (n int) {
		for _, w := range hubs {
			if w.Owns(s.name) {
				n++
			}
		}
		return n
	}
	for i := range hubs {
		for _, s := range sets {
			ok(s.publish(ctx, log, random))
			commit(s)
			testutil.Until(t, "one hub owns the set", func() bool { return owners(s) == 1 })
		}
		if i == len(hubs)-1 {
			break
		}
		own := 0
		for n := range 1_000 {
			if hubs[i].Owns(fmt.Sprint("set-", n)) {
				own++
			}
		}
		if own == 0 || own == 1_000 {
			t.Errorf("hub %d owns %d of 1,000 sets, want some", i, own)
		}
		hubs[i].stop()
	}
	for _, s := range sets {
		ok(inventory.New(store, s.name, inventory.Options{}).SetComplete(ctx, s.head, ""))
		request(s, "there is a Resource List", func(k inventory.Kept) bool { return k.Listed > 0 })
	}
	hubs[len(hubs)-1].stop()
	for _, s := range sets {
		ok(inventory.New(store, s.name, inventory.Options{}).Check(ctx))
	}
}
