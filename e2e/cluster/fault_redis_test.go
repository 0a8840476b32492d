package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestRedisEmptied empties Redis behind the hubs' backs, once while nobody
// publishes and once under load.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	const set = "emptied"
	c := hubtest.StartCluster(t, 2)
	everybody := func() (followers []*hubtest.Follower) {
		for _, h := range c.Hubs {
			for _, way := range hubtest.AllWays {
				followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
			}
		}
		return followers
	}
	gone := func(followers []*hubtest.Follower) {
		t.Helper()
		for _, f := range followers {
			how := map[string]string{hubtest.ByWebSocket: "close 4410", hubtest.ByEvents: "gone", hubtest.ByPolling: `"status":410`}[f.Way]
			if end := f.Ended(t, how); !strings.HasPrefix(end, hubtest.ErrGone.Error()) {
				t.Errorf("the %s ends with %q", f.Way, end)
			}
		}
	}

	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("quiet", 30))
	quiet := everybody()
	for _, f := range quiet {
		f.Has(t, 30)
	}
	old := hubtest.Memory(t, c.Hubs[1], set)
	allSaw(t, quiet, old)
	c.Redis.Tell(t, "FLUSHALL")
	gone(quiet)
	allSaw(t, quiet, old)

	// Publishing makes the set anew.
	publishers := []*hubtest.Publisher{hubtest.Publishing(t, c.Hubs[0], set, "lost0", true), hubtest.Publishing(t, c.Hubs[1], set, "lost1", true)}
	hubtest.GoesOn(t, 20, publishers...)
	loaded := everybody()
	for _, f := range loaded {
		f.Has(t, 100)
	}
	// Who was there before learns the same now that there are other entries.
	for i, f := range quiet {
		gone([]*hubtest.Follower{hubtest.Follow(t, c.Hubs[i%2], f.Way, set, f.At())})
	}
	c.Redis.Tell(t, "FLUSHALL")
	hubtest.GoesOn(t, 20, publishers...)
	gone(loaded)
	for _, p := range publishers {
		p.Finish()
	}
	// All have seen a beginning of the one memory that was lost.
	longest := loaded[0].Seen()
	for _, f := range loaded {
		if s := f.Seen(); len(s) > len(longest) {
			longest = s
		}
	}
	for _, f := range loaded {
		s := f.Seen()
		hubtest.Same(t, "the "+f.Way, s, longest[:len(s)])
	}

	p := hubtest.Publishing(t, c.Hubs[1], set, "kept", true)
	last := everybody()
	hubtest.GoesOn(t, 20, p)
	p.Finish()
	all := hubtest.Memory(t, c.Hubs[0], set)
	if all[0].Datetime <= longest[len(longest)-1].Datetime {
		t.Errorf("the new set begins at %s, and the old one ended at %s", all[0].Datetime, longest[len(longest)-1].Datetime)
	}
	p.Check(t, all)
	allSaw(t, last, all)
	for _, h := range c.Hubs {
		hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), all)
		if v := hubtest.Ready(t, h); !v.Ready || !v.Checks["memory"].OK {
			t.Errorf("readyz says %+v", v)
		}
	}
}

// TestPrefixes has two installations, of two hubs each, on one Redis and one
// NATS.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	const set = "same.name"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	type installation struct {
		hubs       []*hubtest.Hub
		followers  []*hubtest.Follower
		publishers []*hubtest.Publisher
	}
	var all []*installation
	for _, prefix := range []string{"rshub", "rshub-changes"} {
		in := &installation{}
		for range 2 {
			base := ""
			if len(in.hubs) > 0 {
				base = in.hubs[0].URL
			}
			in.hubs = append(in.hubs, hubtest.JoinCluster(t, base, redis.Addr, nats.Addr, "RSHUB_PREFIX="+prefix, "RSHUB_CHANGELIST_SIZE=200"))
		}
		hubtest.Publish(t, in.hubs[0], "only-"+prefix, hubtest.Change("x"))
		all = append(all, in)
	}
	for i, in := range all {
		for j, h := range in.hubs {
			for _, way := range hubtest.AllWays {
				in.followers = append(in.followers, hubtest.Follow(t, h, way, set, "start"))
			}
			in.publishers = append(in.publishers, hubtest.Publishing(t, h, set, fmt.Sprintf("in%d-%d", i, j), true))
		}
	}
	for _, in := range all {
		hubtest.GoesOn(t, 30, in.publishers...)
	}
	for i, in := range all {
		for _, p := range in.publishers {
			p.Finish()
		}
		entries := hubtest.Memory(t, in.hubs[1], set)
		count := 0
		for _, p := range in.publishers {
			p.Check(t, entries)
			for _, b := range p.Batches {
				count += len(b.Texts)
			}
		}
		if count != len(entries) {
			t.Errorf("installation %d has %d changes, and %d were published to it", i, len(entries), count)
		}
		allSaw(t, in.followers, entries)
		for _, h := range in.hubs {
			hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), entries)
			v := hubtest.Get[struct{ Sets []struct{ Set, Head string } }](t, h.URL+"/sets")
			if len(v.Sets) != 2 {
				t.Errorf("installation %d has the sets %+v", i, v.Sets)
			}
		}
	}
	// What is deleted in one stays in the other, and who follows there hears
	// nothing of it.
	other := all[1].followers[0].Seen()
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, all[0].hubs[0].URL+"/sets/"+set, nil)
	all[0].followers[0].Ended(t, "4410")
	all[0].followers[3].Ended(t, "4410")
	hubtest.Publish(t, all[1].hubs[1], set, hubtest.Change("after"))
	for _, f := range all[1].followers {
		f.Has(t, len(other)+1)
		if len(f.Ends) > 0 {
			t.Errorf("the %s of the other installation was ended: %q", f.Way, f.Ends)
		}
	}
	if at := hubtest.Head(t, all[0].hubs[1], set); at != "" {
		t.Errorf("the deleted set is at %s", at)
	}
}
