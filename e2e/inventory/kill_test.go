package inventory

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// commits returns the number of commits of hubs.
func commits(t *testing.T, hubs ...*hubtest.Hub) (all float64) {
	t.Helper()
	for _, h := range hubs {
		all += hubtest.Metric(t, h, "rshub_inventory_commits_total")
	}
	return all
}

// waitCommit waits until hubs have made more commits.
func waitCommit(t *testing.T, made float64, hubs ...*hubtest.Hub) {
	t.Helper()
	hubtest.Until(t, "an inventory is committed", func() error {
		if commits(t, hubs...) == made {
			return trial.ErrNotYet
		}
		return nil
	})
}

// TestHubKilled kills a hub on disk while it publishes and commits: at any time, or immediately
// after a commit. Afterwards the inventory is correct, and as complete as before.
func TestHubKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	h := hubtest.StartHub(t)
	s := newStream("killed")
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	done := s.run(t, r.Uint64(), 1<<30, []*hubtest.Hub{h})
	for n := range 8 {
		if r.IntN(2) == 0 {
			waitCommit(t, commits(t, h), h)
		} else {
			s.waitPublished(t, uint64(r.IntN(3_000)))
		}
		h.Kill()
		h.Start(t)
		s.checkComplete(t, h)
		if n%4 == 0 {
			s.checkBaseline(t, h)
		}
	}
	s.stop()
	<-done
	s.checkBaseline(t, h)
	h.Stop(t)
	h.Start(t)
	s.checkComplete(t, h)
}

// TestHubOfTwoKilled kills one of two hubs while it sends requests to Redis, so that Redis
// receives only the start of a commit. The other hub takes over.
func TestHubOfTwoKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	proxy := hubtest.StartProxy(t, redis.Addr)
	doomed := hubtest.JoinCluster(t, "", proxy.Addr(), nats.Addr)
	other := hubtest.JoinCluster(t, doomed.URL, redis.Addr, nats.Addr)
	// Each hub maintains the inventories of some of the sets.
	var all []*stream
	for i := range 4 {
		s := newStream(fmt.Sprint("set", i))
		s.publish(t, other, resources(steady, 1_500))
		s.complete(t, other)
		all = append(all, s)
	}
	for range 3 {
		var done []chan struct{}
		for _, s := range all {
			done = append(done, s.run(t, r.Uint64(), 2_000, []*hubtest.Hub{other}))
		}
		proxy.PauseAfter(1 + r.IntN(400_000))
		hubtest.Until(t, "the hub is in the middle of a request", func() error {
			if !proxy.Paused() {
				return trial.ErrNotYet
			}
			return nil
		})
		doomed.Kill()
		proxy.SetTarget(redis.Addr) // drops the held data
		proxy.Resume()
		for _, d := range done {
			<-d
		}
		for _, s := range all {
			s.checkComplete(t, other)
		}
		doomed.Start(t)
		for _, s := range all {
			s.checkComplete(t, doomed)
		}
		all[r.IntN(len(all))].checkBaseline(t, doomed)
	}
}

// TestRedisKilled kills Redis while two hubs publish and commit.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	c := hubtest.StartCluster(t, 2)
	s := newStream("torn")
	s.publish(t, c.Hubs[0], resources(steady, 1_500))
	s.complete(t, c.Hubs[1])
	done := s.run(t, r.Uint64(), 1<<30, c.Hubs)
	for range 3 {
		s.waitPublished(t, uint64(r.IntN(2_000)))
		c.Redis.Kill()
		c.Redis.Start(t)
		for _, h := range c.Hubs {
			s.checkComplete(t, h)
		}
		s.checkBaseline(t, c.Hubs[r.IntN(2)])
	}
	s.stop() // while Redis is running
	<-done
}
