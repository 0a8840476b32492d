package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// storedState returns the cursor and the resources that a new process finds in the store.
func (d *destination) storedState(c *client.Client) string {
	d.t.Helper()
	d.reopen(c)
	at, _ := d.replica.Cursor()
	state, release, err := d.replica.State(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer release()
	all := at.String()
	for e, err := range state.All(d.t.Context(), "") {
		if err != nil {
			d.t.Fatal(err)
		}
		all += fmt.Sprint(" ", e.Change.Loc, e.Cursor)
	}
	return all
}

// TestReplicaMaxDelete checks that a baseline that would delete a large part of the resources is
// rejected before anything is changed, until the limit is raised.
func TestReplicaMaxDelete(t *testing.T) {
	for _, tt := range []struct {
		held, left, limit int
		rejected          bool
	}{
		{200, 180, 0, false}, {200, 179, 0, true}, {50, 40, 0, false}, {50, 39, 0, true}, {5, 0, 0, false},
		{200, 179, 21, false}, {200, 180, 19, true}, {200, 0, -1, false},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			s := newSite(t)
			c := newClient(t, s.URL, newClock().options())
			s.publish(t, locs(1, tt.held)...)
			d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{MaxDelete: tt.limit})
			d.catchUp(c, 0)
			s.publish(t, "urn:1")
			d.catchUp(c, 0)
			before := d.storedState(c)
			s.deleteSet(t)
			added := locs(1_001, 1_500) // which do not raise the limit
			s.publish(t, append(added, locs(1, tt.left)...)...)
			if tt.rejected {
				var got *client.DeleteLimitError
				for range 2 {
					for u, err := range d.replica.CatchUp(t.Context()) {
						if err == nil {
							d.apply(u)
						} else if !errors.As(err, &got) || got.Delete != uint64(tt.held-tt.left) || !strings.Contains(err.Error(), "ReplicaOptions.MaxDelete") {
							t.Fatal(err)
						}
					}
				}
				if got == nil || len(d.held) != tt.held {
					t.Errorf("CatchUp ends with %v and %d resources, want a DeleteLimitError and %d", got, len(d.held), tt.held)
				}
				if got := d.storedState(c); got != before {
					t.Errorf("rejected baseline changes the store from %.100s to %.100s", before, got)
				}
				d.o.MaxDelete = tt.held - tt.left
				d.reopen(c)
			}
			d.catchUp(c, 0)
			checkHeld(t, "at the end", d.held, s.resources(t))
			d.inSync("at the end")
		})
	}
}

// TestReplicaMayDelete checks that MayDelete replaces MaxDelete, and may reject or permit any
// number.
func TestReplicaMayDelete(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 50)...)
	rejected := errors.New("rejected")
	calls, result := "", rejected
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{MaxDelete: -1, MayDelete: func(deleted, held uint64) error {
		calls += fmt.Sprintf("%d of %d; ", deleted, held)
		return result
	}})
	d.catchUp(c, 0)
	before := d.storedState(c)
	s.deleteSet(t)
	s.publish(t, locs(41, 52)...)
	for u, err := range d.replica.CatchUp(t.Context()) {
		if !errors.Is(err, rejected) {
			t.Fatal(u, err)
		}
	}
	if got := d.storedState(c); got != before {
		t.Errorf("rejected baseline changes the store from %.100s to %.100s", before, got)
	}
	result = nil
	d.catchUp(c, 0)
	checkHeld(t, "at the end", d.held, s.resources(t))
	if calls != "40 of 50; 40 of 50; " {
		t.Errorf("MayDelete is called with %s, want 40 of 50 twice", calls)
	}
}

// TestReplicaMayDeleteCollection checks that resources outside of the collection do not count, and
// that resources that have left it do.
func TestReplicaMayDeleteCollection(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 50)...)
	s.collect(t, resourcesync.Updated, "urn:x:c", locs(1, 8)...)
	calls := ""
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Collection: "urn:x:c", MayDelete: func(deleted, held uint64) error {
		calls += fmt.Sprintf("%d of %d; ", deleted, held)
		return nil
	}})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, "urn:1")
	s.collect(t, resourcesync.Updated, "urn:x:c", locs(3, 8)...)
	d.catchUp(c, 0)
	want := s.resources(t)
	delete(want, "urn:1")
	checkHeld(t, "at the end", d.held, want)
	if calls != "2 of 8; " {
		t.Errorf("MayDelete is called with %s, want 2 of 8", calls)
	}
}
