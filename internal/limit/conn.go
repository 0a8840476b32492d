package limit

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a connection that a Listener counts until it is closed. It has the methods of a TCP
// connection, such as those for socket options.
type Conn struct {
	*net.TCPConn
	Refusals atomic.Int64 // number of refusals in progress; maintained by the server

	from      netip.Prefix
	excess    bool         // whether it was accepted only to be refused with a reason
	idleSince atomic.Int64 // start of the idle time in microseconds; 0 while there is a request
	release   func()       // uncounts the connection
}

// newConn registers a connection, which may be closed while it is idle.
func (l *Listener) newConn(conn net.Conn, from netip.Prefix, excess bool) *Conn {
	c := &Conn{TCPConn: conn.(*net.TCPConn), from: from, excess: excess}
	c.idleSince.Store(time.Now().UnixMicro())
	c.release = sync.OnceFunc(func() { l.remove(c, from) })
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c
}

// unwrapConn returns the Conn below a connection, or nil.
func unwrapConn(conn net.Conn) *Conn {
	for {
		switch c := conn.(type) {
		case *Conn:
			return c
		case interface{ NetConn() net.Conn }: // such as one with TLS
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// Write writes like a TCP connection. The kernel wakes a writer only when a third of its buffer is free,
// so at its deadline, Write tries once more in case the client has read something. This matters because
// a failed write over TLS makes the connection unusable.
func (c *Conn) Write(p []byte) (n int, err error) {
	if n, err = c.TCPConn.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = c.SetWriteDeadline(time.Now().Add(lastTry))
	m, err := c.TCPConn.Write(p[n:])
	return n + m, err
}

// lastTry is the time for the write after the deadline. It allows a single attempt, which does not wait.
const lastTry = 10 * time.Millisecond

// Close closes the connection. Further calls only return an error.
func (c *Conn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
