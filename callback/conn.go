package callback

import (
	"context"
	"io"
	"net"
)

// A conn is a connection to a callback. It writes bodies from where they are in
// memory: net/http would copy each through a buffer that it makes for it.
type conn struct{ *net.TCPConn }

// dial makes dialer's connections conns.
func dial(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok {
			return conn{tcp}, err
		}
		return c, err
	}
}

// ReadFrom is how net/http writes what of a body did not fit behind the headers:
// limited to the length that it said, and no body has more.
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if body, ok := l.R.(io.WriterTo); ok {
			return body.WriteTo(c.TCPConn)
		}
	}
	return c.TCPConn.ReadFrom(r)
}
