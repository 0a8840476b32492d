package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// A destination applies the updates of its replica.
type destination struct {
	t       *testing.T
	store   inventory.Store
	replica *client.Replica
	o       client.ReplicaOptions
	random  *rand.Rand
	held    map[string]uint64 // positions by loc; 0 if unknown, because a baseline changed the resource

	// Whether the destination may have resources that the replica has not recorded, and that the hub
	// has deleted in the meantime.
	unrecorded bool
}

func newDestination(t *testing.T, c *client.Client, store inventory.Store, o client.ReplicaOptions) *destination {
	d := &destination{t: t, store: store, o: o, random: testutil.Rand(t), held: map[string]uint64{}}
	d.reopen(c)
	return d
}

// reopen opens the replica again, as after a restart of the destination.
func (d *destination) reopen(c *client.Client) {
	d.t.Helper()
	var err error
	if d.replica, err = c.OpenReplicaIn(d.t.Context(), "demo", d.store, d.o); err != nil {
		d.t.Fatal(err)
	}
}

// apply applies an update.
func (d *destination) apply(u *client.Update) {
	for _, e := range u.Entries {
		if d.held[e.Change.Loc] = e.Position; e.Change.Change == resourcesync.Deleted {
			delete(d.held, e.Change.Loc)
		}
	}
	if u.Complete && d.unrecorded {
		d.removeUnknown()
	}
}

