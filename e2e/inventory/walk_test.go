package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/resourcesync"
)

// TestWalk synchronizes by the documents of the standard, while changes flow through two
// hubs: the Resource List, and the Change List since the time of it.
func TestWalk(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	hubs := hubtest.StartCluster(t, 2, "RSHUB_RESOURCELIST_INTERVAL=1s", "RSHUB_CHANGELIST_SIZE=1000").Hubs
	s := newStream("walked")
	s.publish(t, hubs[0], resources(steady, 2_000))
	s.complete(t, hubs[0])
	list := hubs[0].URL + "/sets/" + s.set + "/resourcelist.xml"
	hubtest.WaitOK(t, list)
	done := s.run(t, r.Uint64(), 20_000, hubs)
	walks := 0
	for over := false; !over; walks++ {
		select {
		case <-done:
			over = true
		default:
		}
		held := map[string]string{} // the hash of each resource
		doc := hubtest.Document(t, list)
		for _, it := range doc.Items {
			held[it.Loc] = it.Hash
		}
		changes, _ := hubtest.ReadSince(t, hubs[1], s.set, doc.At.Format(time.RFC3339Nano))
		for _, e := range changes { // the first is in the Resource List, too
			var c struct{ Loc, Change, Hash string }
			hubtest.Decode(t, []byte(e.Text), &c)
			if held[c.Loc] = c.Hash; c.Change == string(resourcesync.Deleted) {
				delete(held, c.Loc)
			}
		}
		want := map[string]string{}
		for loc, e := range s.at(t, changes[len(changes)-1].Position) {
			want[loc] = e.Change.Hash
		}
		if !maps.Equal(held, want) {
			t.Fatalf("from the Resource List of %v on, %d changes lead to %d resources, not to %d", doc.At, len(changes), len(held), len(want))
		}
	}
	t.Logf("%d walks while changes flowed", walks)
}
