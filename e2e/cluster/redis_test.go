package cluster

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// wantAll checks that followers have all entries of the memory, without a divergence.
func wantAll(t *testing.T, followers []*hubtest.Follower, all []trial.Entry) {
	t.Helper()
	for i, f := range followers {
		hubtest.WantEntries(t, "the "+f.Transport+" "+strconv.Itoa(i), f.WaitEntries(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s %d got a divergence, want none", f.Transport, i)
		}
	}
}

// followEverywhere follows a set at each hub with every transport.
func followEverywhere(t *testing.T, set string, hubs ...*hubtest.Hub) (followers []*hubtest.Follower) {
	for _, h := range hubs {
		for _, way := range hubtest.AllTransports {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	return followers
}

// TestRedisHangs delays the requests of one hub to Redis past their timeouts. The hub reports
// that. A delayed deletion does not affect a set that was deleted by another hub and recreated in
// the meantime.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "anew"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	p := hubtest.StartProxy(t, redis.Addr)
	cut := hubtest.JoinCluster(t, "", p.Addr(), nats.Addr, "RSHUB_REDIS_TIMEOUT=1s")
	other := hubtest.JoinCluster(t, cut.URL, redis.Addr, nats.Addr)
	hubtest.Publish(t, cut, set, hubtest.Changes("old", 5))
	p.PauseAt("-- delete removes a set") // Redis does not know the script yet, so its text is sent
	a := hubtest.Must(t, http.StatusServiceUnavailable, http.MethodDelete, cut.URL+"/sets/"+set, nil)
	if !p.Paused() {
		t.Fatal("got no request to delete the set")
	}
	problem, err := hubtest.ProblemOf(a)
	if d := problem.Detail; err != nil || !strings.HasSuffix(problem.Type, "/unknown") || strings.Contains(d, "Idempotency-Key") || !strings.Contains(d, "check with GET") {
		t.Errorf("DELETE = %s (%v), want the problem unknown", a.Body, err)
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, other.URL+"/sets/"+set, nil)
	for i := range 3 {
		hubtest.Publish(t, other, set, hubtest.Change("new-"+strconv.Itoa(i)))
	}
	p.Resume()
	hubtest.WaitOK(t, cut.Ops+"/readyz")
	hubtest.Publish(t, cut, set, hubtest.Change("new-3"))
	for _, h := range []*hubtest.Hub{cut, other} {
		if n := len(hubtest.ReadMemory(t, h, set)); n != 4 {
			t.Errorf("got %d changes, want 4", n)
		}
	}

	p.Pause()
	a = hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, cut.Ops+"/readyz", nil)
	if !bytes.Contains(a.Body, []byte(`"ready":false`)) {
		t.Errorf("readiness = %s, want ready false", a.Body)
	}
	a = hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, cut.Topic("hanging"), hubtest.Change("a"), hubtest.AsNDJSON)
	if _, err := hubtest.ProblemOf(a); err != nil || a.Header.Get("Retry-After") == "" {
		t.Errorf("publish: got problem error %v, Retry-After %q, want nil and a value: %s", err, a.Header.Get("Retry-After"), a.Body)
	}
	hubtest.Publish(t, other, "hanging", hubtest.Change("b"))
	p.Resume()
	hubtest.WaitOK(t, cut.Ops+"/readyz")
	if n := len(hubtest.ReadMemory(t, other, "hanging")); n > 2 {
		t.Errorf("got %d changes, want at most 2: one acknowledged, one with status 503", n)
	}
}

