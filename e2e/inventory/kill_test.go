package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
)

// reads checks that a baseline has what the set holds, whatever path it is read by.
func (s *source) reads(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	c := newClient(t, h)
	got, cursor := fold{}, ""
	for p, err := range c.Baseline(t.Context(), s.set, client.BaselineOptions{Limit: 2_000}) {
		if err != nil {
			t.Fatalf("a baseline of %s: %v", s.set, err)
		}
		if p.Restart {
			clear(got)
		}
		for i := range p.Entries {
			got.apply(lineOf(&p.Entries[i]))
		}
		cursor = p.Place.Cursor.String()
	}
	same(t, "the baseline", got, s.at(t, cursor))
}

// commits counts the roots that a hub has made.
func commits(t *testing.T, h *hubtest.Hub) (n float64) {
	a, err := hubtest.Request(http.MethodGet, h.Ops+"/metrics", nil)
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(a.Body)) {
		if _, err := fmt.Sscanf(l, "rshub_inventory_commits_total %g", &n); err == nil {
			return n
		}
	}
	t.Fatalf("the metrics have no rshub_inventory_commits_total: %.2000s", a.Body)
	return 0
}

// TestHubKilled kills a hub on disk while it publishes and makes roots: at any moment, or
// as soon as a root was made. Afterwards the inventory is right, and as complete as it was.
func TestHubKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	h := hubtest.StartHub(t)
	s := &stream{source: newSource("killed"), truth: fold{}}
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	done := s.run(t, r.Uint64(), 1<<30, []*hubtest.Hub{h})
	kills := size(8, 100)
	for n := range kills {
		if head := s.newestCursor(); r.IntN(2) == 0 {
			made := commits(t, h)
			hubtest.Until(t, "a root is made", func() error {
				if commits(t, h) == made {
					return fmt.Errorf("not yet")
				}
				return nil
			})
		} else {
			more := uint64(r.IntN(3_000))
			hubtest.Until(t, "more is published", func() error {
				if positionOf(s.newestCursor()) < positionOf(head)+more {
					return fmt.Errorf("not enough")
				}
				return nil
			})
		}
		h.Kill()
		h.Start(t)
		l := s.proved(t, h)
		if !l.Complete {
			t.Fatalf("after kill %d the inventory is not complete any more", n)
		}
		if n%4 == 0 {
			s.reads(t, h)
		}
	}
	s.end()
	<-done
	s.proved(t, h)
	s.reads(t, h)
	h.Stop(t)
	h.Start(t)
	s.proved(t, h)
}

