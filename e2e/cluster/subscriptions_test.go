package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

// connectedHub returns a hub in this process, named for the monitoring of NATS. It does not run,
// so it learns of the changes of other hubs only from announcements.
func connectedHub(t *testing.T, name string, redis *hubtest.RedisServer, nats *hubtest.NATSServer) *hub.Hub {
	t.Helper()
	conn, err := redisconn.Open("redis://"+redis.Addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	log, err := redislog.Open(t.Context(), conn, redislog.Options{Prefix: "rshub"})
	if err != nil {
		t.Fatal(err)
	}
	bus, err := hub.ConnectNATS("nats://"+nats.Addr, hub.NATSOptions{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	h := hub.New(log, hub.Options{Bus: bus})
	t.Cleanup(h.Close)
	return h
}

// subscriptionsOf returns the number of subscriptions of a client at a NATS server.
func subscriptionsOf(t *testing.T, nats *hubtest.NATSServer, name string) int {
	t.Helper()
	conns, err := nats.S.Connz(&server.ConnzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns.Conns {
		if c.Name == name {
			return int(c.NumSubs)
		}
	}
	t.Fatalf("got no connection of %s at NATS", name)
	return 0
}

// TestSubscriptionsOfManySets follows more and fewer sets than the number from which a hub has a
// single subscription. No announcement is lost when the hub switches: each change of another hub
// arrives before the next one of its set is published.
func TestSubscriptionsOfManySets(t *testing.T) {
	t.Parallel()
	const probes, many, few = 10, 1_200, 100
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	follower, publisher := connectedHub(t, "follower", redis, nats), connectedHub(t, "publisher", redis, nats)
	publish := func(set string) feed.Cursor {
		a, err := publisher.Publish(t.Context(), set, changelog.Publish{Changes: []resourcesync.Change{{Loc: "https://example.org/a", Change: resourcesync.Updated}}})
		if err != nil {
			t.Error(err)
		}
		return a.Cursor
	}
	waitSubscriptions := func(want int) {
		t.Helper()
		hubtest.Until(t, "the follower has switched", func() error {
			if n := subscriptionsOf(t, nats, "follower"); n != want {
				return fmt.Errorf("got %d subscriptions, want %d", n, want)
			}
			return nil
		})
	}

	var received [probes]atomic.Int64
	probe := func(i int) string { return fmt.Sprint("probe.", i) }
	begin := make([]feed.Cursor, probes)
	for i := range probes {
		begin[i] = publish(probe(i))
		defer follower.Watch(probe(i), func() {})()
		follower.NoteHead(probe(i), begin[i])
	}
	waitSubscriptions(probes)
	var publishing sync.WaitGroup
	var stop atomic.Bool
	for i := range probes {
		publishing.Go(func() {
			for at := begin[i]; !stop.Load() && !t.Failed(); received[i].Add(1) {
				at = publish(probe(i))
				hubtest.Until(t, "the announcement arrives", func() error {
					if n, _ := follower.Behind(probe(i), begin[i]); n != at.Position-begin[i].Position {
						return fmt.Errorf("%s: got %d changes, want %d", probe(i), n, at.Position-begin[i].Position)
					}
					return nil
				})
			}
		})
	}
	defer publishing.Wait()
	defer stop.Store(true)
	waitChanges := func() {
		t.Helper()
		for i := range probes {
			want := received[i].Load() + 3
			hubtest.Until(t, "three changes arrive", func() error {
				if n := received[i].Load(); n < want {
					return fmt.Errorf("%s: got %d changes, want %d", probe(i), n, want)
				}
				return nil
			})
		}
	}

	waitChanges()
	for range 3 {
		releases := make([]func(), many)
		for i := range releases {
			releases[i] = follower.Watch(fmt.Sprint("other.", i), func() {})
		}
		waitSubscriptions(1)
		waitChanges()
		for _, release := range releases[few:] {
			release()
		}
		waitSubscriptions(probes + few)
		waitChanges()
		for _, release := range releases[:few] {
			release()
		}
	}
	waitSubscriptions(probes)
}
