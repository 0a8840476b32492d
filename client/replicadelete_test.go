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

// kept returns what a new process finds in the store of a destination.
func (d *destination) kept(c *client.Client) string {
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

// A baseline that would delete a large part of what a destination holds stops before
// anything is changed, until somebody allows it.
func TestReplicaMaxDelete(t *testing.T) {
	for _, test := range []struct {
		held, left, most int
		stops            bool
	}{
		{200, 180, 0, false}, {200, 179, 0, true}, {50, 40, 0, false}, {50, 39, 0, true}, {5, 0, 0, false},
		{200, 179, 21, false}, {200, 180, 19, true}, {200, 0, -1, false},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			s := newSite(t)
			c := newClient(t, s.URL, newClock().options())
			s.publish(t, locs(1, test.held)...)
			d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{MaxDelete: test.most})
			d.catchUp(c, 0)
			s.publish(t, "urn:1")
			d.catchUp(c, 0)
			before := d.kept(c)
			s.deleteSet(t)
			more := locs(1_001, 1_500) // which do not count
			s.publish(t, append(more, locs(1, test.left)...)...)
			if test.stops {
				var stopped *client.TooManyDeleted
				for range 2 {
					for u, err := range d.replica.CatchUp(t.Context()) {
						if err == nil {
							d.apply(u)
						} else if !errors.As(err, &stopped) || stopped.Delete != uint64(test.held-test.left) || !strings.Contains(err.Error(), "ReplicaOptions.MaxDelete") {
							t.Fatal(err)
						}
					}
				}
				if stopped == nil || len(d.held) != test.held {
					t.Errorf("%v: it holds %d", stopped, len(d.held))
				}
				if got := d.kept(c); got != before {
					t.Errorf("what was refused has changed %.100s to %.100s", before, got)
				}
				d.o.MaxDelete = test.held - test.left
				d.reopen(c)
			}
			d.catchUp(c, 0)
			same(t, "at the end", d.held, s.truth(t))
			d.inSync("at the end")
		})
	}
}

// Whoever counts deletions by other means is asked, and may refuse or allow any number.
func TestReplicaMayDelete(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 50)...)
	enough := errors.New("enough")
	asked, answer := "", enough
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{MaxDelete: -1, MayDelete: func(deleted, held uint64) error {
		asked += fmt.Sprintf("%d of %d; ", deleted, held)
		return answer
	}})
	d.catchUp(c, 0)
	before := d.kept(c)
	s.deleteSet(t)
	s.publish(t, locs(41, 52)...)
	for u, err := range d.replica.CatchUp(t.Context()) {
		if !errors.Is(err, enough) {
			t.Fatal(u, err)
		}
	}
	if got := d.kept(c); got != before {
		t.Errorf("what was refused has changed %.100s to %.100s", before, got)
	}
	answer = nil
	d.catchUp(c, 0)
	same(t, "at the end", d.held, s.truth(t))
	if asked != "40 of 50; 40 of 50; " {
		t.Errorf("it was asked for %s", asked)
	}
}

// The bound is for what a baseline deletes of a collection. Resources outside do not count;
// those that have left it do.
func TestReplicaMayDeleteOfACollection(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 50)...)
	s.collect(t, resourcesync.Updated, "urn:x:c", locs(1, 8)...)
	asked := ""
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Collection: "urn:x:c", MayDelete: func(deleted, held uint64) error {
		asked += fmt.Sprintf("%d of %d; ", deleted, held)
		return nil
	}})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, "urn:1")
	s.collect(t, resourcesync.Updated, "urn:x:c", locs(3, 8)...)
	d.catchUp(c, 0)
	want := s.truth(t)
	delete(want, "urn:1")
	same(t, "at the end", d.held, want)
	if asked != "2 of 8; " {
		t.Errorf("it was asked for %s", asked)
	}
}
