// Package outbound makes HTTP requests to addresses that untrusted parties specify: callbacks of
// subscribers and lists of sources.
//
// It decides which addresses are allowed, bounds and reuses connections, and describes the result
// of a request by one word and by a text without secrets. It does not know the purpose of a
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

// Limits of Drain.
const (
	maxAnswer = 64 << 10        // maximum number of bytes to read and discard
	drainTime = 2 * time.Second // the status is already known; reading on only keeps the connection reusable
)

// UserAgent is the User-Agent of the hub's requests.
const UserAgent = "rshub (+https://github.com/rshub/rshub)"

// Options configures a Client. The zero value uses the defaults.
type Options struct {
	Self  string         // URL of the hub itself, to which requests are not allowed; default: none
	Allow []netip.Prefix // networks that are allowed in addition to public addresses; default: none
	CAs   *x509.CertPool // trusted certificate authorities; default: the system's

	ConnectTimeout time.Duration // of the TCP connection and of the TLS handshake; default 5 s
	PerHost        int           // maximum number of idle connections per host and port; default 8
	Idle           int           // maximum number of idle connections in total; default 16,000
	PerAddress     int           // maximum number of concurrent requests to one address, under all its names; half of them for one subscriber; default 8 times PerHost

	// Dial creates connections instead of TCP, for tests. The address rules do not apply to it.
	// Default: TCP, to allowed addresses.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Resolve returns the address of a name for Dial. If it returns the zero Addr, the connection
	// is not counted at any address. Default: the zero Addr for all names.
	Resolve func(ctx context.Context, name string) (netip.Addr, error)
}

// A Client makes requests to addresses that untrusted parties specify, and only to those that its
// options allow. It is an http.RoundTripper, so it does not follow redirects. It ignores the proxy
// settings of the environment, because a proxy would hide the address from the rules. It sets no
// deadline; the context of each request does. It is safe for concurrent use.
type Client struct {
	addresses addressRules
	requests  requestCounts
	transport *http.Transport
}

// New returns a Client. The caller must close it.
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
	c := &Client{addresses: addressRules{allow: o.Allow}, requests: requestCounts{limit: o.PerAddress, counts: map[requestKey]int{}}}
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
		MaxIdleConnsPerHost:    o.PerHost, // the number of concurrent requests, so that connections are not redialed repeatedly
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    o.ConnectTimeout,
		MaxResponseHeaderBytes: 16 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 5 * time.Second}, // a request that times out does not close a dead connection
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

// Check returns nil if a request to target is allowed. Otherwise the error is a *resourcesync.Error
// with ErrInvalid; name is what its text calls the URL. Check makes no DNS query: whether the
// address of a name is allowed is decided for each connection.
func (c *Client) Check(name, target string) error { return c.addresses.check(name, target) }

// RoundTrip makes one request. The error is ErrAddress if the address is not allowed, or ErrBusy if
// too many requests are connected to it. The request counts at its address until the body of the
// response is closed.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	p, ok := r.Context().Value(peerKey{}).(*Peer)
	if !ok || p.counts != nil { // no Peer, or the context belongs to several requests
		var ctx context.Context
		ctx, p = WithPeer(r.Context(), "")
		r = r.WithContext(ctx)
	}
	p.counts = &c.requests
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		p.finish()
		return nil, err
	}
	if resp.Body == http.NoBody {
		p.finish()
	} else {
		resp.Body = &peerBody{resp.Body, p}
	}
	return resp, nil
}

// control is a net.Dialer.ControlContext. It applies the address rules and the limit per address,
// and rejects a connection before it is made.
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

// HTTP returns an http.Client that makes its requests with c. It does not follow redirects.
func (c *Client) HTTP() *http.Client {
	return &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Close closes the idle connections. Requests in progress continue.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Host returns the host and port of a URL, in one spelling for each host, so that limits can be
// counted by it. It is empty if target is not a URL.
func Host(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return hostOf(u)
}

// Site returns the host of a URL, and the port unless it is 80 or 443. http and https on one host
// are one site, because limits on the load of a host apply to both together.
func Site(u *url.URL) string {
	host := hostOf(u)
	for _, port := range []string{":80", ":443"} {
		if name, ok := strings.CutSuffix(host, port); ok {
			return name
		}
	}
	return host
}

// Drain reads the rest of a response, so that its connection can be reused, and closes the body. If
// the rest is large or slow, the connection is closed instead. To interrupt a slow read, Drain
// calls cancel, the cancel function of the request's context.
func Drain(resp *http.Response, cancel context.CancelFunc) {
	defer resp.Body.Close()
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return // after 101 the body is the connection itself, and cancel would not interrupt a read
	}
	slow := time.AfterFunc(drainTime, cancel)
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // errors do not matter: the status is known
}
