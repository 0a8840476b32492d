package hubtest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// A Proxy forwards connections of hubs to Redis or NATS. It can pause, and change its target.
type Proxy struct {
	listener net.Listener

	mu         sync.Mutex
	to         string
	running    chan struct{} // closed unless paused
	pauseAfter int           // bytes until it pauses; 0 if not set
	pauseAt    []byte        // text at which it pauses; empty if not set
	conns      map[net.Conn]bool
	wg         sync.WaitGroup
}

// StartProxy starts a proxy to an address. It stops with the test.
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

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pause holds all data in both directions until Resume.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = make(chan struct{})
}

// PauseAfter pauses after a number of bytes. Zero removes the limit.
func (p *Proxy) PauseAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauseAfter = bytes
}

// PauseAt pauses when a text arrives. It also holds the data that arrives together with the
// text.
func (p *Proxy) PauseAt(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauseAt = []byte(text)
}

// Paused reports whether the proxy is paused.
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

// Resume forwards the held data and all later data.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.running:
	default:
		close(p.running)
	}
}

// SetTarget closes all connections, and connects to another address from now on. With "" it
// connects to none.
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
