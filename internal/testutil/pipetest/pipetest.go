// Package pipetest implements a network within the process.
//
// With it, tests of network code can run in fake time (testing/synctest), which real sockets
// prevent.
package pipetest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// A Network connects clients with servers. Its zero value has no servers. It is safe for concurrent
// use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	down      map[string]bool
	servers   []*http.Server
}

// Dial connects to the server at an address, like net.Dialer.DialContext.
func (n *Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l, down := n.listeners[address], n.down[address]
	n.mu.Unlock()
	if l == nil || down {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed: // net/http continues to connect when the connection is no longer needed
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Transport returns a new transport for the network.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.Dial} }

// SetDown sets whether new connections to an address are refused.
func (n *Network) SetDown(address string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down == nil {
		n.down = map[string]bool{}
	}
	n.down[address] = down
}

// Serve serves an address, such as a.example:80, with a handler until Close.
func (n *Network) Serve(address string, h http.Handler) {
	l, s := n.Listen(address), &http.Server{Handler: h}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers = append(n.servers, s)
	go s.Serve(l)
}

// Listen returns a listener at an address, for a server that the caller closes.
func (n *Network) Listen(address string) net.Listener {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
	}
	n.listeners[address] = l
	return l
}

// Close stops the servers and closes their connections.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers {
		_ = s.Close()
	}
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
