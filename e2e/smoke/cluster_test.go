package smoke

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCluster has two hubs with one Redis and one NATS, and a publisher and a follower at each. One
// hub is killed, and its follower continues at the other hub with its cursor. No acknowledged
// change is lost, and both followers have the same entries in the same order.
func TestCluster(t *testing.T) {
	t.Parallel()
	const set = "shared"
	c := hubtest.StartCluster(t, 2)
	tap := hubtest.StartWiretap(t, c.NATS)
	stays := hubtest.Follow(t, c.Hubs[0], hubtest.ByWebSocket, set, "start")
	moves := hubtest.Follow(t, c.Hubs[1], hubtest.ByEvents, set, "start")
	first := hubtest.StartPublisher(t, c.Hubs[0], set, "first", true)
	second := hubtest.StartPublisher(t, c.Hubs[1], set, "second", false) // does not retry, because its hub does not come back
	hubtest.WaitPublishing(t, 20, first, second)
	moves.WaitEntries(t, 20)

	c.Hubs[1].Kill()
	second.Finish()
	moves.WaitEnd(t, "refused") // without a connection, it receives no more entries
	seen, at := moves.Snapshot(), moves.CurrentCursor()
	moved := hubtest.Follow(t, c.Hubs[0], moves.Transport, set, at)
	hubtest.WaitPublishing(t, 20, first)
	first.Finish()

	all := hubtest.ReadMemory(t, c.Hubs[0], set)
	first.Check(t, all)
	second.Check(t, all)
	hubtest.WantTexts(t, "changes of the first publisher", ofSource(all, first.Name), textsOf(first))
	hubtest.WantEntries(t, "the follower that stays", stays.WaitEntries(t, len(all)), all)
	hubtest.WantEntries(t, "the follower that moves", append(seen, moved.WaitEntries(t, len(all)-len(seen))...), all)
	if moved.From != at || stays.Diverged+moves.Diverged+moved.Diverged > 0 {
		t.Errorf("got start %s after the move, want %s; got %d, %d and %d divergences, want 0",
			moved.From, at, stays.Diverged, moves.Diverged, moved.Diverged)
	}
	if len(tap.Messages("rshub.changes."+set)) == 0 {
		t.Error("got no announcement over NATS")
	}
}
