package subscribe

import (
	"crypto/tls"
	"net"
	"syscall"
)

// findSocket sets c.raw. If it is nil, the output goroutine does all writes.
func (c *conn) findSocket() { c.raw = rawSocket(c.nc) }

// rawSocket returns the socket of a connection, to which others than the output goroutine may write
// without waiting. It returns nil for TLS, where bytes written to the underlying socket would be
// unencrypted and corrupt the connection, and for a response.
func rawSocket(nc net.Conn) syscall.RawConn {
	if _, ok := nc.(*tls.Conn); ok {
		return nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, _ := sc.SyscallConn() // nil after an error
	return raw
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
