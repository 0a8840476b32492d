package e2e

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// joinCluster starts a hub on a Redis and a NATS. base is the URL of all; empty:
// its own.
func joinCluster(t testing.TB, base, redis, nats string, env ...string) *hub {
	t.Helper()
	h := newHub(t, env...)
	if base == "" {
		base = h.url
	}
	h.env = append(h.env, "RSHUB_BASE_URL="+base, "RSHUB_REDIS_URL=redis://"+redis, "RSHUB_NATS_URL=nats://"+nats)
	h.start(t)
	return h
}

// startRedis starts a Redis of its own.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	r := &redisServer{addr: freePort(t), dir: t.TempDir()}
	r.start(t)
	return r
}

// startNATS starts a NATS of its own.
func startNATS(t testing.TB) *natsServer {
	t.Helper()
	n := &natsServer{addr: freePort(t)}
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

// passes waits for so long.
func passes(t *testing.T, d time.Duration) {
	t.Helper()
	begun := time.Now()
	until(t, d.String()+" pass", func() error {
		if time.Since(begun) < d {
			return errors.New("not yet")
		}
		return nil
	})
}

// allSaw checks that followers have what the memory has, and were never told
// that it diverged.
func allSaw(t *testing.T, followers []*follower, all []entry) {
	t.Helper()
	for i, f := range followers {
		same(t, "the "+f.way+" "+strconv.Itoa(i), f.has(t, len(all)), all)
		if f.diverged > 0 {
			t.Errorf("the %s %d was told that the memory diverged", f.way, i)
		}
	}
}

// TestHubStopped stops a hub under load with SIGSTOP for longer than a hub looks
// for changes that were not announced, and lets it go on.
func TestHubStopped(t *testing.T) {
	t.Parallel()
	const set = "asleep"
	c := startCluster(t, 2, "RSHUB_CHANGELIST_SIZE=500")
	var followers []*follower
	var publishers []*publisher
	for i, h := range c.hubs {
		for _, way := range allWays {
			followers = append(followers, follow(t, h, way, set, "start"))
		}
		publishers = append(publishers, publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	goesOn(t, 20, publishers...)
	stopped := c.hubs[1]
	t.Cleanup(func() { stopped.signal(syscall.SIGCONT) })
	stopped.signal(syscall.SIGSTOP)
	goesOn(t, 20, publishers[0])
	passes(t, 3*time.Second)
	goesOn(t, 20, publishers[0])
	stopped.signal(syscall.SIGCONT)
	goesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, stopped, set)
	for _, p := range publishers {
		p.check(t, all)
	}
	allSaw(t, followers, all)
	same(t, "the walk over all Change Lists", walk(t, stopped, set), all)
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
	redis := startRedis(t)
	refusing := freePort(t)
	hubs := []*hub{newHub(t), newHub(t), newHub(t)}
	for i, nats := range []string{refusing, refusing, silent.Addr().String()} {
		h := hubs[i]
		h.env = append(h.env, "RSHUB_BASE_URL="+hubs[0].url, "RSHUB_REDIS_URL=redis://"+redis.addr, "RSHUB_NATS_URL=nats://"+nats)
		h.process = start(t, h.env, nil, rshubBin)
	}
	for _, h := range hubs {
		begun := time.Now()
		h.running()
		t.Logf("waited another %v for the hub", time.Since(begun))
	}
	var followers []*follower
	for _, h := range hubs {
		if v := ready(t, h); !v.degraded() {
			t.Errorf("readyz says %+v", v)
		}
		for _, way := range allWays {
			followers = append(followers, follow(t, h, way, set, "start"))
		}
	}
	// One publisher at a time: what the other hubs see of it, only the ticker
	// shows them.
	for _, i := range []int{0, 2} {
		h := hubs[i]
		p := publishing(t, h, set, "hub"+strconv.Itoa(i), true)
		goesOn(t, 20, p)
		p.finish()
		all := memory(t, h, set)
		p.check(t, all)
		allSaw(t, followers, all)
	}
}
