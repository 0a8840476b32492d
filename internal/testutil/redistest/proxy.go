package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// A Proxy forwards to a server, and can delay or drop requests and replies. It stops at the end of
// the test.
type Proxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	hang  bool        // forward nothing
	lose  func() bool // called for each reply; if it returns true, the reply is dropped and the connection closed
	fate  func(request bool) Fate
	late  []func() // send delayed requests
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// NewProxy starts a proxy for a server.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, server: server, conns: make(map[net.Conn]bool)}
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

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hang sets whether the proxy hangs: if so, it forwards nothing; if not, it forwards everything on
// new connections.
func (p *Proxy) Hang(hang bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hang = hang
}

// Lose sets a function that is called for each reply. If it returns true, the proxy drops the reply
// and closes the connection. If lose is nil, no reply is dropped.
func (p *Proxy) Lose(lose func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = lose
}

// A Fate is how the Proxy treats a request or a reply.
type Fate int

// Fates of requests and replies.
const (
	Passed Fate = iota
	Lost        // it is dropped, and the connection is closed
	Late        // the connection is closed, and Release sends the request
)

// Decide sets a function that returns the Fate of each request and reply. If fate is nil, all of
// them pass.
func (p *Proxy) Decide(fate func(request bool) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate = fate
}

// Release sends the delayed requests, and returns when the server has replied to them.
func (p *Proxy) Release() {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.mu.Unlock()
	for _, send := range late {
		send()
	}
}

func (p *Proxy) accept() {
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
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(server, client, true) })
		p.wg.Go(func() { p.forward(client, server, false) })
	}
}

// decide returns the fate of the request or reply that was just read.
func (p *Proxy) decide(request bool) Fate {
	p.mu.Lock()
	lose, fate := p.lose, p.fate
	p.mu.Unlock()
	switch {
	case fate != nil:
		return fate(request)
	case !request && lose != nil && lose():
		return Lost
	}
	return Passed
}

// hold keeps a request for Release, on a separate connection.
func (p *Proxy) hold(request []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, func() {
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			return
		}
		defer server.Close()
		if _, err := server.Write(request); err == nil {
			_, _ = server.Read(make([]byte, 64<<10)) // the reply is dropped
		}
	})
}

func (p *Proxy) forward(to, from net.Conn, request bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		switch p.decide(request) {
		case Lost:
			return
		case Late:
			p.hold(bytes.Clone(buf[:n]))
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
