package subscribe

import (
	"crypto/tls"
	"net"
	"syscall"
)

// findSocket finds what c's group may write to without waiting, which is c's socket. There
// is none over TLS: what is written to the socket below TLS is not encrypted, and spoils
// the connection. There is none in a response either. Then c's own goroutine does all writes.
func (c *conn) findSocket() {
	if _, ok := c.nc.(*tls.Conn); ok {
		return
	}
	if sc, ok := c.nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
}

// fragile reports whether one write that times out makes c useless, as over TLS and HTTP/2.
func (c *conn) fragile() bool {
	switch c.nc.(type) {
	case *tls.Conn, *response:
		return true
	}
	return false
}

// cut closes c's socket. It does not block. Over TLS it says no goodbye, because that
// would wait for a client that takes nothing.
func (c *conn) cut() {
	var below net.Conn = c.nc
	if secure, ok := c.nc.(*tls.Conn); ok {
		below = secure.NetConn()
	}
	_ = below.Close()
}