// removeUnknown removes the resources that the replica does not know.
func (d *destination) removeUnknown() {
	state, release, err := d.replica.State(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer release()
	for loc := range d.held {
		e, ok, err := state.Get(d.t.Context(), loc)
		if err != nil {
			d.t.Fatal(err)
		}
		if !ok || !(feed.Filter{Collection: d.o.Collection}).Match(&e.Change) {
			delete(d.held, loc)
		}
	}
	d.unrecorded = false
}

// catchUp applies all updates. It simulates the given number of crashes, after which the newest
// update may be applied or not.
func (d *destination) catchUp(c *client.Client, kills int) {
	d.t.Helper()
	for ; kills >= 0; kills-- {
		left := 1 + d.random.IntN(5)
		updates, live := d.replica.CatchUp(d.t.Context()), false
		if kills > 0 {
			if b := d.readBatch(c); b != nil {
				live = true
				updates = d.replica.ApplyBatch(d.t.Context(), b)
			}
		}
		for u, err := range updates {
			if err != nil {
				d.t.Fatal(err)
			}
			if left--; kills > 0 && left == 0 && d.random.IntN(2) == 0 {
				break
			}
			if d.apply(u); kills > 0 && left <= 0 {
				d.unrecorded = d.unrecorded || live
				break
			}
		}
		if kills > 0 {
			if err := d.replica.Flush(d.t.Context()); err != nil { // CatchUp has done so
				d.t.Fatal(err)
			}
			d.reopen(c)
		}
	}
}

// readBatch returns some changes of the set: mostly those after the replica's cursor, or others as if a
// batch was omitted or repeated. It returns nil if the hub does not have them.
func (d *destination) readBatch(c *client.Client) *feed.Batch {
	since := "start"
	if at, ok := d.replica.Cursor(); ok && d.random.IntN(4) > 0 {
		since = at.String()
	}
	options := client.FollowOptions{Limit: 1 + d.random.IntN(50), Filter: feed.Filter{Prefix: d.o.Prefix}}
	for b, err := range c.Follow(d.t.Context(), "demo", since, options) {
		if err == nil {
			return b
		}
	}
	return nil
}

// differences returns the kinds of the differences by loc, and fails the test unless each loc is
// yielded once.
func differences(t *testing.T, found iter.Seq2[client.Difference, error]) map[string]client.DifferenceKind {
	t.Helper()
	all := map[string]client.DifferenceKind{}
	for d, err := range found {
		if err != nil {
			t.Fatal(err)
		}
		if all[d.Loc] != "" || d.Loc == "" {
			t.Fatalf("audit yields %q, want each loc once", d.Loc)
		}
		all[d.Loc] = d.Kind
	}
	return all
}

// inSync fails the test unless an audit finds no differences.
func (d *destination) inSync(what string) {
	d.t.Helper()
	if all := differences(d.t, d.replica.Audit(d.t.Context(), client.AuditOptions{})); len(all) > 0 {
		d.t.Fatalf("%s: Audit yields %v, want no differences", what, all)
	}
}

// TestReplica checks that a destination has the same resources as the hub, and that an audit
// confirms it, after any sequence of changes, crashes and losses.
func TestReplica(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store func(t *testing.T) inventory.Store
		o     client.ReplicaOptions
	}{
		{"memory", func(*testing.T) inventory.Store { return inventory.NewMemory() }, client.ReplicaOptions{MaxDelete: -1}},
		{"prefix", func(*testing.T) inventory.Store { return inventory.NewMemory() }, client.ReplicaOptions{Prefix: "urn:1", MaxDelete: -1}},
		{"collection", func(*testing.T) inventory.Store { return inventory.NewMemory() }, client.ReplicaOptions{Collection: "urn:x:c", MaxDelete: -1}},
		{"disk", func(t *testing.T) inventory.Store {
			s, err := diskpages.Open(t.TempDir(), diskpages.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}, client.ReplicaOptions{MaxDelete: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) { testReplica(t, tt.store(t), tt.o) })
	}
}

func testReplica(t *testing.T, store inventory.Store, o client.ReplicaOptions) {
	s := newSite(t)
	if err := s.log.Make(t.Context(), "demo", feed.Description{}, 20); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, s.URL, newClock().options())
	d := newDestination(t, c, store, o)
	var saved *siteCopy
	truth := map[string]uint64{}
	change := func(kind resourcesync.ChangeType, loc string) {
		in := o.Collection == "" || d.random.IntN(2) == 0
		at := s.change(t, kind, loc)
		if o.Collection != "" && in {
			at = s.collect(t, kind, o.Collection, loc)
		}
		if truth[loc] = at.Position; kind == resourcesync.Deleted || !in {
			delete(truth, loc)
		}
	}
	savedTruth := map[string]uint64{}
	for round := range 40 {
		for range d.random.IntN(60) {
			kind := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}[d.random.IntN(3)]
			change(kind, fmt.Sprint("urn:", d.random.IntN(200)))
		}
		what := "changes"
		switch d.random.IntN(8) {
		case 0:
			what = "retention"
			s.inventories.set(func() { // the hub's inventory must be current
				if _, err := s.inventories.newestLocked(t.Context(), "demo"); err != nil {
					t.Fatal(err)
				}
			})
			if _, err := s.log.Trim(t.Context(), "demo", changelog.Retention{Count: 20}); err != nil {
				t.Fatal(err)
			}
		case 1:
			what = "dropping all roots"
			s.inventories.dropRoots()
		case 2:
			if saved != nil {
				what = "a lost tail"
				s.restore(t, saved)
				truth, saved = savedTruth, nil
			} else {
				saved, savedTruth = s.copy(t), within(truth, "")
			}
		case 3:
			what = "recreating the set"
			s.deleteSet(t)
			if err := s.log.Make(t.Context(), "demo", feed.Description{}, 20); err != nil {
				t.Fatal(err)
			}
			clear(truth)
			saved = nil
			s.inventories.dropRoots()
		}
		what = fmt.Sprintf("round %d, after %s", round, what)
		d.catchUp(c, d.random.IntN(4))
		checkHeld(t, what, d.held, within(truth, o.Prefix))
		d.inSync(what)
	}
}

