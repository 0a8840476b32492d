// Package client publishes changes to an rshub, follows its sets, and verifies that a copy of a set is
// in sync.
//
// A source calls Publish. A destination that maintains a copy of a set opens a Replica, which reads
// a baseline if necessary, follows the changes after it, resumes after a restart, and can audit the
// copy. A destination that only reacts to changes calls Follow and stores the cursor of the last
// batch. FollowAll follows any number of sets on one connection. Baseline reads all resources once. A
// program that has not followed the log, but knows its own resources, calls Client.Audit.
//
// All of them continue after outages and restarts of the hub. A publish is repeated with the same
// Idempotency-Key until the hub accepts or refuses it, so the hub does not accept it twice. Follow
// resumes with the cursor of the last batch, so it skips nothing.
//
// Follow reads JSON pages by long polling, which works through every proxy: each page is one
// ordinary request and its response. FollowAll needs a WebSocket.
//
// Package resourcesync has the types of changes, and package feed has cursors and batches.
// Package client/disk stores a Replica on disk. The HTTP API is documented in docs/http.md.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Options configures a Client. The zero value uses the defaults.
type Options struct {
	Token     string // bearer token; default: none
	UserAgent string // default: "rshub-client"

	// RetryTimeout limits how long a request is retried after its first failure. The default is 10
	// minutes. If negative, it is sent once. Follow and Baseline retry without this limit.
	RetryTimeout time.Duration

	// HTTP sends the requests. New copies it, and sets CheckRedirect in the copy. Its Timeout must
	// be longer than a long poll; FollowAll ignores it. The default has a transport like
	// http.DefaultTransport, but with a timeout of ten seconds for connecting.
	HTTP *http.Client

	// OnRetry is called after each failure that the Client will retry. wait is the time until the
	// next attempt. If several goroutines use the Client, calls may be concurrent. The default is
	// nil.
	OnRetry func(err error, wait time.Duration)

	// Now returns the current time. The default is time.Now.
	Now func() time.Time

	// Sleep waits between two attempts, or returns ctx's error. The default waits in real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// A Client sends requests to one hub. It is safe for concurrent use.
type Client struct {
	base feed.Base
	http http.Client
	opts Options
}

const (
	connectTimeout = 10 * time.Second
	minRetryDelay  = 500 * time.Millisecond
	maxRetryDelay  = 30 * time.Second
)

// New returns a Client of the hub with the given URL, such as https://hub.example.org. It sends no
// request. An error describes what is wrong with the URL or the token, and contains neither the
// token nor a password.
func New(hub string, o Options) (*Client, error) {
	u, err := url.Parse(hub)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, resourcesync.Invalidf("a hub's URL must be like https://hub.example.org")
	case u.User != nil:
		return nil, resourcesync.Invalidf("a hub's URL must not have a user and password; use a token instead")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, resourcesync.Invalidf("a hub's URL must not have a query or a fragment")
	case !isASCIIWord(o.Token):
		return nil, resourcesync.Invalidf("a token must be one word of ASCII")
	}
	if err := idn.Host(u); err != nil {
		return nil, resourcesync.Invalidf("a hub's URL must be like https://hub.example.org: %v", err)
	}
	u.Host = strings.ToLower(u.Host)
	if o.UserAgent == "" {
		o.UserAgent = "rshub-client"
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = 10 * time.Minute
	}
	if o.OnRetry == nil {
		o.OnRetry = func(error, time.Duration) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = backoff.Sleep
	}
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
		transport.TLSHandshakeTimeout = connectTimeout
		o.HTTP = &http.Client{Transport: transport}
	}
	c := &Client{base: feed.Base(strings.TrimRight(u.String(), "/")), http: *o.HTTP, opts: o}
	c.http.CheckRedirect = checkRedirect
	return c, nil
}

