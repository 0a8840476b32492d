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

// allSaw checks that followers have what the memory has, and were never told
// that it diverged.
func allSaw(t *testing.T, followers []*hubtest.Follower, all []trial.Entry) {
	t.Helper()
	for i, f := range followers {
		hubtest.Same(t, "the "+f.Way+" "+strconv.Itoa(i), f.Has(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s %d was told that the memory diverged", f.Way, i)
		}
	}
}

// everybody follows a set at each hub, in every way.
func everybody(t *testing.T, set string, hubs ...*hubtest.Hub) (followers []*hubtest.Follower) {
	for _, h := range hubs {
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	return followers
}

// TestRedisHangs has a Redis that takes what one hub requests and does not answer, and gets
// it all when nobody waits for the answers any more. That hub says so. A deletion that comes
// when the set was deleted by another hub, made anew and published to removes nothing.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "anew"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	p := hubtest.StartProxy(t, redis.Addr)
	cut := hubtest.JoinCluster(t, "", p.Addr(), nats.Addr, "RSHUB_REDIS_TIMEOUT=1s")
	other := hubtest.JoinCluster(t, cut.URL, redis.Addr, nats.Addr)
	hubtest.Publish(t, cut, set, hubtest.Changes("old", 5))
	p.HoldAt("-- delete removes a set") // the script comes whole when Redis does not know it yet
	a := hubtest.Must(t, http.StatusServiceUnavailable, http.MethodDelete, cut.URL+"/sets/"+set, nil)
	if !p.Holds() {
		t.Fatal("no request to delete the set has come by")
	}
	problem, err := hubtest.ProblemOf(a)
	if d := problem.Detail; err != nil || !strings.HasSuffix(problem.Type, "/unknown") || strings.Contains(d, "Idempotency-Key") || !strings.Contains(d, "look at it first") {
		t.Errorf("it is answered %s (%v)", a.Body, err)
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, other.URL+"/sets/"+set, nil)
	for i := range 3 {
		hubtest.Publish(t, other, set, hubtest.Change("new-"+strconv.Itoa(i)))
	}
	p.Release()
	hubtest.Answers(t, cut.Ops+"/readyz")
	hubtest.Publish(t, cut, set, hubtest.Change("new-3"))
	for _, h := range []*hubtest.Hub{cut, other} {
		if n := len(hubtest.Memory(t, h, set)); n != 4 {
			t.Errorf("%d changes are left of the 4 that were accepted", n)
		}
	}

	p.Hold()
	a = hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, cut.Ops+"/readyz", nil)
	if !bytes.Contains(a.Body, []byte(`"ready":false`)) {
		t.Errorf("readyz says %s", a.Body)
	}
	a = hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, cut.Topic("hanging"), hubtest.Change("a"), hubtest.AsNDJSON)
	if _, err := hubtest.ProblemOf(a); err != nil || a.Header.Get("Retry-After") == "" {
		t.Errorf("the publish is answered %v, Retry-After %q: %s", err, a.Header.Get("Retry-After"), a.Body)
	}
	hubtest.Publish(t, other, "hanging", hubtest.Change("b"))
	p.Release()
	hubtest.Answers(t, cut.Ops+"/readyz")
	if n := len(hubtest.Memory(t, other, "hanging")); n > 2 {
		t.Errorf("what was published once, and what was answered 503, are %d changes", n)
	}
}

