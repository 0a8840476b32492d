package smoke

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCluster has two hubs on one Redis and one NATS, a source and a follower at each. One
// hub is killed, and its follower goes on at the other, with its cursor. Nothing that was
// acknowledged is lost, and both followers have the same in the same order.
func TestCluster(t *testing.T) {
	t.Parallel()
	const set = "shared"
	c := hubtest.StartCluster(t, 2)
	tap := hubtest.StartWiretap(t, c.NATS)
	stays := hubtest.Follow(t, c.Hubs[0], hubtest.ByWebSocket, set, "start")
	moves := hubtest.Follow(t, c.Hubs[1], hubtest.ByEvents, set, "start")
	first := hubtest.StartPublisher(t, c.Hubs[0], set, "first", true)
	second := hubtest.StartPublisher(t, c.Hubs[1], set, "second", false) // its hub does not come back: it does not ask again
	hubtest.WaitPublishing(t, 20, first, second)
	moves.WaitEntries(t, 20)

	c.Hubs[1].Kill()
	second.Finish()
	moves.WaitEnd(t, "refused") // no connection is left, so what it has does not change any more
	seen, at := moves.Snapshot(), moves.CurrentCursor()
	moved := hubtest.Follow(t, c.Hubs[0], moves.Transport, set, at)
	hubtest.WaitPublishing(t, 20, first)
	first.Finish()

	all := hubtest.ReadMemory(t, c.Hubs[0], set)
	first.Check(t, all)
	second.Check(t, all)
	hubtest.WantTexts(t, "of the first source the memory", ofSource(all, first.Name), textsOf(first))
	hubtest.WantEntries(t, "who stays", stays.WaitEntries(t, len(all)), all)
	hubtest.WantEntries(t, "who moves", append(seen, moved.WaitEntries(t, len(all)-len(seen))...), all)
	if moved.From != at || stays.Diverged+moves.Diverged+moved.Diverged > 0 {
		t.Errorf("who moves asked for what follows %s, and the hub began at %s; %d, %d and %d times they were told that the memory diverged",
			at, moved.From, stays.Diverged, moves.Diverged, moved.Diverged)
	}
	if len(tap.Messages("rshub.changes."+set)) == 0 {
		t.Error("the hubs announced nothing over NATS")
	}
}
