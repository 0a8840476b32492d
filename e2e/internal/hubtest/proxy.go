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
	goes  chan struct{} // closed while it forwards
	left  int           // bytes until it holds by itself; 0: it does not
	at    []byte        // it holds by itself when this comes; empty: it does not
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
	p := &Proxy{listener: l, to: to, goes: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.goes)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Point("")
		p.Release()
		p.wg.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hold keeps what comes from now on, in both directions, until release.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goes = make(chan struct{})
}

// HoldAfter is hold, once so many bytes have passed.
func (p *Proxy) HoldAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// HoldAt is hold, once a text comes; what comes together with the text is held too.
func (p *Proxy) HoldAt(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = []byte(text)
}

// Holds reports whether it holds something by now.
func (p *Proxy) Holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.goes:
		return false
	default:
		return true
	}
}

// Release forwards what was held, and goes on.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.goes:
	default:
		close(p.goes)
	}
}

// Point cuts all connections and connects to another server from now on; to
// none when that is empty.
func (p *Proxy) Point(to string) {
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
		if p.left > 0 {
			if p.left -= n; p.left <= 0 {
				p.left, p.goes = 0, make(chan struct{})
			}
		}
		if len(p.at) > 0 && bytes.Contains(buf[:n], p.at) {
			p.at, p.goes = nil, make(chan struct{})
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
