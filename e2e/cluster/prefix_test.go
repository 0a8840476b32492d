package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPrefixes has two installations of two hubs each, with one Redis and one NATS. They do not
// affect each other.
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
		followers[i] = followEverywhere(t, set, hubs[i]...)
	}
	for n := range 30 {
		for i := range hubs {
			hubtest.Publish(t, hubs[i][n%2], set, hubtest.Change(fmt.Sprint("in-", i, "-", n)))
		}
	}
	for i := range hubs {
		all := hubtest.ReadMemory(t, hubs[i][1], set)
		for n, e := range all {
			if !strings.Contains(e.Text, fmt.Sprint("/in-", i, "-", n, `"`)) {
				t.Errorf("installation %d: got foreign change %s at position %d", i, e.Text, e.Position)
			}
		}
		if len(all) != 30 {
			t.Errorf("installation %d: got %d changes, want 30", i, len(all))
		}
		wantAll(t, followers[i], all)
		if v := hubtest.Get[struct{ Sets []struct{ Set string } }](t, hubs[i][0].URL+"/sets"); len(v.Sets) != 2 {
			t.Errorf("installation %d: got sets %+v, want 2", i, v.Sets)
		}
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, hubs[0][0].URL+"/sets/"+set, nil)
	for _, f := range followers[0] {
		f.WaitEnd(t, "gone")
	}
	hubtest.Publish(t, hubs[1][1], set, hubtest.Change("after"))
	for _, f := range followers[1] {
		if f.WaitEntries(t, 31); len(f.Errs) > 0 {
			t.Errorf("errors of the %s of the other installation = %q, want none", f.Transport, f.Errs)
		}
	}
	if at := hubtest.Head(t, hubs[0][1], set); at != "" {
		t.Errorf("head of the deleted set = %s, want none", at)
	}
}
