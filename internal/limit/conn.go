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

// A Conn is a connection that a Listener counts until it is closed. It keeps the methods of a
// TCP connection, such as those for the socket.
type Conn struct {
	*net.TCPConn
	Refusals atomic.Int64 // requests on it that are being refused; the server bounds and counts them

	from   netip.Prefix
	excess bool         // it does not fit, and was accepted to be told so
	waits  atomic.Int64 // since when it waits for a request, in microseconds; 0: it does not
	leave  func()
}

// conn counts a connection from now on among those that may be closed to make room.
func (l *Listener) conn(conn net.Conn, from netip.Prefix, excess bool) *Conn {
	c := &Conn{TCPConn: conn.(*net.TCPConn), from: from, excess: excess}
	c.waits.Store(time.Now().UnixMicro())
	c.leave = sync.OnceFunc(func() { l.leave(c, from) })
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c
}

// below returns the Conn under a connection, or nil.
func below(conn net.Conn) *Conn {
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

// Write writes as a TCP connection does. But the kernel wakes a writer only when a third of
// its buffer is free. So at its deadline, Write tries once more, in case the client has
// taken something. A write over TLS that fails has spoiled the connection for good.
func (c *Conn) Write(p []byte) (n int, err error) {
	if n, err = c.TCPConn.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = c.SetWriteDeadline(time.Now().Add(lastTry))
	m, err := c.TCPConn.Write(p[n:])
	return n + m, err
}

// lastTry is how long a write goes on at its deadline. It is there for the first attempt
// only, which does not wait.
const lastTry = 10 * time.Millisecond

// Close closes the connection. A further call returns an error, and does nothing else.
func (c *Conn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
