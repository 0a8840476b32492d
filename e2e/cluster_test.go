package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A cluster is several hubs on one Redis and one NATS. The first hub's URL is
// that of all.
type cluster struct {
	hubs  []*hub
	redis *redisServer
	nats  *natsServer
}

func startCluster(t *testing.T, n int, env ...string) *cluster {
	t.Helper()
	c := &cluster{nats: &natsServer{addr: freePort(t)}}
	c.redis = &redisServer{addr: freePort(t), dir: t.TempDir()}
	c.redis.start(t)
	c.nats.start(t)
	t.Cleanup(c.nats.stop)
	for range n {
		h := newHub(t)
		if len(c.hubs) > 0 {
			env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "RSHUB_BASE_URL=") })
		}
		env = append(env, "RSHUB_BASE_URL="+append(c.hubs, h)[0].url)
		h.env = append(h.env, env...)
		h.env = append(h.env, "RSHUB_REDIS_URL=redis://"+c.redis.addr, "RSHUB_NATS_URL=nats://"+c.nats.addr)
		h.start(t)
		c.hubs = append(c.hubs, h)
	}
	return c
}

// A redisServer is a real Redis that loses nothing that it has acknowledged, and
// can be killed and started again.
type redisServer struct {
	*process
	addr, dir string
}

