package client_test

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// TestReplicaApplyBatch checks that ApplyBatch sends requests only for batches that do not continue the
// replica: the first one, one after an omitted one, and a repeated one.
func TestReplicaApplyBatch(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	var at feed.Cursor
	publish := func(loc string) *feed.Batch {
		b := &feed.Batch{Set: "demo", After: at, Cursor: s.publish(t, loc)}
		b.Entries = []feed.Entry{{Cursor: b.Cursor, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}}}
		at = b.Cursor
		return b
	}
	apply := func(name string, b *feed.Batch, requests bool) {
		t.Helper()
		before := len(s.received())
		for u, err := range d.replica.ApplyBatch(t.Context(), b) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			d.apply(u)
		}
		if n := len(s.received()) - before; (n > 0) != requests {
			t.Errorf("%s batch: got %d requests, want some: %t", name, n, requests)
		}
	}
	apply("first", publish("urn:1"), true)
	apply("next", publish("urn:2"), false)
	omitted := publish("urn:3")
	apply("later", publish("urn:4"), true)
	apply("repeated", omitted, true)
	apply("last", publish("urn:5"), false)
	checkHeld(t, "at the end", d.held, s.resources(t))
	if err := d.replica.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.reopen(c)
	if got, _ := d.replica.Cursor(); got != at {
		t.Errorf("cursor after Flush: got %v, want %v", got, at)
	}
	for u, err := range d.replica.ApplyBatch(t.Context(), &feed.Batch{Set: "other", After: at, Cursor: at}) {
		if err == nil || !strings.Contains(err.Error(), `replica of set "demo": got a batch of set "other"`) {
			t.Errorf("batch of another set: got %v, %v, want an error", u, err)
		}
	}
}