// TestFailover switches to a replica that lacks the last writes. All followers are notified that
// the memory diverged, and then receive its entries.
func TestFailover(t *testing.T) {
	t.Parallel()
	const set = "failed-over"
	redis, replica, nats := hubtest.StartRedis(t), hubtest.StartRedis(t), hubtest.StartNATS(t)
	host, port, _ := net.SplitHostPort(redis.Addr)
	replica.Command(t, "REPLICAOF", host, port)
	p := hubtest.StartProxy(t, redis.Addr)
	a := hubtest.JoinCluster(t, "", p.Addr(), nats.Addr, "RSHUB_CHANGELIST_SIZE=50")
	b := hubtest.JoinCluster(t, a.URL, p.Addr(), nats.Addr, "RSHUB_CHANGELIST_SIZE=50")
	followers := followEverywhere(t, set, a, b)
	hubtest.Publish(t, a, set, hubtest.Changes("safe", 100))
	kept := hubtest.ReadMemory(t, b, set)
	hubtest.Until(t, "the replica has all writes", func() error {
		offset := func(r *hubtest.RedisServer) string {
			_, rest, _ := strings.Cut(r.Command(t, "INFO", "replication"), "master_repl_offset:")
			line, _, _ := strings.Cut(rest, "\r")
			return line
		}
		if info := replica.Command(t, "INFO", "replication"); offset(redis) != offset(replica) || !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		return nil
	})
	replica.Command(t, "REPLICAOF", "NO", "ONE")
	hubtest.Publish(t, a, set, hubtest.Changes("lost", 70))
	for _, f := range followers {
		f.WaitEntries(t, len(kept)+70)
	}
	// Publishing continues during the failover, so that lost and new writes meet.
	under := hubtest.StartPublisher(t, a, set, "under-way", true)
	hubtest.WaitPublishing(t, 10, under)
	p.SetTarget(replica.Addr)
	redis.Kill()
	hubtest.WaitPublishing(t, 5, under)
	under.Finish()
	after := hubtest.StartPublisher(t, b, set, "after", true)
	hubtest.WaitPublishing(t, 30, after)
	after.Finish()

	all := hubtest.ReadMemory(t, b, set)
	hubtest.WantEntries(t, "the replica", all[:len(kept)], kept)
	after.Check(t, all)
	end, err := a.CursorOf(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range followers {
		hubtest.Until(t, "a follower is at the head", func() error {
			if at := f.CurrentCursor(); at != end {
				return errors.New(f.Transport + " " + strconv.Itoa(i) + " is at " + at + ", want " + end)
			}
			return nil
		})
		hubtest.WantEntries(t, "the "+f.Transport+" "+strconv.Itoa(i), f.Snapshot(), all)
		if f.Diverged == 0 {
			t.Errorf("the %s %d got no divergence", f.Transport, i)
		}
	}
	for _, h := range []*hubtest.Hub{a, b} {
		hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, h, set), all)
	}
}

// TestRedisEmptied flushes Redis while hubs use it. All followers are notified that their cursors
// are gone, even after the set was recreated. The new set starts later than the old one ended.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	const set = "emptied"
	c := hubtest.StartCluster(t, 2)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("lost", 30))
	old := hubtest.ReadMemory(t, c.Hubs[1], set)
	gone := func(followers []*hubtest.Follower) {
		t.Helper()
		for _, f := range followers {
			how := map[string]string{hubtest.ByWebSocket: "close 4410", hubtest.ByEvents: "gone", hubtest.ByPolling: `"status":410`, hubtest.BySession: `"status":404`}[f.Transport]
			if end := f.WaitEnd(t, how); !strings.HasPrefix(end, hubtest.ErrGone.Error()) {
				t.Errorf("the %s ended with %q, want ErrGone", f.Transport, end)
			}
		}
	}
	before := followEverywhere(t, set, c.Hubs...)
	wantAll(t, before, old)
	c.Redis.Command(t, "FLUSHALL")
	gone(before)
	wantAll(t, before, old)

	hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("kept", 40))
	all := hubtest.ReadMemory(t, c.Hubs[0], set)
	if all[0].Datetime <= old[len(old)-1].Datetime {
		t.Errorf("first datetime of the new set = %s, want later than %s", all[0].Datetime, old[len(old)-1].Datetime)
	}
	for i, f := range before {
		gone([]*hubtest.Follower{hubtest.Follow(t, c.Hubs[i%2], f.Transport, set, f.CurrentCursor())})
	}
	wantAll(t, followEverywhere(t, set, c.Hubs...), all)
	for _, h := range c.Hubs {
		hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, h, set), all)
		if v := hubtest.GetReadiness(t, h); !v.Ready || !v.Checks["memory"].OK {
			t.Errorf("readiness = %+v", v)
		}
	}
}
