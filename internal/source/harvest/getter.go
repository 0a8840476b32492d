package harvest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/gunzip"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of requests to a server.
const (
	maxRedirects   = 5
	headTimeout    = 2 * time.Minute  // until a response starts; some servers create a list only on request
	retryWait      = 5 * time.Second  // before the second try, unless the server names a time; four times as long before each further try
	busyWait       = 30 * time.Second // the same for a server that is busy but names no time; doubled each time
	defaultTries   = 4
	defaultMaxWait = time.Hour
	maxRetryAfter  = 24 * time.Hour   // the longest Retry-After that counts: a wrong clock may name a date in ten years
	maxTag         = 1 << 10          // bytes of an ETag that is remembered
	maxHosts       = 1_000            // approximate maximum number of remembered hosts
	paceTime       = 10 * time.Second // a response is abandoned if fewer than paceBytes arrive in this time
	paceBytes      = 32 << 10
	maxUnpack      = 2 // a compressed document may be compressed once more in transport
)

// A Getter requests documents from the servers of sources. It is considerate: it makes one request
// at a time to a host, identifies itself, waits as long as a busy server asks, and abandons a
// response that arrives too slowly. It follows few redirects. Until a host accepts requests again,
// a request to it fails with a *Busy without being made. The fields must not be changed after the
// first use. A Getter is safe for concurrent use.
type Getter struct {
	Client    *http.Client                    // makes the requests; its CheckRedirect is not used
	Check     func(name, target string) error // returns an error if a URL must not be requested; name says what the URL is; default: http and https are allowed
	UserAgent string                          // default: outbound.UserAgent
	Accept    string                          // media types to ask for; default: XML preferred
	Tries     int                             // how often a document is requested while its server is busy or unreachable; default: 4
	MaxWait   time.Duration                   // the longest wait that a server may ask for; default: 1 hour
	Robots    bool                            // obey the Crawl-delay of the host's robots.txt, up to a minute
	Now       func() time.Time                // for the wait that a host asks for; default: time.Now
	Note      func(error, time.Duration)      // called before a document is requested again, with the reason and the wait; default: not called

	shared *Getter // Getter whose hosts it shares; nil if it has its own

	mu    sync.Mutex
	hosts map[string]*host
}

// A host is a server that a Getter sends requests to.
type host struct {
	slot chan struct{} // holds an element while a request is in progress

	// Used only by the goroutine that holds the slot.
	robots    robots
	robotsAt  time.Time // when its robots.txt was requested; zero if never
	lastEnd   time.Time // when the last request ended; zero if never
	busy      *Busy     // newest response that asked to wait, or nil
	busyUntil time.Time // when the wait that busy asks for ends
}

// noteBusy records the error of a request, if the host asked to wait. Then all requests to the host
// wait, because a caller with another reason for a request does not know the earlier response.
func (h *host) noteBusy(err error, now time.Time) error {
	if busy, ok := errors.AsType[*Busy](err); ok && busy.After > 0 {
		h.busy, h.busyUntil = busy, now.Add(busy.After)
	}
	return err
}

// remainingWait returns the rest of the wait that the host asked for, or nil.
func (h *host) remainingWait(now time.Time) *Busy {
	if left := h.busyUntil.Sub(now); left > 0 {
		return &Busy{h.busy.Status, left}
	}
	return nil
}

// A Version identifies a version of a document, as its server names it. The zero Version means
// unknown.
type Version struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// ErrUnchanged means that a document, or all documents of a listing, did not change.
var ErrUnchanged = errors.New("unchanged")

// A Busy is the error of a server that asks for a later request.
type Busy struct {
	Status int
	After  time.Duration // how long not to send requests, a day at most; zero if unknown
}

// Error returns the status and the wait.
func (b *Busy) Error() string {
	return fmt.Sprintf("the answer is %d: the server asks for a retry in %v", b.Status, b.After)
}

