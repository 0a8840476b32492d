package cluster

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestRedisHangs has a Redis that takes requests and does not answer, and gets
// them all when nobody waits for the answers any more.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "hanging"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	p := hubtest.StartProxy(t, redis.Addr)
	hubs := []*hubtest.Hub{hubtest.JoinCluster(t, "", p.Addr(), nats.Addr)}
	hubs = append(hubs, hubtest.JoinCluster(t, hubs[0].URL, redis.Addr, nats.Addr)) // it has no proxy
	var followers []*hubtest.Follower
	var publishers []*hubtest.Publisher
	for i, h := range hubs {
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
		publishers = append(publishers, hubtest.Publishing(t, h, set, "keyed"+strconv.Itoa(i), true), hubtest.Publishing(t, h, set, "keyless"+strconv.Itoa(i), false))
	}
	hubtest.GoesOn(t, 20, publishers...)
	t.Cleanup(p.Release) // before the publishers finish
	p.Hold()

	// A call takes 10 s at most, and a publish may wait for the one before it.
	const most = 25 * time.Second
	type result struct {
		a    *trial.Answer
		err  error
		took time.Duration
	}
	answers := map[string]chan result{"publish": make(chan result, 1), "readyz": make(chan result, 1)}
	ask := func(what, method, url string, body []byte) {
		begun := time.Now()
		a, err := hubtest.Request(method, url, bytes.NewReader(body), "Content-Type: application/x-ndjson")
		answers[what] <- result{a, err, time.Since(begun)}
	}
	go ask("publish", http.MethodPost, hubs[0].Topic("another"), hubtest.Change("a"))
	go ask("readyz", http.MethodGet, hubs[0].Ops+"/readyz", nil)
	hubtest.GoesOn(t, 20, publishers[2:]...) // the other hub does not notice
	for _, what := range []string{"readyz", "publish"} {
		r := <-answers[what]
		if r.err != nil {
			t.Fatalf("%s: %v", what, r.err)
		}
		t.Logf("%s is answered %d after %v: %s", what, r.a.Status, r.took, r.a.Body)
		if r.a.Status != http.StatusServiceUnavailable || r.took > most {
			t.Errorf("%s is answered %d after %v", what, r.a.Status, r.took)
		}
		if what == "publish" {
			if _, err := hubtest.ProblemOf(r.a); err != nil || r.a.Header.Get("Retry-After") == "" {
				t.Errorf("the publish is answered %v, Retry-After %q: %s", err, r.a.Header.Get("Retry-After"), r.a.Body)
			}
		} else if !strings.Contains(string(r.a.Body), `"ready":false`) {
			t.Errorf("readyz says %s", r.a.Body)
		}
	}
	p.Release()
	hubtest.GoesOn(t, 20, publishers...)
	hubtest.Until(t, "the hub is ready", func() error {
		a, err := hubtest.Request(http.MethodGet, hubs[0].Ops+"/readyz", nil)
		if err == nil && a.Status != http.StatusOK {
			err = errors.New(string(a.Body))
		}
		return err
	})
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.Memory(t, hubs[0], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	allSaw(t, followers, all)
	if n := len(hubtest.Memory(t, hubs[1], "another")); n > 1 {
		t.Errorf("what was answered 503 is %d times in the memory", n)
	}
}

// TestLateDelete has a DELETE that hangs on its way to Redis until the set was deleted by
// another hub, made anew, and published to: then it removes nothing.
func TestLateDelete(t *testing.T) {
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
	if err != nil || !strings.HasSuffix(problem.Type, "/unknown") || strings.Contains(problem.Detail, "Idempotency-Key") || !strings.Contains(problem.Detail, "look at it first") {
		t.Errorf("it is answered %s (%v)", a.Body, err)
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, other.URL+"/sets/"+set, nil)
	for i := range 3 {
		hubtest.Publish(t, other, set, hubtest.Change("new-"+strconv.Itoa(i)))
	}
	p.Release()
	hubtest.Until(t, "the hub that was cut off is ready", func() error {
		a, err := hubtest.Request(http.MethodGet, cut.Ops+"/readyz", nil)
		if err == nil && a.Status != http.StatusOK {
			err = errors.New(string(a.Body))
		}
		return err
	})
	hubtest.Publish(t, cut, set, hubtest.Change("new-3"))
	for _, h := range []*hubtest.Hub{cut, other} {
		if n := len(hubtest.Memory(t, h, set)); n != 4 {
			t.Errorf("%d changes are left of the 4 that were accepted", n)
		}
	}
}

// TestFailover goes on with a replica that lacks the last writes.
func TestFailover(t *testing.T) {
	t.Parallel()
	const set = "failed-over"
	redis, replica, nats := hubtest.StartRedis(t), hubtest.StartRedis(t), hubtest.StartNATS(t)
	host, port, _ := net.SplitHostPort(redis.Addr)
	replica.Tell(t, "REPLICAOF", host, port)
	p := hubtest.StartProxy(t, redis.Addr)
	var hubs []*hubtest.Hub
	for range 2 {
		base := ""
		if len(hubs) > 0 {
			base = hubs[0].URL
		}
		hubs = append(hubs, hubtest.JoinCluster(t, base, p.Addr(), nats.Addr, "RSHUB_CHANGELIST_SIZE=500"))
	}
	var followers []*hubtest.Follower
	for _, h := range hubs {
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	publishAll := func(name string) (publishers []*hubtest.Publisher) {
		for i, h := range hubs {
			publishers = append(publishers, hubtest.Publishing(t, h, set, name+strconv.Itoa(i), true))
		}
		return publishers
	}
	finish := func(publishers []*hubtest.Publisher) {
		for _, p := range publishers {
			p.Finish()
		}
	}
	safe := publishAll("safe")
	hubtest.GoesOn(t, 30, safe...)
	finish(safe)
	hubtest.Until(t, "the replica has it", func() error {
		key := "master_repl_offset:"
		_, a, _ := strings.Cut(redis.Tell(t, "INFO", "replication"), key)
		info := replica.Tell(t, "INFO", "replication")
		_, b, _ := strings.Cut(info, key)
		a, _, _ = strings.Cut(a, "\r")
		b, _, _ = strings.Cut(b, "\r")
		if a != b || !strings.Contains(info, "master_link_status:up") {
			return errors.New(a + " and " + b + ": " + info)
		}
		return nil
	})
	kept := hubtest.Memory(t, hubs[0], set)
	replica.Tell(t, "REPLICAOF", "NO", "ONE")
	lost := publishAll("lost")
	hubtest.GoesOn(t, 30, lost...)
	for _, f := range followers {
		f.Has(t, len(kept)+50)
	}
	// They are under way in the failover too, so that what the replica lacks and
	// what it gets meet.
	p.Point(replica.Addr)
	redis.Kill()
	hubtest.GoesOn(t, 5, lost...)
	finish(lost)
	after := publishAll("after")
	hubtest.GoesOn(t, 30, after...)
	finish(after)

	all := hubtest.Memory(t, hubs[1], set)
	hubtest.Same(t, "the replica", all[:len(kept)], kept)
	for _, p := range append(safe, after...) {
		p.Check(t, all)
	}
	end, err := hubs[0].CursorOf(all[len(all)-1])
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
	for _, h := range hubs {
		hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), all)
	}
}
