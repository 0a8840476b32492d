package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A balancer leads each connection to one of the hubs that were ready when it
// looked last, in turn. It tries no other hub, as a Service of Kubernetes does
// not: what a hub does wrong, clients see.
type balancer struct {
	listener net.Listener
	hubs     []target

	mu    sync.Mutex
	ready []string // addresses
	next  int
	wg    sync.WaitGroup
}

// A target is where a hub listens, for users and for operations.
type target struct{ host, ops string }

// lookEvery is how often the balancer asks the hubs whether they are ready.
const lookEvery = 100 * time.Millisecond

// balance starts a balancer on an address. The hubs keep their addresses when
// they are started again.
func balance(t testing.TB, addr string, hubs []*hub) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: l}
	for _, h := range hubs {
		b.hubs = append(b.hubs, target{h.host, h.ops})
	}
	over := make(chan struct{})
	b.look()
	b.wg.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.look()
			case <-over:
				return
			}
		}
	})
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		close(over)
		_ = l.Close()
		b.wg.Wait()
	})
}

func (b *balancer) look() {
	var ready []string
	for _, h := range b.hubs {
		if a, err := request(http.MethodGet, h.ops+"/readyz", nil); err == nil && a.status == http.StatusOK {
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
	_ = client.Close() // a hub that has closed wants nothing more
	<-done
}

// TestRollingRestart restarts three hubs one after the other, under load, behind
// a balancer. Everything that was published comes to everybody, in order and
// once, and whoever publishes sees at most one error, and the next try succeeds.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const set = "rolling"
	redis, nats := startRedis(t), startNATS(t)
	front := &hub{host: freePort(t)}
	front.url = "http://" + front.host
	var hubs []*hub
	for range 3 {
		ops := freePort(t)
		h := newHub(t, append(slices.Clone(callable), "RSHUB_OPS_LISTEN="+ops, "RSHUB_BASE_URL="+front.url, "RSHUB_CALLBACK_TIMEOUT=1m",
			"RSHUB_REDIS_URL=redis://"+redis.addr, "RSHUB_NATS_URL=nats://"+nats.addr, "RSHUB_DRAIN_DELAY="+(10*lookEvery).String())...)
		h.start(t)
		hubs = append(hubs, h)
	}
	balance(t, front.host, hubs)
	publish(t, front, set, change("first"))

	d := newDestination(t, 4)
	d.start(t)
	callbacks := d.urls("/healthy/", 24)
	if n := len(subscribeAll(t, front.topic(set), callbacks, front)); n != len(callbacks) {
		t.Fatalf("%d of %d subscriptions were accepted", n, len(callbacks))
	}
	d.verified(t, callbacks)
	var followers []*follower
	for _, way := range slices.Repeat(allWays, 2) {
		followers = append(followers, follow(t, front, way, set, "start"))
	}
	var publishers []*publisher
	for i := range 4 {
		p := &publisher{name: "source" + strconv.Itoa(i), keyed: true}
		if i%2 == 0 { // as most sources have it, connections are kept
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			p.client = &http.Client{Transport: transport, Timeout: time.Minute}
		}
		publishers = append(publishers, p.start(t, front, set))
	}
	goesOn(t, 20, publishers...)
	for _, h := range hubs {
		h.stop(t)
		goesOn(t, 10, publishers...)
		h.start(t)
		until(t, "the hub is ready", func() error {
			if a, err := request(http.MethodGet, h.ops+"/readyz", nil); err != nil || a.status != http.StatusOK {
				return errors.New("it is not")
			}
			return nil
		})
		goesOn(t, 10, publishers...)
	}
	tries := 0
	for _, p := range publishers {
		p.finish()
		for i, b := range p.batches {
			if b.tries > 2 {
				t.Errorf("%s %d was tried %d times; the last error: %q", p.name, i+1, b.tries, b.errs)
			}
			tries += b.tries - 1
		}
	}
	all := memory(t, hubs[0], set)
	for _, p := range publishers {
		p.check(t, all)
	}
	allSaw(t, followers, all)
	repeats := d.allTook(t, callbacks, all)
	t.Logf("%d changes; %d publishes were tried a second time, %d deliveries were repeated", len(all), tries, repeats)
	if repeats > 0 {
		t.Errorf("%d deliveries were repeated: hubs that stop hand over what they have delivered", repeats)
	}
}