// IsAway reports whether an error of a Getter means that a server is busy, broken or unreachable.
// The error then says nothing about the server's documents, and the caller may try later.
func IsAway(err error) bool {
	if _, busy := errors.AsType[*Busy](err); busy {
		return true
	}
	f, ok := errors.AsType[*outbound.Failure](err)
	if !ok {
		return false
	}
	switch f.Outcome {
	case outbound.ServerError, outbound.Timeout, outbound.Unreachable, outbound.TLS, outbound.Other:
		return true
	}
	return f.Status == http.StatusRequestTimeout
}

// An Answer is a document that a server sends.
type Answer struct {
	Status   int       // 200, unless it comes from GetAny
	Body     io.Reader // the document, decompressed
	URL      *url.URL  // URL of the document, after redirects
	Header   http.Header
	Version  Version // for the next request
	Complete bool    // whether HTTP guarantees that the document is complete if Body ends without an error

	close func()
}

// Close ends the request. The caller of Get must call it.
func (a *Answer) Close() { a.close() }

// Get requests the document at target. what names the document in errors. The error is ErrUnchanged
// if the document still has the version known. Get blocks until the response starts, including all
// waits between tries. Reading Body blocks, too, but fails if too little data arrives. Errors do
// not contain the query of the URL, which may be a secret.
func (g *Getter) Get(ctx context.Context, what, target string, known Version) (a *Answer, err error) {
	err = g.Retry(ctx, func() error {
		a, err = g.try(ctx, what, target, known, false)
		return err
	})
	return a, err
}

// GetAny makes one try to get the document at target, whatever the status of the response is. It
// follows redirects. A response that asks for a later request is a *Busy.
func (g *Getter) GetAny(ctx context.Context, what, target string) (*Answer, error) {
	return g.try(ctx, what, target, Version{}, true)
}

// StatusError returns the error of Get for a response whose status is not 200.
func (a *Answer) StatusError(what string) error {
	return fmt.Errorf("%s (%s): %w", what, Plain(a.URL), statusFailure(a.Status))
}

// Retry calls f until it succeeds. It calls f again only while a server is busy or unreachable, as
// often and with the same waits as Get. It returns the last error of f.
func (g *Getter) Retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		wait, again := g.retryDelay(err, try)
		if err == nil || !again {
			return err
		}
		if g.Note != nil {
			g.Note(err, wait)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return fmt.Errorf("%w; retry canceled: %w", err, context.Cause(ctx))
		}
	}
}

// Once returns a Getter like g that makes only one try. It shares the hosts of g.
func (g *Getter) Once() *Getter {
	return &Getter{Client: g.Client, Check: g.Check, UserAgent: g.UserAgent, Accept: g.Accept, MaxWait: g.MaxWait, Now: g.Now, Robots: g.Robots, Tries: 1, shared: g.root()}
}

func (g *Getter) now() time.Time {
	if g.Now == nil {
		return time.Now()
	}
	return g.Now()
}

// root returns the Getter whose hosts g shares.
func (g *Getter) root() *Getter {
	if g.shared != nil {
		return g.shared
	}
	return g
}

// retryDelay reports whether to retry after an error, and how long to wait before.
func (g *Getter) retryDelay(err error, try int) (time.Duration, bool) {
	most, tried := g.MaxWait, g.Tries
	if most <= 0 {
		most = defaultMaxWait
	}
	if tried <= 0 {
		tried = defaultTries
	}
	if err == nil || try >= tried {
		return 0, false
	}
	if busy, ok := errors.AsType[*Busy](err); ok {
		if busy.After == 0 {
			return backoff.Jitter(busyWait << (try - 1)), true
		}
		return busy.After, busy.After <= most
	}
	if f, ok := errors.AsType[*outbound.Failure](err); ok {
		switch f.Outcome {
		case outbound.Timeout, outbound.Unreachable, outbound.Other, outbound.ServerError:
			return backoff.Jitter(retryWait << (2 * (try - 1))), true
		}
	}
	return 0, false
}

