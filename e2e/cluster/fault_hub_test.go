package cluster

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// passes waits for so long.
func passes(t *testing.T, d time.Duration) {
	t.Helper()
	begun := time.Now()
	hubtest.Until(t, d.String()+" pass", func() error {
		if time.Since(begun) < d {
			return errors.New("not yet")
		}
		return nil
	})
}

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

// TestHubStopped stops a hub under load with SIGSTOP for longer than a hub looks
// for changes that were not announced, and lets it go on.
func TestHubStopped(t *testing.T) {
	t.Parallel()
	const set = "asleep"
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=500")
	var followers []*hubtest.Follower
	var publishers []*hubtest.Publisher
	for i, h := range c.Hubs {
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
		publishers = append(publishers, hubtest.Publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	hubtest.GoesOn(t, 20, publishers...)
	stopped := c.Hubs[1]
	t.Cleanup(func() { stopped.Signal(syscall.SIGCONT) })
	stopped.Signal(syscall.SIGSTOP)
	hubtest.GoesOn(t, 20, publishers[0])
	passes(t, 3*time.Second)
	hubtest.GoesOn(t, 20, publishers[0])
	stopped.Signal(syscall.SIGCONT)
	hubtest.GoesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.Memory(t, stopped, set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	allSaw(t, followers, all)
	hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, stopped, set), all)
}

// TestNATSNeverThere starts hubs whose NATS refuses connections, and one whose
// NATS takes them and says nothing.
func TestNATSNeverThere(t *testing.T) {
	t.Parallel()
	const set = "unannounced"
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections for it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	redis := hubtest.StartRedis(t)
	refusing := hubtest.FreePort(t)
	hubs := []*hubtest.Hub{hubtest.NewHub(t), hubtest.NewHub(t), hubtest.NewHub(t)}
	for i, nats := range []string{refusing, refusing, silent.Addr().String()} {
		h := hubs[i]
		h.Env = append(h.Env, "RSHUB_BASE_URL="+hubs[0].URL, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+nats)
		h.Process = hubtest.Start(t, h.Env, nil, hubtest.Rshub)
	}
	for _, h := range hubs {
		begun := time.Now()
		h.Running()
		t.Logf("waited another %v for the hub", time.Since(begun))
	}
	var followers []*hubtest.Follower
	for _, h := range hubs {
		if v := hubtest.Ready(t, h); !v.Degraded() {
			t.Errorf("readyz says %+v", v)
		}
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	// One publisher at a time: what the other hubs see of it, only the ticker
	// shows them.
	for _, i := range []int{0, 2} {
		h := hubs[i]
		p := hubtest.Publishing(t, h, set, "hub"+strconv.Itoa(i), true)
		hubtest.GoesOn(t, 20, p)
		p.Finish()
		all := hubtest.Memory(t, h, set)
		p.Check(t, all)
		allSaw(t, followers, all)
	}
}