// isASCIIWord reports whether s has only printable ASCII characters other than space, so that it
// can be part of a header as it is.
func isASCIIWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkRedirect permits redirects of GET requests only. A redirect could turn a publish into a GET,
// or send the changes to another host, which people must decide. The token is sent only to the
// original host and port.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	if len(via) == 10 {
		return errors.New("stopped after 10 redirects")
	}
	to, from := req.URL, via[0].URL
	if !strings.EqualFold(to.Host, from.Host) || to.Scheme != from.Scheme && to.Scheme != "https" {
		req.Header.Del("Authorization") // net/http does not, for other ports, for subdomains, and for http after https
	}
	return nil
}

// retryDelay returns the delay after the given failed attempt, counted from 0. It doubles with each
// attempt, up to maxRetryDelay. Half of it is random, so that clients that failed at the same time
// do not retry at the same time.
func retryDelay(attempt int) time.Duration {
	d := backoff.Exponential(minRetryDelay, maxRetryDelay, attempt)
	return d/2 + rand.N(d/2)
}

// do sends a request once. If the status is 200, do calls read with the response. The error is a
// *RefusedError, an *UnavailableError, or the error of read.
func (c *Client) do(req *http.Request, read func(*http.Response) error) error {
	resp, err := c.send(&c.http, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		body := &bodyReader{ReadCloser: resp.Body}
		resp.Body = body
		err := read(resp)
		if body.err != nil { // the response is incomplete, so the error of read is only a consequence
			u := c.unreachable(body.err)
			u.slow = errors.Is(body.err, context.DeadlineExceeded)
			return u
		}
		return err
	}
	return c.statusError(resp)
}

// send sends a request once, through a copy of c.http. The caller must close the body of the response.
// An error is an *UnavailableError.
func (c *Client) send(through *http.Client, req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", c.opts.UserAgent)
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	resp, err := through.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return resp, nil
}

// statusError returns the error for an unsuccessful response: a *RefusedError or an *UnavailableError.
func (c *Client) statusError(resp *http.Response) error {
	p, err := problem.Read(resp, c.opts.Now())
	if err != nil {
		return c.unreachable(err)
	}
	if isTemporary(p.Status) {
		u := &UnavailableError{Err: &statusError{c.base, p}, Tries: 1, retryAfter: time.Duration(p.RetryAfter) * time.Second}
		if p.Status == http.StatusInsufficientStorage {
			u.retryAfter = max(u.retryAfter, maxRetryDelay) // the store is full; retention or an operator frees space slowly
		}
		return u
	}
	r := &RefusedError{Problem: p}
	if p.Status < 400 {
		if r.Location = resourcesync.Shorten(resp.Header.Get("Location")); r.Location != "" {
			p.Detail = "redirect to " + r.Location
		}
	}
	return r
}

// isTemporary reports whether a hub may respond to the same request with another status later.
func isTemporary(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// unreachable returns the error for a request without a complete response.
func (c *Client) unreachable(err error) *UnavailableError {
	u, ok := errors.AsType[*url.Error](err)
	op, isOp := errors.AsType[*net.OpError](err)
	unsent := isOp && (op.Op == "dial" || op.Op == "proxyconnect")
	switch {
	case errors.Is(err, context.DeadlineExceeded) || ok && u.Timeout():
		return &UnavailableError{Err: fmt.Errorf("%s did not respond in time", c.base), Tries: 1, Unsent: unsent}
	case ok:
		err = u.Err // without the URL, since the error below has the hub's
	}
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	permanent := badCertificate || errors.Is(err, http.ErrSchemeMismatch)
	return &UnavailableError{
		Err:       fmt.Errorf("cannot reach %s: %w", c.base, err),
		Tries:     1,
		Permanent: permanent,
		Unsent:    unsent || permanent, // a TLS handshake precedes the request
	}
}

// A bodyReader is a response body that records the error of a failed read.
type bodyReader struct {
	io.ReadCloser
	err error
}

func (w *bodyReader) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}
