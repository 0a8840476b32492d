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
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// The resources that no stream touches: some exist, and some were deleted.
const (
	steady = "steady"
	dead   = "dead"
)

// prepare publishes the steady resources and the dead ones.
func prepare(t *testing.T, s *source, h *hubtest.Hub, n int) {
	t.Helper()
	s.publish(t, h, resources(steady, n))
	s.publish(t, h, resources(dead, 50))
	var gone [][]byte
	for i := range 50 {
		gone = append(gone, resourceLine(locOf(dead, i), "deleted", 0))
	}
	s.publish(t, h, gone)
	s.complete(t, h)
}

// faults are ten faults of a destination: what it holds instead, and how an audit names
// each.
func faults(r *rand.Rand, n int) (planted []line, names map[string]audit.Kind) {
	names = map[string]audit.Kind{}
	plant := func(kind audit.Kind, loc, change, hash string) {
		if names[loc] != "" {
			return
		}
		names[loc] = kind
		planted = append(planted, line{Position: 1, Loc: loc, Change: change, Hash: hash})
	}
	for i := 0; len(names) < 3; i++ {
		plant(audit.Missing, locOf(steady, r.IntN(n)), "deleted", "")
	}
	for len(names) < 6 {
		plant(audit.Stale, locOf(steady, r.IntN(n)), "updated", hashOf("00"))
	}
	for len(names) < 8 {
		plant(audit.Extra, fmt.Sprintf("https://example.org/never/%d", r.IntN(1000)), "created", hashOf("11"))
	}
	for len(names) < 10 { // deletions that were not applied
		plant(audit.Extra, locOf(dead, r.IntN(50)), "created", hashOf("22"))
	}
	return planted, names
}

func hashOf(b string) string { return "sha-256:" + strings.Repeat(b, 32) }

// kinds are the differences that an audit names.
func kinds(t *testing.T, found func(func(audit.Difference, error) bool)) map[string]audit.Kind {
	t.Helper()
	all := map[string]audit.Kind{}
	for d, err := range found {
		if err != nil {
			t.Fatalf("an audit ends with %v", err)
		}
		if all[d.Loc] != "" {
			t.Fatalf("%s is named twice", d.Loc)
		}
		all[d.Loc] = d.Kind
	}
	return all
}

// names checks that an audit names the faults and nothing else.
func names(t *testing.T, who string, found func(func(audit.Difference, error) bool), want map[string]audit.Kind) {
	t.Helper()
	got := kinds(t, found)
	if maps.Equal(got, want) {
		return
	}
	for _, loc := range slices.Sorted(maps.Keys(want)) {
		if got[loc] != want[loc] {
			t.Errorf("%s: %s is %q, not %q", who, loc, got[loc], want[loc])
		}
	}
	for _, loc := range slices.Sorted(maps.Keys(got)) {
		if want[loc] == "" {
			t.Errorf("%s: %s is named %s, and is in order", who, loc, got[loc])
		}
	}
	t.FailNow()
}

// TestFaults plants ten faults in destinations. Each audit names them and nothing else:
// while nothing happens, and while thousands of changes arrive through two hubs.
func TestFaults(t *testing.T) {
	t.Run("a hub on disk", func(t *testing.T) {
		t.Parallel()
		h := hubtest.StartHub(t)
		plantFaults(t, size(2_000, 20_000), h)
	})
	t.Run("two hubs on Redis", func(t *testing.T) {
		t.Parallel()
		plantFaults(t, 20_000, hubtest.StartCluster(t, 2).Hubs...)
	})
}