// TestReplicaFarBehind checks that a destination that is far behind gets all changes in one update,
// so that it can skip superseded ones.
func TestReplicaFarBehind(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, "urn:first")
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	for range 5 {
		s.publish(t, locs(1, 700)...)
	}
	var updates []int
	for u, err := range d.replica.CatchUp(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Entries) > 0 && u.Entries[len(u.Entries)-1].Cursor != u.Cursor {
			t.Errorf("update has the cursor %v, want %v of its last entry", u.Cursor, u.Entries[len(u.Entries)-1].Cursor)
		}
		updates = append(updates, len(u.Entries))
		d.apply(u)
	}
	if !slices.Equal(updates, []int{3_500}) {
		t.Errorf("CatchUp yields updates of %d entries, want one of 3500", updates)
	}
	checkHeld(t, "far behind", d.held, s.resources(t))
	d.inSync("far behind")
}

// TestReplicaHolds checks that a resource outside of the collection is yielded as deleted if the
// destination has it, from the Replica or otherwise, and that others outside are not yielded.
func TestReplicaHolds(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 9)...)
	s.collect(t, resourcesync.Updated, "urn:x:c", "urn:3")
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Collection: "urn:x:c", Holds: func(loc string) (bool, error) {
		return loc == "urn:5" || loc == "urn:12", nil
	}})
	var got []string
	catchUp := func() {
		t.Helper()
		for u, err := range d.replica.CatchUp(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range u.Entries {
				got = append(got, string(e.Change.Change)+" "+e.Change.Loc)
			}
		}
	}
	catchUp()
	s.publish(t, locs(10, 14)...)
	s.change(t, resourcesync.Deleted, "urn:4", "urn:3")
	catchUp()
	if want := []string{"updated urn:3", "deleted urn:5", "deleted urn:12", "deleted urn:3"}; !slices.Equal(got, want) {
		t.Errorf("CatchUp yields %q, want %q", got, want)
	}
	d.inSync("at the end")
}

// TestReplicaOldRoot checks that changes after the root of a baseline are yielded once, in their
// current state.
func TestReplicaOldRoot(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 50)...)
	newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{}).catchUp(c, 0)
	s.inventories.set(func() { s.inventories.frozen = true })
	s.publish(t, locs(1, 20)...)
	s.change(t, resourcesync.Deleted, "urn:30")
	s.publish(t, locs(51, 60)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	count := map[string]int{}
	for u, err := range d.replica.CatchUp(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range u.Entries {
			if count[e.Change.Loc]++; count[e.Change.Loc] > 1 || (e.Change.Loc == "urn:30") != (e.Change.Change == resourcesync.Deleted) {
				t.Errorf("CatchUp yields %[2]s %[1]s, %[3]d times, want the current state once", e.Change.Loc, e.Change.Change, count[e.Change.Loc])
			}
		}
		d.apply(u)
	}
	checkHeld(t, "at the end", d.held, s.resources(t))
	s.inventories.set(func() { s.inventories.frozen = false })
	d.inSync("at the end")
}

// TestReplicaDeletedAfterRoot checks that resources that the log has deleted after the root of a
// baseline are deleted, whether the destination has them from an earlier log or from an update that
// it has applied but not recorded. They do not count for MaxDelete.
func TestReplicaDeletedAfterRoot(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 40)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, append(locs(21, 40), "urn:new")...)
	newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{}).catchUp(c, 0)
	s.inventories.set(func() { s.inventories.frozen, s.inventories.complete = true, false })
	for u, err := range d.replica.CatchUp(t.Context()) { // it crashes after it has applied the first update
		if err != nil {
			t.Fatal(err)
		}
		d.apply(u)
		break
	}
	s.change(t, resourcesync.Deleted, append(locs(1, 30), "urn:new")...)
	d.reopen(c)
	d.catchUp(c, 0)
	checkHeld(t, "if the hub does not know all", d.held, s.resources(t))
	s.inventories.set(func() { s.inventories.complete = true })
	d.catchUp(c, 0)
	checkHeld(t, "at the end", d.held, s.resources(t))
}

