package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/problem"
)

// TestReplicaLeftovers checks that resources that the hub does not name are retained, unless the
// hub knows all resources.
func TestReplicaLeftovers(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 5)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	for _, complete := range []bool{false, true} {
		s.deleteSet(t)
		s.publish(t, locs(4, 6)...)
		s.inventories.set(func() { s.inventories.complete = complete })
		d.catchUp(c, 0)
		want := map[string]uint64{"urn:1": 1, "urn:2": 2, "urn:3": 3, "urn:4": 1, "urn:5": 2, "urn:6": 3}
		extra := 3
		if complete {
			want, extra = s.resources(t), 0
		}
		checkHeld(t, fmt.Sprint("complete: ", complete), d.held, want)
		found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{}))
		if len(found) != extra || extra > 0 && found["urn:1"] != client.Extra {
			t.Errorf("Audit yields %v, want %d extra resources", found, extra)
		}
	}
}

// TestReplicaOutgrows checks that resources that the hub did not know when a destination joined are
// deleted when the hub knows all resources, even if nothing else has changed.
func TestReplicaOutgrows(t *testing.T) {
	for _, prefix := range []string{"", "urn:"} {
		s := newSite(t)
		clock := newClock()
		c := newClient(t, s.URL, clock.options())
		s.publish(t, locs(1, 5)...)
		d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Prefix: prefix})
		d.catchUp(c, 0)
		s.deleteSet(t)
		s.publish(t, locs(4, 6)...)
		s.inventories.set(func() { s.inventories.complete = false })
		d.catchUp(c, 0)
		s.publish(t, "urn:7")
		d.catchUp(c, 0)
		if len(d.held) != 7 {
			t.Fatalf("destination has %v, want 7 resources", d.held)
		}
		s.inventories.set(func() { s.inventories.complete = true })
		d.reopen(c)
		d.catchUp(c, 0)
		checkHeld(t, "after the hub knows all", d.held, s.resources(t))
		d.inSync("after the hub knows all")
		before := len(s.received())
		d.reopen(c)
		d.catchUp(c, 0)
		if n := len(s.received()) - before; n != 1 {
			t.Errorf("a destination without leftovers sends %d requests, want 1", n)
		}
	}
}

// TestReplicaOutgrowsFollowing checks the same for a destination that is following. While the hub
// cannot tell whether it knows all resources, because its inventory is damaged, changes arrive
// anyway.
func TestReplicaOutgrowsFollowing(t *testing.T) {
	s := newSite(t)
	clock := newClock()
	c := newClient(t, s.URL, clock.options())
	s.publish(t, locs(1, 5)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, locs(4, 6)...)
	s.inventories.set(func() { s.inventories.complete = false })
	var damaged atomic.Bool
	s.intercept = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		fails := damaged.Load() && strings.HasSuffix(r.URL.Path, "/audit")
		if fails {
			problem.Write(w, r, feed.ErrDamaged)
		}
		return fails
	}
	n := 0
	for u, err := range d.replica.Follow(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		d.apply(u)
		switch n++; n {
		case 2: // end of the baseline
			damaged.Store(true)
			_ = clock.sleep(t.Context(), time.Hour)
			s.publish(t, "urn:7")
		case 3:
			s.publish(t, "urn:8")
		case 4:
			damaged.Store(false)
			s.inventories.set(func() { s.inventories.complete = true })
			_ = clock.sleep(t.Context(), time.Hour)
			s.publish(t, "urn:9")
		}
		if _, ok := d.held["urn:1"]; !ok {
			break
		}
	}
	d.catchUp(c, 0)
	checkHeld(t, "after the hub knows all", d.held, s.resources(t))
}
