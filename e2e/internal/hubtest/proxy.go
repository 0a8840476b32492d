package hubtest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// A Proxy stands between hubs and Redis or NATS. It can hold what it should forward, and
// be pointed elsewhere.
type Proxy struct {
	listener net.Listener

	mu    sync.Mutex
	to    string
	running  chan struct{} // closed while it forwards
	pauseAfter  int           // bytes until it holds by itself; 0: it does not
	pauseAt    []byte        // it holds by itself when this comes; empty: it does not
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// StartProxy starts a proxy to an address, until the end of the test.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, to: to, running: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.running)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.SetTarget("")
		p.Resume()
		p.wg.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pause keeps what comes from now on, in both directions, until release.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = make(chan struct{})
}

// PauseAfter is hold, once so many bytes have passed.
func (p *Proxy) PauseAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauseAfter = bytes
}

// PauseAt is hold, once a text comes; what comes together with the text is held too.
func (p *Proxy) PauseAt(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauseAt = []byte(text)
}

// Paused reports whether it holds something by now.
func (p *Proxy) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.running:
		return false
	default:
		return true
	}
}

// Resume forwards what was held, and goes on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.running:
	default:
		close(p.running)
	}
}

// SetTarget cuts all connections and connects to another server from now on; to
// none when that is empty.
func (p *Proxy) SetTarget(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
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

func (p *Proxy) forward(to, from net.Conn) {
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
		if p.pauseAfter > 0 {
			if p.pauseAfter -= n; p.pauseAfter <= 0 {
				p.pauseAfter, p.running = 0, make(chan struct{})
			}
		}
		if len(p.pauseAt) > 0 && bytes.Contains(buf[:n], p.pauseAt) {
			p.pauseAt, p.running = nil, make(chan struct{})
		}
		goes := p.running
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