// TestReplicaResumes checks that an interrupted baseline continues in another process.
func TestReplicaResumes(t *testing.T) {
	for _, prefix := range []string{"", "urn:"} {
		s := newSite(t)
		c := newClient(t, s.URL, newClock().options())
		s.publish(t, locs(1, 9_999)...)
		s.inventories.set(func() { s.inventories.frozen = true })
		d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Prefix: prefix})
		ctx, cancel := context.WithCancel(t.Context())
		s.intercept = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n == 2 {
				cancel()
			}
			return n == 2
		}
		for u, err := range d.replica.CatchUp(ctx) {
			t.Fatal(u, err)
		}
		d.reopen(c)
		d.catchUp(c, 0)
		checkHeld(t, "at the end", d.held, s.resources(t))
		if since := s.received()[2].URL.Query().Get("since"); !strings.Contains(since, "~5000~") {
			t.Errorf("baseline continues since %s, want after 5000 resources", since)
		}
	}
}

// plant modifies the replica's inventory without the replica.
func (d *destination) plant(entries ...feed.Entry) {
	d.t.Helper()
	v := inventory.New(d.store, "demo", inventory.Options{})
	_, head, err := v.Load(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	_, err = v.Writer(1).Commit(d.t.Context(), inventory.Changes{Base: head.Newest(), To: head.Newest().Cursor, Sorted: func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}})
	if err != nil {
		d.t.Fatal(err)
	}
}

// faults returns changes that make three resources each missing, stale and extra, and the resulting
// differences.
func faults() (planted []feed.Entry, want map[string]client.DifferenceKind) {
	want = map[string]client.DifferenceKind{}
	for i := 1; i <= 3; i++ {
		for kind, e := range map[client.DifferenceKind]feed.Entry{
			client.Missing: {Change: resourcesync.Change{Loc: fmt.Sprint("urn:1", i), Change: resourcesync.Deleted}},
			client.Stale:   {Change: resourcesync.Change{Loc: fmt.Sprint("urn:2", i), Change: resourcesync.Created, Hash: "md5:00"}},
			client.Extra:   {Change: resourcesync.Change{Loc: fmt.Sprint("urn:no", i), Change: resourcesync.Created}},
		} {
			planted = append(planted, e)
			want[e.Change.Loc] = kind
		}
	}
	return planted, want
}

// TestReplicaAudit checks that an audit yields every planted fault and nothing else, while changes
// arrive and the replica follows.
func TestReplicaAudit(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	s.publish(t, locs(1, 1_000)...)
	s.publish(t, locs(1_001, 1_500)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	if err := errAudit(t, d.replica); !errors.Is(err, client.ErrBaselinePending) {
		t.Errorf("Audit of an empty replica: got error %v, want %v", err, client.ErrBaselinePending)
	}
	d.catchUp(c, 0)
	d.inSync("after the baseline")
	planted, want := faults()
	d.plant(planted...)
	d.reopen(c)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for _, err := range d.replica.Follow(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	random := testutil.Rand(t)
	wg.Go(func() {
		for ctx.Err() == nil {
			kind := []resourcesync.ChangeType{resourcesync.Updated, resourcesync.Deleted}[random.IntN(2)]
			a, b := fmt.Sprint("urn:", 100+random.IntN(1_500)), fmt.Sprint("urn:new:", random.IntN(1_000))
			if a != b {
				s.hub.Publish(ctx, "demo", changelog.Publish{Changes: []resourcesync.Change{{Loc: a, Change: kind}, {Loc: b, Change: kind}}})
			}
		}
	})
	audits := 5
	if testing.Short() {
		audits = 2
	}
	for range audits {
		if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) {
			t.Fatalf("Audit yields %v, want %v", found, want)
		}
	}
	for d, err := range d.replica.Audit(t.Context(), client.AuditOptions{Prefix: "urn:no"}) {
		if err != nil || d.Kind != client.Extra {
			t.Errorf("Audit with a prefix yields %+v, %v, want only extra resources", d, err)
		}
	}
}

// errAudit returns the error of an audit.
func errAudit(t *testing.T, r *client.Replica) error {
	t.Helper()
	for _, err := range r.Audit(t.Context(), client.AuditOptions{}) {
		if err != nil {
			return err
		}
	}
	return nil
}
