package inventory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// The resources that no stream touches: some exist, and some were deleted.
const (
	steady = "steady"
	dead   = "dead"
)

// faults are ten faults of a destination: what it holds instead, and how an audit names
// each.
func faults(r *rand.Rand, n int) (planted []feed.Entry, names map[string]client.DifferenceKind) {
	names = map[string]client.DifferenceKind{}
	plant := func(most int, kind client.DifferenceKind, change func() resourcesync.Change) {
		for len(names) < most {
			c := change()
			if names[c.Loc] == "" {
				names[c.Loc] = kind
				planted = append(planted, feed.Entry{Cursor: feed.Cursor{Position: 1, Micros: 1}, Change: c})
			}
		}
	}
	plant(3, client.Missing, func() resourcesync.Change { return deleted(locOf(steady, r.IntN(n))) })
	plant(6, client.Stale, func() resourcesync.Change { return resource(locOf(steady, r.IntN(n)), 1<<60) })
	plant(8, client.Extra, func() resourcesync.Change { return resource(locOf("never", r.IntN(n)), 1) })
	plant(10, client.Extra, func() resourcesync.Change { return resource(locOf(dead, r.IntN(50)), 1) }) // deletions that were not applied
	slices.SortFunc(planted, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	return planted, names
}

// try returns what an audit finds, for who is not the goroutine of a test.
func try(found func(func(client.Difference, error) bool)) (map[string]client.DifferenceKind, error) {
	all := map[string]client.DifferenceKind{}
	for d, err := range found {
		if err != nil {
			return all, err
		}
		if all[d.Loc] != "" {
			return all, fmt.Errorf("%s is named twice", d.Loc)
		}
		all[d.Loc] = d.Kind
	}
	return all, nil
}

// names checks that an audit names the faults and nothing else.
func names(t *testing.T, who string, found func(func(client.Difference, error) bool), want map[string]client.DifferenceKind) {
	t.Helper()
	if got, err := try(found); err != nil || !maps.Equal(got, want) {
		t.Fatalf("%s: an audit names %v, not %v: %v", who, got, want, err)
	}
}

// TestFaults plants ten faults in destinations. Each audit names them and nothing else:
// while nothing happens, and while thousands of changes arrive through two hubs.
func TestFaults(t *testing.T) {
	t.Run("a hub on disk", func(t *testing.T) {
		t.Parallel()
		plantFaults(t, 2_000, hubtest.StartHub(t))
	})
	t.Run("two hubs on Redis", func(t *testing.T) {
		t.Parallel()
		plantFaults(t, 20_000, hubtest.StartCluster(t, 2).Hubs...)
	})
}

func plantFaults(t *testing.T, changes int, hubs ...*hubtest.Hub) {
	const n = 3_000
	r := hubtest.Random(t)
	s := newStream("faulty")
	s.publish(t, hubs[0], slices.Concat(resources(steady, n), resources(dead, 50)))
	for i := range 50 {
		s.publish(t, hubs[0], []resourcesync.Change{deleted(locOf(dead, i))})
	}
	s.complete(t, hubs[0])
	s.truth = s.at(t, s.newest().Position)
	planted, want := faults(r, n)

	// A replica with the faults, which goes on to follow.
	c := newClient(t, hubs[len(hubs)-1])
	store := memory{inventory.NewMemory()}
	if err := catchUp(t.Context(), open(t, c, s.set, store)); err != nil {
		t.Fatal(err)
	}
	plantIn(t, store, s.set, planted)
	replica := open(t, c, s.set, store)
	// What never saw the log: the truth of the source, with the faults.
	own := func(yield func(*feed.Entry, error) bool) {
		s.mu.Lock()
		held := maps.Clone(s.truth)
		s.mu.Unlock()
		for _, e := range planted {
			held.Add(e)
		}
		for _, e := range held {
			if !yield(&e, nil) {
				return
			}
		}
	}
	settled, err := client.New(hubs[0].URL, client.Options{HTTP: hubtest.Client}) // waits as long as it says
	if err != nil {
		t.Fatal(err)
	}
	names(t, "the list", settled.Audit(t.Context(), s.set, own, client.AuditOptions{}), want)

	done := s.run(t, r.Uint64(), changes, hubs)
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() {
		for _, err := range replica.Follow(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	beside.Go(func() {
		for ctx.Err() == nil {
			got, err := try(settled.Audit(ctx, s.set, own, client.AuditOptions{}))
			if ctx.Err() == nil && (err != nil || !maps.Equal(got, want)) {
				t.Errorf("the list is audited: %v, %v, want %v", got, err, want)
				return
			}
		}
	})
	audits := 0
	for over := false; !over; audits++ {
		select {
		case <-done:
			over = true
		default:
		}
		by := []client.Comparison{client.ByPosition, client.ByContent}[audits%2]
		names(t, fmt.Sprintf("the replica by %s, audit %d", by, audits), replica.Audit(t.Context(), client.AuditOptions{By: by}), want)
	}
	for _, h := range hubs {
		s.completely(t, h)
	}
	t.Logf("while %d changes arrived, %d audits of a replica named the faults, and nothing else", changes, audits)
}

// memory is a client.Store that outlives a Replica.
type memory struct{ inventory.Store }

func (memory) Copy(string) error { return nil }
func (memory) Close() error      { return nil }

func open(t *testing.T, c *client.Client, set string, store client.Store) *client.Replica {
	t.Helper()
	r, err := c.OpenReplica(t.Context(), set, client.ReplicaOptions{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// catchUp applies all that a replica does not have yet.
func catchUp(ctx context.Context, r *client.Replica) error {
	for _, err := range r.CatchUp(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// plantIn changes what a replica holds behind its back.
func plantIn(t *testing.T, store inventory.Store, set string, planted []feed.Entry) {
	t.Helper()
	v := inventory.New(store, set, inventory.Options{Cache: inventory.NewCache(1 << 20)})
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sorted := func(yield func(*feed.Entry) bool) {
		for i := range planted {
			if !yield(&planted[i]) {
				return
			}
		}
	}
	base := head.Newest()
	if _, err := v.Commit(t.Context(), inventory.Changes{Base: base, To: base.Cursor, Sorted: sorted}); err != nil {
		t.Fatal(err)
	}
}
