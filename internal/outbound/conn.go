package outbound

import (
	"context"
	"io"
	"net"
	"net/netip"
)

// A conn is a TCP connection that writes request bodies without copying them. Without it, net/http
// would copy each body through a new buffer.
type conn struct{ *net.TCPConn }

// dial returns a dial function that wraps dialer's connections as conns.
func dial(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok {
			return conn{tcp}, err
		}
		return c, err
	}
}

// ReadFrom writes a request's body. net/http calls it for the part that did not fit in the buffer
// with the headers, with a reader limited to the Content-Length. The bodies of NewBody have exactly
// that length, so they can write themselves.
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if body, ok := l.R.(io.WriterTo); ok {
			return body.WriteTo(c.TCPConn)
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// dialResolved returns a dial function that gets the address of a name from resolve, counts the
// request at that address, and connects to it with dial.
func dialResolved(resolve func(context.Context, string) (netip.Addr, error), dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addr, err := resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		if !addr.IsValid() {
			return dial(ctx, network, address)
		}
		if err := connect(ctx, addr); err != nil {
			return nil, err
		}
		return dial(ctx, network, net.JoinHostPort(addr.String(), port))
	}
}

// connect counts the request of a context at an address.
func connect(ctx context.Context, addr netip.Addr) error {
	if p, ok := ctx.Value(peerKey{}).(*Peer); ok {
		return p.connect(addr)
	}
	return nil
}

// A peerBody is the body of a response. Its request has finished when it is closed.
type peerBody struct {
	io.ReadCloser
	peer *Peer
}

// Close closes the body and finishes the request.
func (b *peerBody) Close() error {
	err := b.ReadCloser.Close()
	b.peer.finish()
	return err
}