// TestHubOfTwoKilled kills one of two hubs while its requests to Redis are on the way, so
// that Redis gets the beginning of a commit, and not the rest. The other hub takes over.
func TestHubOfTwoKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	proxy := hubtest.StartProxy(t, redis.Addr)
	doomed := hubtest.JoinCluster(t, "", proxy.Addr(), nats.Addr)
	other := hubtest.JoinCluster(t, doomed.URL, redis.Addr, nats.Addr)
	hubs := []*hubtest.Hub{doomed, other}
	// Each hub makes the inventories of some of the sets.
	var all []*stream
	for i := range size(4, 8) {
		s := &stream{source: newSource(fmt.Sprint("set", i)), truth: fold{}}
		s.publish(t, other, resources(steady, 1_500))
		s.complete(t, other)
		all = append(all, s)
	}
	for range size(3, 40) {
		var done []chan struct{}
		for _, s := range all {
			done = append(done, s.run(t, r.Uint64(), 2_000, hubs[1:]))
		}
		proxy.HoldAfter(1 + r.IntN(400_000))
		hubtest.Until(t, "the hub is in the middle of a request", func() error {
			if !proxy.Holds() {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		doomed.Kill()
		proxy.Point(redis.Addr) // what was held is lost
		proxy.Release()
		for _, d := range done {
			<-d
		}
		for _, s := range all {
			s.proved(t, other)
		}
		doomed.Start(t)
		for _, s := range all {
			if l := s.proved(t, doomed); !l.Complete {
				t.Fatalf("the inventory of %s is not complete any more", s.set)
			}
		}
		all[r.IntN(len(all))].reads(t, doomed)
	}
}

// TestRedisKilled kills Redis while two hubs publish and make roots, and then empties it.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	c := hubtest.StartCluster(t, 2)
	s := &stream{source: newSource("torn"), truth: fold{}}
	s.publish(t, c.Hubs[0], resources(steady, 1_500))
	s.complete(t, c.Hubs[1])
	done := s.run(t, r.Uint64(), 1<<30, c.Hubs)
	for range size(3, 30) {
		from, more := positionOf(s.newestCursor()), uint64(r.IntN(2_000))
		hubtest.Until(t, "more is published", func() error {
			if positionOf(s.newestCursor()) < from+more {
				return fmt.Errorf("not enough")
			}
			return nil
		})
		c.Redis.Kill()
		c.Redis.Start(t)
		for _, h := range c.Hubs {
			if l := s.proved(t, h); !l.Complete {
				t.Fatal("the inventory is not complete any more")
			}
		}
		s.reads(t, c.Hubs[r.IntN(2)])
	}
	s.end()
	<-done
	old := s.newestCursor()
	for life := range size(2, 10) {
		c.Redis.Tell(t, "FLUSHALL")
		again := newSource(s.set)
		again.name = fmt.Sprint("life", life)
		again.publish(t, c.Hubs[life%2], resources(fmt.Sprint("again", life), 500+r.IntN(1_000)))
		for _, h := range c.Hubs {
			if l := again.proved(t, h); l.Complete {
				t.Fatal("the new inventory is complete, and nobody said so")
			}
			again.reads(t, h)
			goneFrom(t, h, s.set, old)
		}
		old = again.newestCursor()
	}
}

// goneFrom checks that a hub cannot look from a cursor that the set does not have any more.
func goneFrom(t *testing.T, h *hubtest.Hub, set, cursor string) {
	t.Helper()
	a := hubtest.Must(t, http.StatusGone, http.MethodGet, h.URL+"/sets/"+set+"/audit?from="+cursor, nil)
	if p, err := hubtest.ProblemOf(a); err != nil || !strings.Contains(p.Detail, "baseline") {
		t.Errorf("the answer to a cursor that is gone names no baseline: %s: %v", a.Body, err)
	}
}

// TestMadeAnew deletes a set and makes it anew under baselines that are being read, and
// under audits. Nobody gets a mixture of both, and no audit names a difference between them.
func TestMadeAnew(t *testing.T) {
	t.Run("a hub on disk", func(t *testing.T) {
		t.Parallel()
		madeAnew(t, hubtest.StartHub(t))
	})
	t.Run("two hubs on Redis", func(t *testing.T) {
		t.Parallel()
		madeAnew(t, hubtest.StartCluster(t, 2).Hubs...)
	})
}

func madeAnew(t *testing.T, hubs ...*hubtest.Hub) {
	r := hubtest.Random(t)
	const set = "anew"
	last := hubs[len(hubs)-1]
	make := func(life int) *source {
		s := newSource(set)
		s.name = fmt.Sprint("life", life)
		s.complete(t, hubs[0]) // a baseline that is not complete would leave what is of an earlier life
		// So many that nobody is given the root from before them, which somebody may read.
		s.publish(t, hubs[0], resources(fmt.Sprint("life", life), 11_000+r.IntN(2_000)))
		s.publish(t, hubs[0], resources("always", 1_000))
		hubtest.Until(t, "a baseline has the resources", func() error {
			if m := hubtest.Get[message](t, last.Topic(set)+"?since=baseline&limit=1"); m.Count < 11_000 {
				return fmt.Errorf("it has %d", m.Count)
			}
			return nil
		})
		return s
	}
	s := make(0)
	var destinations []*destination
	for _, way := range []string{byWebSocket, byEvents, byReplica} {
		destinations = append(destinations, newDestination(t, way, set, hubs))
	}
	for life := 1; life <= size(3, 20); life++ {
		s.proved(t, last)
		audits, cancel := auditing(t, last, set)
		for _, d := range destinations { // in the middle of a baseline, or of changes, or not yet there
			if d.process == nil || d.process.Ended() {
				d.live(t, hubs[r.IntN(len(hubs))], 0)
			}
		}
		// A baseline page by page, with the set made anew between two of them.
		c := newClient(t, last)
		at, pages, restarts := 1+r.IntN(7), 0, 0
		got, cursor := fold{}, ""
		for p, err := range c.Baseline(t.Context(), set, client.BaselineOptions{Limit: 1_500}) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Restart {
				restarts++
				clear(got)
			}
			for i := range p.Entries {
				got.apply(lineOf(&p.Entries[i]))
			}
			cursor = p.Place.Cursor.String()
			if pages++; pages == at {
				hubtest.Must(t, http.StatusNoContent, http.MethodDelete, hubs[0].URL+"/sets/"+set, nil)
				old := s.newestCursor()
				s = make(life)
				s.proved(t, last)
				goneFrom(t, last, set, old)
			}
		}
		if restarts == 0 {
			t.Fatalf("life %d: the set was made anew behind page %d of %d, and the baseline did not begin anew", life, at, pages)
		}
		same(t, "the baseline", got, s.at(t, cursor))
		cancel()
		<-audits
	}
	for _, d := range destinations {
		d.proves(t, s, true)
	}
}

// auditing audits a replica again and again, until cancel. It does not follow, so the
// audits end with an error once the set was made anew. No audit may name a difference, and
// the first one ends without an error. ended is closed when the last has ended.
func auditing(t *testing.T, h *hubtest.Hub, set string) (ended chan struct{}, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	replica := open(t, newClient(t, h), set, newMemory())
	if _, err := catchUp(ctx, replica); err != nil {
		t.Fatal(err)
	}
	if found, err := try(replica.Audit(ctx, client.AuditOptions{})); len(found) > 0 || err != nil { // on a busy machine no other may end before the set is made anew
		t.Fatalf("an audit names %d differences: %v", len(found), err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			found, err := try(replica.Audit(ctx, client.AuditOptions{}))
			switch {
			case ctx.Err() != nil:
			case len(found) > 0:
				t.Errorf("an audit names %d differences between two lives of a set: %v", len(found), err)
				return
			case err != nil && !errors.Is(err, feed.ErrGone) && !errors.Is(err, feed.ErrNoSet):
				t.Errorf("an audit of an earlier life of a set ends with %v", err)
				return
			}
		}
	}()
	return ended, cancel
}
