package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/resourcesync"
)

// TestSyncFromDocuments synchronizes with the documents of the standard while changes arrive
// through two hubs: with the Resource List, and with the Change List since its time.
func TestSyncFromDocuments(t *testing.T) {
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
		held := map[string]string{} // hash of each resource
		doc := hubtest.Document(t, list)
		for _, it := range doc.Items {
			held[it.Loc] = it.Hash
		}
		changes, _ := hubtest.ReadSince(t, hubs[1], s.set, doc.At.Format(time.RFC3339Nano))
		for _, e := range changes { // the Resource List has the first one, too
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
			t.Fatalf("Resource List of %v and %d changes: got %d resources, want %d, or other hashes", doc.At, len(changes), len(held), len(want))
		}
	}
	t.Logf("%d synchronizations", walks)
}