// try makes one try, and follows redirects. If any is true, every status is an answer.
func (g *Getter) try(ctx context.Context, what, target string, known Version, any bool) (*Answer, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("%s: invalid URL", what) // err contains the URL
	}
	for hop := 0; ; hop++ {
		if err := idn.Host(u); err != nil {
			return nil, fmt.Errorf("%s (%s): %w", what, Plain(u), resourcesync.Invalidf("%v", err))
		}
		a, to, err := g.requestOnce(ctx, what, u, known, any)
		if err != nil && err != ErrUnchanged {
			return nil, fmt.Errorf("%s (%s): %w", what, Plain(u), err)
		}
		if to == nil {
			return a, err
		}
		if hop == maxRedirects {
			return nil, fmt.Errorf("%s (%s): more than %d redirects", what, Plain(u), maxRedirects)
		}
		u = to
	}
}

// Plain returns a URL without the parts that may be secret: user, password and query.
func Plain(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque}
	if u.RawQuery != "" {
		return plain.String() + "?…"
	}
	return plain.String()
}

func (g *Getter) check(name string, u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return resourcesync.Invalidf("the URL of %s does not begin with http:// or https://", name)
	case g.Check != nil:
		return g.Check(strings.TrimPrefix(name, "the "), u.String())
	}
	return nil
}

// requestOnce makes one request. It returns the answer, or the target of a redirect.
func (g *Getter) requestOnce(ctx context.Context, what string, u *url.URL, known Version, any bool) (a *Answer, to *url.URL, err error) {
	if err := g.check(what, u); err != nil {
		return nil, nil, err
	}
	h, leave, err := g.acquireHost(ctx, u)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if a == nil {
			leave()
		}
	}()
	resp, cancel, err := g.request(ctx, u, known)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if a == nil {
			outbound.Drain(resp, cancel)
			cancel()
		}
	}()
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
	case status == http.StatusNotModified && known != (Version{}):
		return nil, nil, ErrUnchanged
	default:
		if to, err := outbound.RedirectOf(resp); to != nil || err != nil {
			return nil, to, err
		}
		err := statusError(resp)
		if _, busy := errors.AsType[*Busy](err); busy || !any {
			return nil, nil, h.noteBusy(err, g.now())
		}
	}
	body := outbound.NewPacedReader(resp.Body, paceBytes, paceTime, cancel)
	unpacked, err := unpack(body)
	if err != nil {
		body.Stop()
		if resp.StatusCode != http.StatusOK {
			return nil, nil, statusError(resp)
		}
		return nil, nil, Explain(ctx, err)
	}
	return &Answer{
		Status: resp.StatusCode, Body: unpacked, URL: u, Header: resp.Header, Version: VersionOf(resp),
		Complete: resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1 || resp.Uncompressed,
		close: sync.OnceFunc(func() {
			body.Stop()
			outbound.Drain(resp, cancel)
			cancel()
			leave()
		}),
	}, nil, nil
}

// statusError returns the error for a response without a document.
func statusError(resp *http.Response) error {
	switch status := resp.StatusCode; status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &Busy{status, min(problem.RetryAfter(resp.Header, time.Now()), maxRetryAfter)}
	default:
		return statusFailure(status)
	}
}

func statusFailure(status int) error {
	return outbound.StatusFailure(fmt.Sprintf("the answer is %d", status), status)
}

// request sends a request, and waits until the response starts. The caller must call cancel.
func (g *Getter) request(ctx context.Context, u *url.URL, known Version) (resp *http.Response, cancel context.CancelFunc, err error) {
	ctx, cancel = context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, nil, errors.New("invalid URL") // err contains the URL
	}
	r.Header.Set("User-Agent", outbound.UserAgent)
	if g.UserAgent != "" {
		r.Header.Set("User-Agent", g.UserAgent)
	}
	r.Header.Set("Accept", cmp.Or(g.Accept, "application/xml, text/xml;q=0.9, */*;q=0.5"))
	r.Header.Set("Accept-Encoding", "gzip")
	if known.ETag != "" {
		r.Header.Set("If-None-Match", known.ETag)
	}
	if known.LastModified != "" {
		r.Header.Set("If-Modified-Since", known.LastModified)
	}
	client := *g.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	late := time.AfterFunc(headTimeout, cancel)
	resp, err = client.Do(r)
	switch {
	case err == nil && late.Stop():
		return resp, cancel, nil
	case err == nil:
		_ = resp.Body.Close()
		err = context.DeadlineExceeded
	case !late.Stop() && r.Context().Err() != nil:
		err = context.DeadlineExceeded
	}
	cancel()
	return nil, nil, outbound.Explain(err)
}