func plantFaults(t *testing.T, changes int, hubs ...*hubtest.Hub) {
	r := hubtest.Random(t)
	n := size(3_000, 30_000)
	s := &stream{source: newSource("faulty"), truth: fold{}}
	prepare(t, s.source, hubs[0], n)
	head, held := s.newest(t)
	maps.Copy(s.truth, held)
	s.looks(t, hubs[len(hubs)-1], head, "https://example.org/"+steady)
	planted, want := faults(r, n)

	// A replica with the faults, which goes on to follow.
	c := newClient(t, hubs[len(hubs)-1])
	store := newMemory()
	replica := open(t, c, s.set, store)
	if _, err := catchUp(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	plantIn(t, store, s.set, planted)
	replica = open(t, c, s.set, store)
	bys := []digest.By{digest.ByPosition, digest.ByContent}
	for _, by := range bys {
		names(t, fmt.Sprintf("the replica by %s", by), replica.Audit(t.Context(), client.AuditOptions{By: by}), want)
	}
	// What never saw the log: the truth of the source, with the faults.
	own := func(context.Context) (*inventory.State, error) {
		s.mu.Lock()
		f := maps.Clone(s.truth)
		s.mu.Unlock()
		for _, l := range planted {
			f.apply(l)
		}
		return collect(t, f)
	}
	names(t, "the list", c.Audit(t.Context(), s.set, own, client.AuditOptions{By: digest.ByContent}), want)

	done := s.run(t, r.Uint64(), changes, hubs)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		for _, err := range replica.Follow(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	var lists sync.WaitGroup
	settled := newClientThatWaits(t, hubs[0])
	audits, listed := 0, 0
	lists.Go(func() {
		for ctx.Err() == nil {
			got, err := try(settled.Audit(ctx, s.set, own, client.AuditOptions{By: digest.ByContent}))
			if ctx.Err() != nil {
				return
			}
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("the list is audited: %v, %v, want %v", got, err, want)
				return
			}
			listed++
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for over := false; !over; audits++ {
		select {
		case <-done:
			over = true
		default:
		}
		by := bys[audits%2]
		names(t, fmt.Sprintf("the replica by %s, audit %d", by, audits), replica.Audit(t.Context(), client.AuditOptions{By: by}), want)
	}
	lists.Wait()
	for _, h := range hubs {
		s.proved(t, h)
	}
	t.Logf("while %d changes arrived, %d audits of a replica and %d of a list named the faults, and nothing else", changes, audits, listed)
}

// newClientThatWaits returns a client that waits as long as it says.
func newClientThatWaits(t *testing.T, h *hubtest.Hub) *client.Client {
	t.Helper()
	c, err := client.New(h.URL, client.Options{HTTP: hubtest.Client})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, c *client.Client, set string, store inventory.Store) *client.Replica {
	t.Helper()
	r, err := c.OpenReplica(t.Context(), set, store, client.ReplicaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newMemory() inventory.Store { return inventory.NewMemory(nil) }

// catchUp applies all that a replica does not have yet, and returns how many updates that
// took.
func catchUp(ctx context.Context, r *client.Replica) (n int, err error) {
	for _, err := range r.CatchUp(ctx) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// plantIn changes what a replica holds behind its back.
func plantIn(t *testing.T, store inventory.Store, set string, planted []line) {
	t.Helper()
	v := inventory.New(store, set, inventory.Options{Cache: inventory.NewCache(1 << 20)})
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var entries []feed.Entry
	for _, l := range planted {
		entries = append(entries, entryOf(t, l))
	}
	slices.SortFunc(entries, byLoc)
	base := head.Newest()
	if _, err := v.Commit(t.Context(), inventory.Changes{Base: base, To: base.Cursor, Sorted: pointers(entries)}); err != nil {
		t.Fatal(err)
	}
}

// collect makes a state without a cursor.
func collect(t *testing.T, f fold) (*inventory.State, error) {
	return inventory.Collect(context.Background(), inventory.NewMemory(nil), "list", func(yield func(*feed.Entry, error) bool) {
		n := uint64(0)
		for _, l := range f {
			n++
			l.Position = n
			if l.Change == "" {
				l.Change = string(resourcesync.Updated)
			}
			e := entryOf(t, l)
			if !yield(&e, nil) {
				return
			}
		}
	})
}

// try returns what an audit finds, for who is not the goroutine of a test.
func try(found func(func(audit.Difference, error) bool)) (map[string]audit.Kind, error) {
	all := map[string]audit.Kind{}
	for d, err := range found {
		if err != nil {
			return all, err
		}
		all[d.Loc] = d.Kind
	}
	return all, nil
}
