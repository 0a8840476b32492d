package redislog

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func TestManySets(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	l := start(t, shared.url(), Options{})
	const n = 2500 // several pipelines
	for i := range n {
		ok(t, l.Make(t.Context(), fmt.Sprintf("set-%04d", i), feed.Description{}, 10))
	}
	sets, err := l.Sets(t.Context())
	ok(t, err)
	if len(sets) != n || sets[0].Set != "set-0000" || sets[n-1].Set != fmt.Sprintf("set-%04d", n-1) {
		t.Errorf("got %d sets", len(sets))
	}
}

// TestNameWaits checks that Make waits for the replicas of both servers in a cluster, because the
// names of all sets may be on another server than a set. A set whose name is lost would be in no
// list, and never be trimmed.
func TestNameWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for three servers to connect")
	}
	t.Parallel()
	ctx := t.Context()
	node := func() *server {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		ok(t, err)
		_, bus, _ := net.SplitHostPort(free.Addr().String())
		ok(t, free.Close())
		return newServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-port", bus)
	}
	names, sets, replica := node(), node(), node()
	o := Options{Prefix: prefix()}
	slot := names.admin(t).ClusterKeySlot(ctx, o.Prefix+":sets").Val()
	ok(t, names.admin(t).ClusterAddSlotsRange(ctx, int(slot), int(slot)).Err())
	ok(t, sets.admin(t).ClusterAddSlotsRange(ctx, 0, int(slot)-1).Err())
	ok(t, sets.admin(t).ClusterAddSlotsRange(ctx, int(slot)+1, 16383).Err())
	host, port, _ := net.SplitHostPort(sets.addr)
	for _, s := range []*server{names, replica} {
		ok(t, s.admin(t).Do(ctx, "cluster", "meet", host, port, sets.args[len(sets.args)-1]).Err())
	}
	id := sets.admin(t).Do(ctx, "cluster", "myid").Val()
	testutil.Until(t, "the replica follows", func() bool {
		_ = replica.admin(t).Do(ctx, "cluster", "replicate", id).Err()
		n, _ := sets.admin(t).Do(ctx, "wait", 1, 100).Int()
		return n == 1
	})
	for _, s := range []*server{names, sets} {
		testutil.Until(t, "the servers know each other", func() bool {
			info := s.admin(t).ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	l := startOn(t, connect(t, sets.url()+"?cluster=true", redisconn.Options{Wait: 1, WaitTimeout: 100 * time.Millisecond}), o)
	wantErr(t, feed.ErrUnknown, l.Make(ctx, "set", feed.Description{}, 10))
}

// TestDeleteWaits checks that Delete returns only after the replicas have the deletion, even if its
// first answer is lost.
func TestDeleteWaits(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, shared.addr)
	o := Options{Prefix: prefix()}
	l := startOn(t, connect(t, "redis://"+p.Addr(), redisconn.Options{Wait: 1, WaitTimeout: 10 * time.Millisecond}), o)
	makeSet(t, start(t, shared.url(), o), 10)
	var lost atomic.Int32
	lost.Store(2) // the first answer is to the read of the set
	p.Lose(func() bool { return lost.Add(-1) == 0 })
	wantErr(t, feed.ErrUnknown, l.Delete(t.Context(), "set"))
}