func (r *redisServer) start(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("this test needs redis-server: apt-get install redis-server")
	}
	host, port, _ := net.SplitHostPort(r.addr)
	r.process = start(t, nil, nil, "redis-server", "--bind", host, "--port", port, "--dir", r.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	until(t, "Redis listens", func() error {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// A natsServer is a real NATS server that can be stopped and started again.
type natsServer struct {
	addr    string
	options server.Options
	s       *server.Server
}

func (n *natsServer) start(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(n.addr)
	number, _ := strconv.Atoi(port)
	options := n.options
	options.Host, options.Port, options.NoSigs, options.NoLog = host, number, true, true
	var err error
	if n.s, err = server.NewServer(&options); err != nil {
		t.Fatal(err)
	}
	n.s.Start()
	if !n.s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS does not take connections")
	}
}

func (n *natsServer) stop() {
	n.s.Shutdown()
	n.s.WaitForShutdown()
}

// A readiness is what /readyz of a hub says.
type readiness struct {
	Ready  bool
	Checks map[string]struct {
		OK, Required bool
		Reason       string
	}
}

// ready returns what /readyz of a hub says that is ready.
func ready(t *testing.T, h *hub) readiness {
	t.Helper()
	return get[readiness](t, h.ops+"/readyz")
}

// degraded reports whether it goes on without NATS, and says so.
func (r readiness) degraded() bool {
	c := r.Checks["nats"]
	return r.Ready && !c.OK && !c.Required && c.Reason != ""
}

// goesOn waits until each of the publishers has more acknowledged.
func goesOn(t *testing.T, more int, publishers ...*publisher) {
	t.Helper()
	for _, p := range publishers {
		n := p.acknowledged()
		until(t, "publishing goes on", func() error {
			if p.acknowledged() < n+more {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// TestCluster publishes to all hubs at once, follows at all, takes NATS away and
// kills a hub: what was acknowledged is in the memory once, and all followers at
// all hubs see it in one order.
func TestCluster(t *testing.T) {
	t.Parallel()
	const set = "shared.set"
	c := startCluster(t, 3, "RSHUB_CHANGELIST_SIZE=500")
	var followers []*follower
	for _, h := range c.hubs {
		for _, way := range []string{byWebSocket, byEvents} {
			followers = append(followers, follow(t, h, way, set, "start"))
		}
	}
	var publishers []*publisher
	for i, h := range c.hubs {
		publishers = append(publishers, publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	goesOn(t, 20, publishers...)

	c.nats.stop()
	until(t, "the hubs say that NATS is away", func() error {
		if v := ready(t, c.hubs[0]); !v.degraded() {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	goesOn(t, 20, publishers...)
	there := followers[0].count()
	until(t, "followers of other hubs go on without NATS", func() error {
		for _, f := range followers {
			if f.count() < there+20 {
				return errors.New(f.way)
			}
		}
		return nil
	})
	c.nats.start(t)
	until(t, "NATS is back", func() error {
		if v := ready(t, c.hubs[0]); !v.Checks["nats"].OK {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	goesOn(t, 20, publishers...)

	c.hubs[2].kill()
	goesOn(t, 20, publishers[:2]...)
	c.hubs[2].start(t)
	goesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.finish()
	}

	all := memory(t, c.hubs[0], set)
	for _, p := range publishers {
		p.check(t, all)
	}
	for i, f := range followers {
		same(t, "the "+f.way+" "+strconv.Itoa(i), f.has(t, len(all)), all)
		if f.diverged > 0 {
			t.Errorf("the %s %d was told that the memory diverged", f.way, i)
		}
	}
	same(t, "the walk over all Change Lists", walk(t, c.hubs[0], set), all)
}

// TestRedisKilled kills Redis under load, and starts it again from its
// append-only file.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	const set = "killed-below"
	c := startCluster(t, 2)
	var followers []*follower
	var publishers []*publisher
	for i, h := range c.hubs {
		followers = append(followers, follow(t, h, byWebSocket, set, "start"))
		publishers = append(publishers, publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	for range 3 {
		goesOn(t, 20, publishers...)
		c.redis.kill()
		until(t, "the hub says that Redis is away", func() error {
			a, err := request(http.MethodGet, c.hubs[0].ops+"/readyz", nil)
			if err == nil && a.status != http.StatusServiceUnavailable {
				err = errors.New(string(a.body))
			}
			return err
		})
		c.redis.start(t)
	}
	goesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, c.hubs[0], set)
	for _, p := range publishers {
		p.check(t, all)
	}
	for i, f := range followers {
		same(t, "the follower of hub "+strconv.Itoa(i), f.has(t, len(all)), all)
		if f.diverged > 0 {
			t.Errorf("follower %d was told that the memory diverged", i)
		}
	}
}

// TestClusterDocuments compares what the hubs of a cluster serve, byte for byte.
func TestClusterDocuments(t *testing.T) {
	t.Parallel()
	const set = "alike"
	c := startCluster(t, 2, "RSHUB_CHANGELIST_SIZE=100")
	publish(t, c.hubs[0], set, changes("a", 150), "Idempotency-Key: one")
	if r := publish(t, c.hubs[1], set, changes("a", 150), "Idempotency-Key: one"); !r.Replayed {
		t.Errorf("the same key at another hub: %+v", r)
	}
	publish(t, c.hubs[1], set, changes("b", 200))
	paths := []string{"/.well-known/resourcesync", "/sets/" + set + "/changes"}
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changelist-index.xml", ".well-known/resourcesync"} {
		paths = append(paths, "/sets/"+set+"/"+name)
	}
	for _, it := range document(t, c.hubs[0].url+"/sets/"+set+"/changelist-index.xml").Items {
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
		a := must(t, http.StatusOK, http.MethodGet, c.hubs[0].url+path, nil)
		b := must(t, http.StatusOK, http.MethodGet, c.hubs[1].url+path, nil)
		if !bytes.Equal(a.body, b.body) || a.header.Get("ETag") != b.header.Get("ETag") || a.header.Get("ETag") == "" {
			t.Errorf("%s differs between hubs:\n%s %s\n%s %s", path, a.header.Get("ETag"), a.body, b.header.Get("ETag"), b.body)
		}
	}
}

// TestClusterDelete deletes a set at one hub while it is followed at another.
func TestClusterDelete(t *testing.T) {
	t.Parallel()
	const set = "shortlived"
	c := startCluster(t, 2)
	publish(t, c.hubs[0], set, changes("a", 3))
	f := follow(t, c.hubs[1], byWebSocket, set, "start")
	f.has(t, 3)
	must(t, http.StatusNoContent, http.MethodDelete, c.hubs[0].url+"/sets/"+set, nil)
	f.ended(t, "4410")
}
