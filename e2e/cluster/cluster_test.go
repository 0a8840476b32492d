package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestClusterDocuments compares what the hubs of a cluster serve, byte for byte.
func TestClusterDocuments(t *testing.T) {
	t.Parallel()
	const set = "alike"
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=100")
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("a", 150), "Idempotency-Key: one")
	if r := hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("a", 150), "Idempotency-Key: one"); !r.Replayed {
		t.Errorf("the same key at another hub: %+v", r)
	}
	hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("b", 200))
	paths := []string{"/.well-known/resourcesync", "/sets/" + set + "/changes"}
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changelist-index.xml", ".well-known/resourcesync"} {
		paths = append(paths, "/sets/"+set+"/"+name)
	}
	for _, it := range hubtest.Document(t, c.Hubs[0].URL+"/sets/"+set+"/changelist-index.xml").Items {
		u, err := url.Parse(it.Loc)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, u.Path)
	}
	if len(paths) != 6+4 {
		t.Errorf("there are %d documents: %q", len(paths), paths)
	}
	for _, path := range paths {
		a := hubtest.Must(t, http.StatusOK, http.MethodGet, c.Hubs[0].URL+path, nil)
		b := hubtest.Must(t, http.StatusOK, http.MethodGet, c.Hubs[1].URL+path, nil)
		if !bytes.Equal(a.Body, b.Body) || a.Header.Get("ETag") != b.Header.Get("ETag") || a.Header.Get("ETag") == "" {
			t.Errorf("%s differs between hubs:\n%s %s\n%s %s", path, a.Header.Get("ETag"), a.Body, b.Header.Get("ETag"), b.Body)
		}
	}
}

// TestClusterDelete deletes a set at one hub while it is followed at another.
func TestClusterDelete(t *testing.T) {
	t.Parallel()
	const set = "shortlived"
	c := hubtest.StartCluster(t, 2)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("a", 3))
	f := hubtest.Follow(t, c.Hubs[1], hubtest.ByWebSocket, set, "start")
	f.Has(t, 3)
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, c.Hubs[0].URL+"/sets/"+set, nil)
	f.Ended(t, "4410")
}

// TestPrefixes has two installations, of two hubs each, on one Redis and one NATS. What
// happens in one, nobody notices in the other.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	const set = "same.name"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	var hubs [2][]*hubtest.Hub
	var followers [2][]*hubtest.Follower
	for i, prefix := range []string{"rshub", "rshub-changes"} {
		a := hubtest.JoinCluster(t, "", redis.Addr, nats.Addr, "RSHUB_PREFIX="+prefix)
		hubs[i] = []*hubtest.Hub{a, hubtest.JoinCluster(t, a.URL, redis.Addr, nats.Addr, "RSHUB_PREFIX="+prefix)}
		hubtest.Publish(t, a, "only-"+prefix, hubtest.Change("x"))
		followers[i] = everybody(t, set, hubs[i]...)
	}
	for n := range 30 {
		for i := range hubs {
			hubtest.Publish(t, hubs[i][n%2], set, hubtest.Change(fmt.Sprint("in-", i, "-", n)))
		}
	}
	for i := range hubs {
		all := hubtest.Memory(t, hubs[i][1], set)
		for n, e := range all {
			if !strings.Contains(e.Text, fmt.Sprint("/in-", i, "-", n, `"`)) {
				t.Errorf("installation %d has %s at position %d", i, e.Text, e.Position)
			}
		}
		if len(all) != 30 {
			t.Errorf("installation %d has %d changes", i, len(all))
		}
		allSaw(t, followers[i], all)
		if v := hubtest.Get[struct{ Sets []struct{ Set string } }](t, hubs[i][0].URL+"/sets"); len(v.Sets) != 2 {
			t.Errorf("installation %d has the sets %+v", i, v.Sets)
		}
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, hubs[0][0].URL+"/sets/"+set, nil)
	for _, f := range followers[0] {
		f.Ended(t, "gone")
	}
	hubtest.Publish(t, hubs[1][1], set, hubtest.Change("after"))
	for _, f := range followers[1] {
		if f.Has(t, 31); len(f.Ends) > 0 {
			t.Errorf("the %s of the other installation was ended: %q", f.Way, f.Ends)
		}
	}
	if at := hubtest.Head(t, hubs[0][1], set); at != "" {
		t.Errorf("the deleted set is at %s", at)
	}
}
