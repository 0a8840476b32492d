package subscribe

import (
	"crypto/tls"
	"net"
	"syscall"
)

// findSocket sets c.raw to the socket of c, to which the group may write without waiting. It
// does nothing for TLS, where bytes written to the underlying socket would be unencrypted and
// corrupt the connection, and for a response. The output goroutine then does all writes.
func (c *conn) findSocket() {
	if _, ok := c.nc.(*tls.Conn); ok {
		return
	}
	if sc, ok := c.nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
}

// isFragile reports whether a single write timeout makes nc unusable, as over TLS and HTTP/2.
func isFragile(nc net.Conn) bool {
	switch nc.(type) {
	case *tls.Conn, *response:
		return true
	}
	return false
}

// closeSocket closes c's socket without blocking.
func (c *conn) closeSocket() { closeSocket(c.nc) }

// closeSocket closes the socket of nc. It does not block: over TLS it sends no closing alert, which
// could wait for a client that accepts nothing.
func closeSocket(nc net.Conn) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	_ = nc.Close()
}
