package redislog

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands before a server and can do it harm.
type proxy struct {
	listener net.Listener
	server   string

	mu     sync.Mutex
	hang   bool        // forward nothing, answer nothing
	refuse bool        // cut each connection at once
	lose   func() bool // asked for each answer: lose it, and cut the connection
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func newProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &proxy{listener: listener, server: server, conns: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.set(func(p *proxy) {
			p.conns[client], p.conns[server] = true, true
			if p.refuse {
				_ = client.Close()
			}
		})
		p.wg.Go(func() { p.forward(server, client, func() bool { return false }) })
		p.wg.Go(func() { p.forward(client, server, p.loses) })
	}
}

func (p *proxy) loses() bool {
	p.mu.Lock()
	lose := p.lose
	p.mu.Unlock()
	return lose != nil && lose()
}

func (p *proxy) forward(to, from net.Conn, loses func() bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || loses() {
			return
		}
		p.mu.Lock()
		hang := p.hang
		p.mu.Unlock()
		if hang {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
