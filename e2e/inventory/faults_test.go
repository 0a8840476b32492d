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

// Resources that no stream changes: some exist, and some were deleted.
const (
	steady = "steady"
	dead   = "dead"
)

// faults returns ten faults of a destination, as the entries that it has instead, and the
// differences that an audit must report.
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
	plant(10, client.Extra, func() resourcesync.Change { return resource(locOf(dead, r.IntN(50)), 1) }) // unapplied deletions
	slices.SortFunc(planted, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	return planted, names
}

// collect returns the differences that an audit finds. It may be called in any goroutine.
func collect(found func(func(client.Difference, error) bool)) (map[string]client.DifferenceKind, error) {
	all := map[string]client.DifferenceKind{}
	for d, err := range found {
		if err != nil {
			return all, err
		}
		if all[d.Loc] != "" {
			return all, fmt.Errorf("%s is reported twice", d.Loc)
		}
		all[d.Loc] = d.Kind
	}
	return all, nil
}

// wantDifferences fails the test unless an audit reports exactly these differences.
func wantDifferences(t *testing.T, who string, found func(func(client.Difference, error) bool), want map[string]client.DifferenceKind) {
	t.Helper()
	if got, err := collect(found); err != nil || !maps.Equal(got, want) {
		t.Fatalf("%s: got differences %v, %v, want %v", who, got, err, want)
	}
}

// TestAuditFindsFaults plants ten faults in destinations. Each audit reports exactly these: when
// idle, and while thousands of changes arrive through two hubs.
func TestAuditFindsFaults(t *testing.T) {
	t.Run("hub on disk", func(t *testing.T) {
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

	// A replica with the faults, which continues to follow.
	c := newClient(t, hubs[len(hubs)-1])
	store := memory{inventory.NewMemory()}
	if err := catchUp(t.Context(), open(t, c, s.set, store)); err != nil {
		t.Fatal(err)
	}
	plantIn(t, store, s.set, planted)
	replica := open(t, c, s.set, store)
	// A list that is independent of the log: the state of the source with the faults.
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
	settled, err := client.New(hubs[0].URL, client.Options{HTTP: hubtest.Client}) // with real waiting times
	if err != nil {
		t.Fatal(err)
	}
	wantDifferences(t, "the list", settled.Audit(t.Context(), s.set, own, client.AuditOptions{}), want)

	done := s.run(t, r.Uint64(), changes, hubs)
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() {
		for _, err := range replica.Follow(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	background.Go(func() {
		for ctx.Err() == nil {
			got, err := collect(settled.Audit(ctx, s.set, own, client.AuditOptions{}))
			if ctx.Err() == nil && (err != nil || !maps.Equal(got, want)) {
				t.Errorf("audit of the list: got differences %v, %v, want %v", got, err, want)
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
		wantDifferences(t, fmt.Sprintf("the replica by %s, audit %d", by, audits), replica.Audit(t.Context(), client.AuditOptions{By: by}), want)
	}
	for _, h := range hubs {
		s.checkComplete(t, h)
	}
	t.Logf("%d changes and %d audits of a replica", changes, audits)
}

// A memory is a client.Store that outlives a Replica.
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

// catchUp applies all changes that a replica does not have yet.
func catchUp(ctx context.Context, r *client.Replica) error {
	for _, err := range r.CatchUp(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// plantIn changes the stored state of a replica.
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
	if _, err := v.Writer(head.Term).Commit(t.Context(), inventory.Changes{Base: base, To: base.Cursor, Sorted: sorted}); err != nil {
		t.Fatal(err)
	}
}
