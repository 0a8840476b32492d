package cluster

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A balancer forwards each connection to one of the hubs that were ready at its last check,
// round-robin. Like a Service of Kubernetes, it does not try another hub: clients see the errors
// of the hub.
type balancer struct {
	listener net.Listener
	hubs     []target

	mu    sync.Mutex
	ready []string // addresses
	next  int
	wg    sync.WaitGroup
}

// A target has the addresses of a hub for users and for operations.
type target struct{ host, ops string }

// checkInterval is the interval at which the balancer checks the readiness of the hubs.
const checkInterval = 100 * time.Millisecond

// balance starts a balancer on an address. The hubs must keep their addresses when they restart.
func balance(t testing.TB, addr string, hubs []*hubtest.Hub) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: l}
	for _, h := range hubs {
		b.hubs = append(b.hubs, target{h.Host, h.Ops})
	}
	stop := make(chan struct{})
	b.check()
	b.wg.Go(func() {
		tick := time.NewTicker(checkInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.check()
			case <-stop:
				return
			}
		}
	})
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		close(stop)
		_ = l.Close()
		b.wg.Wait()
	})
}

func (b *balancer) check() {
	var ready []string
	for _, h := range b.hubs {
		if a, err := hubtest.Request(http.MethodGet, h.ops+"/readyz", nil); err == nil && a.Status == http.StatusOK {
			ready = append(ready, h.host)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = ready
}

func (b *balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.forward(client) })
	}
}

func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	b.mu.Lock()
	if len(b.ready) == 0 {
		b.mu.Unlock()
		return
	}
	b.next++
	to := b.ready[b.next%len(b.ready)]
	b.mu.Unlock()
	hub, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer hub.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(hub, client)
		_ = hub.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, hub)
	_ = client.Close() // a hub that has closed reads no more
	<-done
}

// TestRollingRestart restarts three hubs one after the other, under load, behind a balancer. All
// followers and callbacks receive every change once and in order, and each publish has at most one
// error before it succeeds.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const set = "rolling"
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	front := &hubtest.Hub{Host: hubtest.FreePort(t)}
	front.URL = "http://" + front.Host
	var hubs []*hubtest.Hub
	for range 3 {
		ops := hubtest.FreePort(t)
		h := hubtest.NewHub(t, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_OPS_LISTEN="+ops, "RSHUB_BASE_URL="+front.URL, "RSHUB_CALLBACK_TIMEOUT=1m",
			"RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+nats.Addr, "RSHUB_DRAIN_DELAY="+(10*checkInterval).String())...)
		h.Start(t)
		hubs = append(hubs, h)
	}
	balance(t, front.Host, hubs)
	hubtest.Publish(t, front, set, hubtest.Change("first"))

	d := hubtest.NewDestination(t, 4)
	d.Start(t)
	callbacks := d.URLs("/healthy/", 24)
	if n := len(hubtest.SubscribeAll(t, front.Topic(set), callbacks, front)); n != len(callbacks) {
		t.Fatalf("got %d accepted subscriptions, want %d", n, len(callbacks))
	}
	d.WaitVerified(t, callbacks)
	var followers []*hubtest.Follower
	for _, way := range slices.Repeat(hubtest.AllTransports, 2) {
		followers = append(followers, hubtest.Follow(t, front, way, set, "start"))
	}
	var publishers []*hubtest.Publisher
	for i := range 4 {
		p := &hubtest.Publisher{Name: "source" + strconv.Itoa(i), Keyed: true}
		if i%2 == 0 { // keeps connections, as most sources do
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			p.Client = &http.Client{Transport: transport, Timeout: time.Minute}
		}
		publishers = append(publishers, p.Start(t, front, set))
	}
	hubtest.WaitPublishing(t, 20, publishers...)
	for _, h := range hubs {
		h.Stop(t)
		hubtest.WaitPublishing(t, 10, publishers...)
		h.Start(t)
		hubtest.WaitOK(t, h.Ops+"/readyz")
		hubtest.WaitPublishing(t, 10, publishers...)
	}
	retries := 0
	for _, p := range publishers {
		p.Finish()
		for i, b := range p.Batches {
			if b.Tries > 2 {
				t.Errorf("%s %d: got %d attempts with errors %q, want at most 2", p.Name, i+1, b.Tries, b.Errs)
			}
			retries += b.Tries - 1
		}
	}
	all := hubtest.ReadMemory(t, hubs[0], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	wantAll(t, followers, all)
	repeats := d.WaitDelivered(t, callbacks, all)
	t.Logf("%d changes, %d retried publishes, %d repeated deliveries", len(all), retries, repeats)
	if repeats > 0 {
		t.Errorf("got %d repeated deliveries, want 0: stopping hubs hand over their progress", repeats)
	}
}
