package e2e

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A proxy stands between hubs and Redis or NATS. It can hold what it should forward, and
// be pointed elsewhere.
type proxy struct {
	listener net.Listener

	mu    sync.Mutex
	to    string
	goes  chan struct{} // closed while it forwards
	left  int           // bytes until it holds by itself; 0: it does not
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, goes: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.goes)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.point("")
		p.release()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// hold keeps what comes from now on, in both directions, until release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goes = make(chan struct{})
}

// holdAfter is hold, once so many bytes have passed.
func (p *proxy) holdAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// holds reports whether it holds something by now.
func (p *proxy) holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.goes:
		return false
	default:
		return true
	}
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.goes:
	default:
		close(p.goes)
	}
}

// point cuts all connections and connects to another server from now on; to
// none when that is empty.
func (p *proxy) point(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.to != to {
			_, _ = client.Close(), server.Close()
		}
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(server, client) })
		p.wg.Go(func() { p.forward(client, server) })
	}
}

func (p *proxy) forward(to, from net.Conn) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		if p.left > 0 {
			if p.left -= n; p.left <= 0 {
				p.left, p.goes = 0, make(chan struct{})
			}
		}
		goes := p.goes
		p.mu.Unlock()
		<-goes
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestRedisHangs has a Redis that takes requests and does not answer, and gets
// them all when nobody waits for the answers any more.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "hanging"
	redis, nats := startRedis(t), startNATS(t)
	p := startProxy(t, redis.addr)
	hubs := []*hub{joinCluster(t, "", p.addr(), nats.addr)}
	hubs = append(hubs, joinCluster(t, hubs[0].url, redis.addr, nats.addr)) // it has no proxy
	var followers []*follower
	var publishers []*publisher
	for i, h := range hubs {
		for _, way := range allWays {
			followers = append(followers, follow(t, h, way, set, "start"))
		}
		publishers = append(publishers, publishing(t, h, set, "keyed"+strconv.Itoa(i), true), publishing(t, h, set, "keyless"+strconv.Itoa(i), false))
	}
	goesOn(t, 20, publishers...)
	t.Cleanup(p.release) // before the publishers finish
	p.hold()

	// A call takes 10 s at most, and a publish may wait for the one before it.
	const most = 25 * time.Second
	type result struct {
		a    *answer
		err  error
		took time.Duration
	}
	answers := map[string]chan result{"publish": make(chan result, 1), "readyz": make(chan result, 1)}
	ask := func(what, method, url string, body []byte) {
		begun := time.Now()
		a, err := request(method, url, bytes.NewReader(body), "Content-Type: application/x-ndjson")
		answers[what] <- result{a, err, time.Since(begun)}
	}
	go ask("publish", http.MethodPost, hubs[0].topic("another"), change("a"))
	go ask("readyz", http.MethodGet, hubs[0].ops+"/readyz", nil)
	goesOn(t, 20, publishers[2:]...) // the other hub does not notice
	for _, what := range []string{"readyz", "publish"} {
		r := <-answers[what]
		if r.err != nil {
			t.Fatalf("%s: %v", what, r.err)
		}
		t.Logf("%s is answered %d after %v: %s", what, r.a.status, r.took, r.a.body)
		if r.a.status != http.StatusServiceUnavailable || r.took > most {
			t.Errorf("%s is answered %d after %v", what, r.a.status, r.took)
		}
		if what == "publish" {
			if _, err := r.a.problem(); err != nil || r.a.header.Get("Retry-After") == "" {
				t.Errorf("the publish is answered %v, Retry-After %q: %s", err, r.a.header.Get("Retry-After"), r.a.body)
			}
		} else if !strings.Contains(string(r.a.body), `"ready":false`) {
			t.Errorf("readyz says %s", r.a.body)
		}
	}
	p.release()
	goesOn(t, 20, publishers...)
	until(t, "the hub is ready", func() error {
		a, err := request(http.MethodGet, hubs[0].ops+"/readyz", nil)
		if err == nil && a.status != http.StatusOK {
			err = errors.New(string(a.body))
		}
		return err
	})
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, hubs[0], set)
	for _, p := range publishers {
		p.check(t, all)
	}
	allSaw(t, followers, all)
	if n := len(memory(t, hubs[1], "another")); n > 1 {
		t.Errorf("what was answered 503 is %d times in the memory", n)
	}
}

// TestFailover goes on with a replica that lacks the last writes.
func TestFailover(t *testing.T) {
	t.Parallel()
	const set = "failed-over"
	redis, replica, nats := startRedis(t), startRedis(t), startNATS(t)
	host, port, _ := net.SplitHostPort(redis.addr)
	replica.tell(t, "REPLICAOF", host, port)
	p := startProxy(t, redis.addr)
	var hubs []*hub
	for range 2 {
		base := ""
		if len(hubs) > 0 {
			base = hubs[0].url
		}
		hubs = append(hubs, joinCluster(t, base, p.addr(), nats.addr, "RSHUB_CHANGELIST_SIZE=500"))
	}
	var followers []*follower
	for _, h := range hubs {
		for _, way := range allWays {
			followers = append(followers, follow(t, h, way, set, "start"))
		}
	}
	publishAll := func(name string) (publishers []*publisher) {
		for i, h := range hubs {
			publishers = append(publishers, publishing(t, h, set, name+strconv.Itoa(i), true))
		}
		return publishers
	}
	finish := func(publishers []*publisher) {
		for _, p := range publishers {
			p.finish()
		}
	}
	safe := publishAll("safe")
	goesOn(t, 30, safe...)
	finish(safe)
	until(t, "the replica has it", func() error {
		key := "master_repl_offset:"
		_, a, _ := strings.Cut(redis.tell(t, "INFO", "replication"), key)
		info := replica.tell(t, "INFO", "replication")
		_, b, _ := strings.Cut(info, key)
		a, _, _ = strings.Cut(a, "\r")
		b, _, _ = strings.Cut(b, "\r")
		if a != b || !strings.Contains(info, "master_link_status:up") {
			return errors.New(a + " and " + b + ": " + info)
		}
		return nil
	})
	kept := memory(t, hubs[0], set)
	replica.tell(t, "REPLICAOF", "NO", "ONE")
	lost := publishAll("lost")
	goesOn(t, 30, lost...)
	for _, f := range followers {
		f.has(t, len(kept)+50)
	}
	// They are under way in the failover too, so that what the replica lacks and
	// what it gets meet.
	p.point(replica.addr)
	redis.kill()
	goesOn(t, 5, lost...)
	finish(lost)
	after := publishAll("after")
	goesOn(t, 30, after...)
	finish(after)

	all := memory(t, hubs[1], set)
	same(t, "the replica", all[:len(kept)], kept)
	for _, p := range append(safe, after...) {
		p.check(t, all)
	}
	end, err := hubs[0].cursorOf(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range followers {
		until(t, "a follower is at the end", func() error {
			if at := f.at(); at != end {
				return errors.New(f.way + " " + strconv.Itoa(i) + " is at " + at + ", not " + end)
			}
			return nil
		})
		same(t, "the "+f.way+" "+strconv.Itoa(i), f.seen(), all)
		if f.diverged == 0 {
			t.Errorf("the %s %d was not told that the memory diverged", f.way, i)
		}
	}
	for _, h := range hubs {
		same(t, "the walk over all Change Lists", walk(t, h, set), all)
	}
}
