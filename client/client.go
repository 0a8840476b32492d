// Package client publishes to an rshub, follows it, and proves that a copy is in sync.
//
// A source calls Publish. A destination that keeps a copy of a set opens a Replica: it reads a
// baseline when it must, follows the changes after it, resumes after a restart, and can audit
// itself. A destination that only reacts to changes calls Follow and keeps the cursor of the last
// batch. Baseline reads all resources once. A program that never saw the log, but knows what it
// holds, calls Client.Audit.
//
// All of them survive outages and restarts of the hub. A publish is sent again with the same
// Idempotency-Key until the hub accepts or refuses it, so the hub does not accept it twice. A
// follow asks again with the cursor of the last batch, so it skips nothing.
//
// Follow reads pages of JSON by long poll, which passes every proxy: each page is one ordinary
// request and its response.
//
// The types of changes are in package resourcesync, those of cursors and batches in package feed.
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

// Options of a Client. Zero values are the defaults.
type Options struct {
	Token     string        // sent as Authorization: Bearer; default: none
	UserAgent string        // default "rshub-client"
	Patience  time.Duration // how long a publish is tried again; default 10 minutes; negative: it is sent once

	// HTTP sends the requests. New copies it, and the copy has the Client's own
	// CheckRedirect. A Timeout must leave room for a long poll. Default: an http.Client
	// with a transport like http.DefaultTransport, but it waits at most ten seconds for
	// a connection.
	HTTP *http.Client

	// Note is called after each failure, when the Client will try again. wait is the
	// time until the next try. If several goroutines use the Client, they may call Note
	// at the same time. Default: nothing is called.
	Note func(err error, wait time.Duration)

	Now   func() time.Time                                 // default time.Now
	Sleep func(ctx context.Context, d time.Duration) error // waits before another try, or returns ctx's error; default: by the clock
}

// A Client speaks to one hub. Several goroutines may use it.
type Client struct {
	base feed.Base
	http http.Client
	opts Options
}

const (
	connectTimeout = 10 * time.Second
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// New returns a Client of the hub at a URL such as https://hub.example.org. It
// sends nothing. The error says what is wrong with the URL or the token. It shows
// neither the token nor a password.
func New(hub string, o Options) (*Client, error) {
	u, err := url.Parse(hub)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, resourcesync.Invalid("a hub's URL must be like https://hub.example.org")
	case u.User != nil:
		return nil, resourcesync.Invalid("a hub's URL must not have a user and password; use a token instead")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, resourcesync.Invalid("a hub's URL must not have a query or a fragment")
	case !oneWord(o.Token):
		return nil, resourcesync.Invalid("a token must be one word of ASCII")
	}
	if err := idn.Host(u); err != nil {
		return nil, resourcesync.Invalid("a hub's URL must be like https://hub.example.org: %v", err)
	}
	u.Host = strings.ToLower(u.Host)
	if o.UserAgent == "" {
		o.UserAgent = "rshub-client"
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Minute
	}
	if o.Note == nil {
		o.Note = func(error, time.Duration) {}
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

// oneWord reports whether s can stand in a header as it is.
func oneWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkRedirect follows the redirects of a GET only. A redirect could turn a publish
// into a GET, or carry the changes to another host. People must decide about that. The token
// stays with the host and port that it is for.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	if len(via) == 10 {
		return errors.New("stopped after 10 redirects")
	}
	to, from := req.URL, via[0].URL
	if !strings.EqualFold(to.Host, from.Host) || to.Scheme != from.Scheme && to.Scheme != "https" {
		req.Header.Del("Authorization") // net/http leaves it for other ports, for subdomains, and for http after https
	}
	return nil
}

// pause returns how long to wait after a failed try. It doubles with every try, up to
// longestPause. Half of it is random, so that clients that failed together do not come
// back together.
func pause(try int) time.Duration {
	d := backoff.Doubled(firstPause, longestPause, try)
	return d/2 + rand.N(d/2)
}

// exchange sends a request once. If the answer is 200, it calls read with the answer.
// The error is a *Refused, an *Unavailable, or the error of read.
func (c *Client) exchange(req *http.Request, read func(*http.Response) error) error {
	req.Header.Set("User-Agent", c.opts.UserAgent)
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		body := &wire{ReadCloser: resp.Body}
		resp.Body = body
		err := read(resp)
		if body.err != nil { // the answer broke off, so the error of read is only a consequence
			u := c.unreachable(body.err)
			u.slow = errors.Is(body.err, context.DeadlineExceeded)
			return u
		}
		return err
	}
	p, err := problem.Read(resp, c.opts.Now())
	if err != nil {
		return c.unreachable(err)
	}
	switch {
	case p.Status >= 500, p.Status == http.StatusTooManyRequests, p.Status == http.StatusRequestTimeout:
		u := &Unavailable{Err: &answer{c.base, p}, Tries: 1, after: time.Duration(p.RetryAfter) * time.Second}
		if p.Status == http.StatusInsufficientStorage {
			u.after = max(u.after, longestPause) // the store is full: retention or an operator makes room slowly
		}
		return u
	}
	r := &Refused{Problem: p}
	if p.Status < 400 {
		if r.Location = resourcesync.Shorten(resp.Header.Get("Location")); r.Location != "" {
			p.Detail = "it points to " + r.Location
		}
	}
	return r
}

// unreachable returns the error for a request that got no answer, or only a part of one.
func (c *Client) unreachable(err error) *Unavailable {
	u, ok := errors.AsType[*url.Error](err)
	op, isOp := errors.AsType[*net.OpError](err)
	unsent := isOp && (op.Op == "dial" || op.Op == "proxyconnect")
	switch {
	case errors.Is(err, context.DeadlineExceeded) || ok && u.Timeout():
		return &Unavailable{Err: fmt.Errorf("%s does not answer in time", c.base), Tries: 1, Unsent: unsent}
	case ok:
		err = u.Err // without the URL, which the error below already names
	}
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	lasting := badCertificate || errors.Is(err, http.ErrSchemeMismatch)
	return &Unavailable{
		Err:     fmt.Errorf("cannot reach %s: %w", c.base, err),
		Tries:   1,
		Lasting: lasting,
		Unsent:  unsent || lasting, // a TLS handshake comes before the request
	}
}

// A wire is a body that remembers the error of a failed read.
type wire struct {
	io.ReadCloser
	err error
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}