// acquireHost waits for the slot of a host. The caller must call leave. The error is a *Busy if the
// host asked to wait.
func (g *Getter) acquireHost(ctx context.Context, u *url.URL) (h *host, leave func(), err error) {
	h, err = g.acquireSlot(ctx, u)
	if err != nil {
		return nil, nil, err
	}
	if busy := h.remainingWait(g.now()); busy != nil {
		<-h.slot
		return nil, nil, busy
	}
	if g.Robots && !h.lastEnd.IsZero() { // the first request need not wait
		g.updateRobots(ctx, h, u)
	}
	if wait := time.Until(h.lastEnd.Add(h.robots.delay)); wait > 0 && backoff.Sleep(ctx, wait) != nil {
		<-h.slot
		return nil, nil, outbound.Explain(context.Cause(ctx))
	}
	return h, func() {
		h.lastEnd = time.Now()
		<-h.slot
	}, nil
}

// acquireSlot waits for the slot of a host. To release it, receive from the host's channel.
func (g *Getter) acquireSlot(ctx context.Context, u *url.URL) (*host, error) {
	root := g.root()
	root.mu.Lock()
	if root.hosts == nil {
		root.hosts = map[string]*host{}
	}
	name := outbound.Site(u)
	h := root.hosts[name]
	if h == nil {
		if len(root.hosts) >= maxHosts {
			now := g.now()
			maps.DeleteFunc(root.hosts, func(_ string, h *host) bool { return h.isIdle(now) })
		}
		h = &host{slot: make(chan struct{}, 1)}
		root.hosts[name] = h
	}
	root.mu.Unlock()
	select {
	case h.slot <- struct{}{}:
		return h, nil
	case <-ctx.Done():
		return nil, outbound.Explain(context.Cause(ctx))
	}
}

// isIdle reports whether a host has no request in progress and needs no pause before the next.
func (h *host) isIdle(now time.Time) bool {
	select {
	case h.slot <- struct{}{}:
		defer func() { <-h.slot }()
		return time.Since(h.lastEnd) >= h.robots.delay && h.remainingWait(now) == nil
	default:
		return false
	}
}

// VersionOf returns the Version of a response. A document that changed within the last two seconds
// has none: it may change again within that second, and many servers then give it the same ETag,
// made of that second and the length.
func VersionOf(resp *http.Response) (v Version) {
	if tag := resp.Header.Get("ETag"); len(tag) <= maxTag {
		v.ETag = tag
	}
	modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil {
		return v
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	switch {
	case err != nil:
	case now.Sub(modified) > 2*time.Second:
		v.LastModified = resp.Header.Get("Last-Modified")
	default:
		return Version{}
	}
	return v
}

// unpack returns the content of r, decompressed if it is gzip. It decides by the first bytes,
// because the headers of many servers are wrong.
func unpack(r io.Reader) (io.Reader, error) {
	for range maxUnpack {
		in := bufio.NewReaderSize(r, 32<<10)
		r = in
		if begin, _ := in.Peek(2); !gunzip.IsGzip(begin) { // the first read returns the error again
			return r, nil
		}
		packed, err := gunzip.NewReader(in)
		if err != nil {
			return nil, damaged(err)
		}
		r = gzipReader{packed}
	}
	return r, nil
}

// A gzipReader reports damaged gzip as an error that allows another try, because the document may
// then be whole.
type gzipReader struct{ *gunzip.Reader }

func (u gzipReader) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	return n, damaged(err)
}

func damaged(err error) error {
	e, ok := errors.AsType[*gunzip.Error](err)
	switch {
	case !ok:
		return err
	case e.Damaged:
		return &outbound.Failure{Text: e.Rule, Outcome: outbound.Other}
	}
	return resourcesync.Invalidf("%s", e.Rule)
}