// TestFailover goes on with a replica that lacks the last writes: all are told that the
// memory diverged, and then have what it has.
func TestFailover(t *testing.T) {
	t.Parallel()
	const set = "failed-over"
	redis, replica, nats := hubtest.StartRedis(t), hubtest.StartRedis(t), hubtest.StartNATS(t)
	host, port, _ := net.SplitHostPort(redis.Addr)
	replica.Tell(t, "REPLICAOF", host, port)
	p := hubtest.StartProxy(t, redis.Addr)
	a := hubtest.JoinCluster(t, "", p.Addr(), nats.Addr, "RSHUB_CHANGELIST_SIZE=50")
	b := hubtest.JoinCluster(t, a.URL, p.Addr(), nats.Addr, "RSHUB_CHANGELIST_SIZE=50")
	followers := everybody(t, set, a, b)
	hubtest.Publish(t, a, set, hubtest.Changes("safe", 100))
	kept := hubtest.Memory(t, b, set)
	hubtest.Until(t, "the replica has it", func() error {
		offset := func(r *hubtest.RedisServer) string {
			_, rest, _ := strings.Cut(r.Tell(t, "INFO", "replication"), "master_repl_offset:")
			line, _, _ := strings.Cut(rest, "\r")
			return line
		}
		if info := replica.Tell(t, "INFO", "replication"); offset(redis) != offset(replica) || !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		return nil
	})
	replica.Tell(t, "REPLICAOF", "NO", "ONE")
	hubtest.Publish(t, a, set, hubtest.Changes("lost", 70))
	for _, f := range followers {
		f.Has(t, len(kept)+70)
	}
	// Some is under way in the failover, so that what the replica lacks and what it gets
	// meet.
	under := hubtest.Publishing(t, a, set, "under-way", true)
	hubtest.GoesOn(t, 10, under)
	p.Point(replica.Addr)
	redis.Kill()
	hubtest.GoesOn(t, 5, under)
	under.Finish()
	after := hubtest.Publishing(t, b, set, "after", true)
	hubtest.GoesOn(t, 30, after)
	after.Finish()

	all := hubtest.Memory(t, b, set)
	hubtest.Same(t, "the replica", all[:len(kept)], kept)
	after.Check(t, all)
	end, err := a.CursorOf(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range followers {
		hubtest.Until(t, "a follower is at the end", func() error {
			if at := f.At(); at != end {
				return errors.New(f.Way + " " + strconv.Itoa(i) + " is at " + at + ", not " + end)
			}
			return nil
		})
		hubtest.Same(t, "the "+f.Way+" "+strconv.Itoa(i), f.Seen(), all)
		if f.Diverged == 0 {
			t.Errorf("the %s %d was not told that the memory diverged", f.Way, i)
		}
	}
	for _, h := range []*hubtest.Hub{a, b} {
		hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), all)
	}
}

// TestRedisEmptied empties Redis behind the hubs' backs. All are told that their cursors are
// gone, also when the set was made anew, which begins later than the old one ended.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	const set = "emptied"
	c := hubtest.StartCluster(t, 2)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("lost", 30))
	old := hubtest.Memory(t, c.Hubs[1], set)
	gone := func(followers []*hubtest.Follower) {
		t.Helper()
		for _, f := range followers {
			how := map[string]string{hubtest.ByWebSocket: "close 4410", hubtest.ByEvents: "gone", hubtest.ByPolling: `"status":410`}[f.Way]
			if end := f.Ended(t, how); !strings.HasPrefix(end, hubtest.ErrGone.Error()) {
				t.Errorf("the %s ends with %q", f.Way, end)
			}
		}
	}
	before := everybody(t, set, c.Hubs...)
	allSaw(t, before, old)
	c.Redis.Tell(t, "FLUSHALL")
	gone(before)
	allSaw(t, before, old)

	hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("kept", 40))
	all := hubtest.Memory(t, c.Hubs[0], set)
	if all[0].Datetime <= old[len(old)-1].Datetime {
		t.Errorf("the new set begins at %s, and the old one ended at %s", all[0].Datetime, old[len(old)-1].Datetime)
	}
	for i, f := range before {
		gone([]*hubtest.Follower{hubtest.Follow(t, c.Hubs[i%2], f.Way, set, f.At())})
	}
	allSaw(t, everybody(t, set, c.Hubs...), all)
	for _, h := range c.Hubs {
		hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), all)
		if v := hubtest.Ready(t, h); !v.Ready || !v.Checks["memory"].OK {
			t.Errorf("readyz says %+v", v)
		}
	}
}
