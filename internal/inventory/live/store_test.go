package live

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
	together(t, log, log.Inventories(), claims)
}

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
	together(t, log, log.Inventories(), open(), open())
}

// together publishes at random to some sets, removes and makes sets anew, and reads from
// all hubs meanwhile. Every state is what the log says.
func together(t *testing.T, log changelog.Log, store inventory.Store, claims ...claim.Store) {
	const sets, keys = 5, 3_000
	rounds := 60
	if testing.Short() {
		rounds = 30
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hubs []*Live
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for _, c := range claims {
		l := New(log, store, c, Options{Poll: 20 * time.Millisecond, WaitBytes: 1 << 20})
		hubs = append(hubs, l)
		wg.Go(func() { l.Run(ctx) })
	}
	r := rand.New(rand.NewPCG(5, 6))
	held := make([]map[string]uint64, sets)
	name := func(i int) string { return fmt.Sprint("set-", i) }
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range sets {
		ok(log.Make(ctx, name(i), feed.Description{}, 10_000))
		held[i] = map[string]uint64{}
	}
	check := func(i int, h *inventory.Pinned, err error) {
		t.Helper()
		ok(err)
		defer h.Release()
		n := 0
		for e, err := range h.Walk(ctx, inventory.Range{}) {
			ok(err)
			if n++; held[i][e.Change.Loc] != e.Position {
				t.Fatalf("%s at %v: %s is at %d, want %d", name(i), h.Cursor(), e.Change.Loc, e.Position, held[i][e.Change.Loc])
			}
		}
		tally, err := h.Tally(ctx, inventory.Range{})
		ok(err)
		if n != len(held[i]) || tally.Count != uint64(n) {
			t.Fatalf("%s at %v: %d resources, a tally of %d, want %d", name(i), h.Cursor(), n, tally.Count, len(held[i]))
		}
	}
	for range rounds {
		i := r.IntN(sets)
		if r.IntN(20) == 0 {
			ok(log.Delete(ctx, name(i)))
			ok(log.Make(ctx, name(i), feed.Description{}, 10_000))
			held[i] = map[string]uint64{}
		}
		changes := make([]resourcesync.Change, 1+r.IntN(2_000))
		for k := range changes {
			changes[k] = resourcesync.Change{Loc: fmt.Sprint("http://example.org/", r.IntN(keys)), Change: resourcesync.Updated}
			if r.IntN(4) == 0 {
				changes[k].Change = resourcesync.Deleted
			}
		}
		a, err := log.Append(ctx, name(i), changelog.Publish{Changes: changes})
		ok(err)
		for k, c := range changes {
			if delete(held[i], c.Loc); c.Change != resourcesync.Deleted {
				held[i][c.Loc] = a[0].After.Position + uint64(k) + 1
			}
		}
		for _, l := range hubs {
			h, err := l.State(ctx, name(i), a[0].Cursor, time.Minute)
			check(i, h, err)
			h, err = l.At(ctx, name(i), a[0].Cursor)
			check(i, h, err)
		}
	}
	for i := range sets {
		v := inventory.New(store, name(i), inventory.Options{})
		hubs[i%len(hubs)].maker.ask(name(i), false)
		s, err := log.State(ctx, name(i))
		ok(err)
		testutil.Until(t, "everything is committed", func() bool {
			_, head, err := v.Load(ctx)
			ok(err)
			return head.Newest().Cursor == s.Head
		})
		for _, l := range hubs {
			ok(l.Complete(ctx, name(i), true))
			testutil.Until(t, "there is a Resource List", func() bool {
				list, err := l.ResourceList(ctx, name(i), feed.Cursor{})
				if err == nil {
					check(i, list.Pinned, nil)
				}
				return err == nil
			})
			h, err := l.Baseline(ctx, name(i))
			ok(err)
			h.Release()
		}
	}
	cancel()
	wg.Wait()
	for i := range sets {
		ok(inventory.New(store, name(i), inventory.Options{}).Check(t.Context()))
	}
}
