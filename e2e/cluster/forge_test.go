package cluster

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// forge makes an announcement of one change, as far as somebody can who reaches NATS
// and knows the identity of the memory. Version 1 had no proof of who sent it; in
// version 2 the proof is a guess.
func forge(version byte, memory string, after feed.Cursor, ahead time.Duration, name string) []byte {
	blocks := changelog.CutBlocks([]resourcesync.Change{{Loc: "https://example.org/forged/" + name, Change: resourcesync.Updated}}, after.Position+1, 10_000)
	cursor := feed.Cursor{Position: after.Position + 1, Micros: max(time.Now().Add(ahead).UnixMicro(), after.Micros+1)}
	p := binary.AppendUvarint([]byte{version}, uint64(len(memory)))
	p = append(p, memory...)
	for _, n := range []uint64{after.Position, uint64(after.Micros), cursor.Position, uint64(cursor.Micros), 1, uint64(len(blocks[0].Block))} {
		p = binary.AppendUvarint(p, n)
	}
	p = append(p, blocks[0].Block...)
	if version > 1 {
		p = append(p, make([]byte, 32)...)
	}
	return p
}

// TestForgedAnnouncements lets somebody loose on NATS: it forges announcements that
// follow the newest change, dated now or in ten years, repeats what hubs have said, and
// writes nonsense. Followers at another hub get what was published, all of it in order,
// and nothing else.
func TestForgedAnnouncements(t *testing.T) {
	t.Parallel()
	const set = "forged"
	const subject = "rshub.changes." + set
	c := hubtest.StartCluster(t, 2)
	tap := hubtest.Tap(t, c.NATS)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("first"))
	memory := strings.TrimSpace(c.Redis.Tell(t, "HGET", "rshub:memory", "id"))
	if len(memory) < 16 {
		t.Fatalf("the memory is %q", memory)
	}
	f := hubtest.Follow(t, c.Hubs[1], hubtest.ByWebSocket, set, "start")
	f.Has(t, 1)
	published := 1
	hubtest.Until(t, "announcements come", func() error { // once the other hub listens to them
		hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("next"))
		published++
		f.Has(t, published)
		if len(tap.Heard(subject)) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	for i, lie := range []struct {
		version byte
		ahead   time.Duration
	}{{1, 0}, {2, 0}, {1, 10 * 365 * 24 * time.Hour}, {2, 10 * 365 * 24 * time.Hour}} {
		head, err := feed.ParseCursor(hubtest.Head(t, c.Hubs[1], set))
		if err != nil {
			t.Fatal(err)
		}
		for n, old := range tap.Heard(subject) {
			tap.Say(t, subject, forge(lie.version, memory, head, lie.ahead, fmt.Sprint(i, "-", n)))
			tap.Say(t, subject, old)
		}
		tap.Say(t, subject, []byte("nonsense"))
		hubtest.Publish(t, c.Hubs[0], set, hubtest.Change(fmt.Sprint("after-", i)))
		published++
		for _, e := range f.Has(t, published) {
			if strings.Contains(e.Text, "forged") {
				t.Fatalf("%s was delivered, and never published", e.Text)
			}
		}
	}
	if n := len(f.Seen()); n != published || f.Diverged > 0 {
		t.Errorf("it has %d entries of %d, and was told %d times that the memory has diverged", n, published, f.Diverged)
	}
}

// TestCloneOnOneNATS makes a copy of Redis by hand. A hub on the copy and a hub on the
// original share one NATS and one prefix, and the identity of the memory. Neither
// delivers what was published at the other.
func TestCloneOnOneNATS(t *testing.T) {
	t.Parallel()
	const set = "cloned"
	original, clone, nats := hubtest.StartRedis(t), hubtest.StartRedis(t), hubtest.StartNATS(t)
	a := hubtest.JoinCluster(t, "http://hub.example.org", original.Addr, nats.Addr)
	hubtest.Publish(t, a, set, hubtest.Changes("both", 3))
	host, port, _ := strings.Cut(clone.Addr, ":")
	migrate := append([]string{"MIGRATE", host, port, "", "0", "5000", "COPY", "KEYS"}, strings.Fields(original.Tell(t, "EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0"))...)
	original.Tell(t, migrate...)
	b := hubtest.JoinCluster(t, "http://hub.example.org", clone.Addr, nats.Addr)
	hubs := []*hubtest.Hub{a, b}
	var followers []*hubtest.Follower
	for _, h := range hubs {
		f := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
		f.Has(t, 3)
		followers = append(followers, f)
	}
	for i := range 10 {
		for n, h := range hubs {
			hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint("hub-", n, "-", i)))
		}
	}
	for n, f := range followers {
		for _, e := range f.Has(t, 13)[3:] {
			if !strings.Contains(e.Text, fmt.Sprint("hub-", n, "-")) {
				t.Errorf("the follower of hub %d got %s", n, e.Text)
			}
		}
		if n := len(f.Seen()); n != 13 || f.Diverged > 0 {
			t.Errorf("it has %d entries, and was told %d times that the memory has diverged", n, f.Diverged)
		}
	}
}
