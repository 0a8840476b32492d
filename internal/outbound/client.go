// Package outbound makes HTTP requests to addresses that strangers name: callbacks of subscribers,
// lists of sources.
//
// It decides which addresses may be reached, bounds and reuses connections, and describes the
// result of a request by one word and by a text without secrets. It does not know the purpose of a
// request. Package meter counts requests for Prometheus.
package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Bounds of what Drain reads of an answer.
const (
	maxAnswer = 64 << 10        // bytes of the body, which are dropped
	drainTime = 2 * time.Second // the status is already known; reading on only keeps the connection usable
)

// UserAgent is the User-Agent of the hub's requests.
const UserAgent = "rshub (+https://github.com/rshub/rshub)"

// Options of a Client. Zero values are the defaults.
type Options struct {
	Self  string         // the hub's own URL, to which no request may lead; default: none
	Allow []netip.Prefix // networks that may be reached besides the public addresses; default: none
	CAs   *x509.CertPool // certificate authorities to trust; default: the system's

	ConnectTimeout time.Duration // of connecting, and of the TLS handshake; default 5 s
	PerHost        int           // idle connections that are kept for one host and port; default 8
	Idle           int           // idle connections that are kept in all; default 16,000
	PerAddress     int           // the most requests at once to one address, under all its names; half of them for one subscriber; default 8 times PerHost

	// Dial makes the connections instead of TCP, for tests. The rules for addresses
	// do not apply to it. Default: TCP, to the addresses that the rules allow.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Resolve returns the address of a name for Dial. If it returns the zero Addr,
	// the connection is not counted at any address. Default: the zero Addr for all
	// names.
	Resolve func(ctx context.Context, name string) (netip.Addr, error)
}

// A Client makes requests to addresses that strangers name, and only to those
// that its options allow. It is an http.RoundTripper, so it follows no
// redirects. It ignores the proxy settings of the environment, because a proxy
// would hide the address from the rules. It sets no deadline; the context of
// each request does.
type Client struct {
	addresses addresses
	connected connected
	transport *http.Transport
}

// New returns a Client. The caller closes it.
func New(o Options) *Client {
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	if o.PerHost == 0 {
		o.PerHost = 8
	}
	if o.Idle == 0 {
		o.Idle = 16_000
	}
	if o.PerAddress == 0 {
		o.PerAddress = 8 * o.PerHost
	}
	c := &Client{addresses: addresses{allow: o.Allow}, connected: connected{most: o.PerAddress, counts: map[connectedBy]int{}}}
	if u, err := url.Parse(o.Self); err == nil && u.Host != "" {
		c.addresses.self = hostOf(u)
	}
	if o.Dial == nil {
		o.Dial = dial(&net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second, ControlContext: c.control})
	} else if o.Resolve != nil {
		o.Dial = dialResolved(o.Resolve, o.Dial)
	}
	c.transport = &http.Transport{
		Proxy:                  nil,
		DialContext:            o.Dial,
		ForceAttemptHTTP2:      true, // otherwise DialContext turns HTTP/2 off
		MaxIdleConns:           o.Idle,
		MaxIdleConnsPerHost:    o.PerHost, // as many as there can be at once, so that none is dialled again and again
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    o.ConnectTimeout,
		MaxResponseHeaderBytes: 16 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 5 * time.Second}, // requests that time out do not close a dead connection
		DisableCompression:     true,
		ReadBufferSize:         1 << 10,
		WriteBufferSize:        4 << 10,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            o.CAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(16_000),
		},
	}
	return c
}

// Check returns nil when a request to target may be made. Otherwise the error
// is a *resourcesync.Error with ErrInvalid that says what is wrong; name says
// in it what the URL is. Check makes no DNS query: each connection decides
// whether the address of a name may be reached.
func (c *Client) Check(name, target string) error { return c.addresses.check(name, target) }

// RoundTrip makes one request. When the address may not be reached, the error
// is ErrAddress; when too many requests are connected to it, ErrBusy. The
// request counts at its address until the body of the answer is closed.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	p, ok := r.Context().Value(peerKey{}).(*Peer)
	if !ok || p.connected != nil { // no Peer, or the context belongs to several requests
		var ctx context.Context
		ctx, p = WithPeer(r.Context(), "")
		r = r.WithContext(ctx)
	}
	p.connected = &c.connected
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		p.end()
		return nil, err
	}
	if resp.Body == http.NoBody {
		p.end()
	} else {
		resp.Body = &peerBody{resp.Body, p}
	}
	return resp, nil
}

// control is a net.Dialer.ControlContext: the rules for addresses, and the bound
// of each address. A connection is refused before it is made.
func (c *Client) control(ctx context.Context, network, address string, raw syscall.RawConn) error {
	if err := c.addresses.control(network, address, raw); err != nil {
		return err
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	return connect(ctx, ap.Addr())
}

// HTTP returns an http.Client that makes its requests by c. It follows no
// redirects.
func (c *Client) HTTP() *http.Client {
	return &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Close closes the idle connections. Requests that are under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Host returns the host and port to which a URL leads, in one spelling for each
// host, so that limits can be counted by it. It is empty when target is not a
// URL.
func Host(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return hostOf(u)
}

// Site returns the host to which a URL leads, and the port if it is no default one. http and https
// of one host are one site: who asks it with consideration counts both together.
func Site(u *url.URL) string {
	host := hostOf(u)
	for _, port := range []string{":80", ":443"} {
		if name, ok := strings.CutSuffix(host, port); ok {
			return name
		}
	}
	return host
}

// Drain reads the rest of an answer, so that its connection can be used again,
// and closes the body. It gives the connection up when the rest is large or
// slow. For the slow case it needs cancel, the cancel function of the request's
// context.
func Drain(resp *http.Response, cancel context.CancelFunc) {
	defer resp.Body.Close()
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return // after 101 the body is the connection itself, and cancel would not end a read of it
	}
	slow := time.AfterFunc(drainTime, cancel)
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // an error does not matter: the status is known
}
