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

// Bounds of requests to a server.
const (
	redirectsMax = 5
	headTime     = 2 * time.Minute  // until an answer begins; some servers make a list only on request
	waitTime     = 5 * time.Second  // before the second try, unless the server says when to come again; four times as long before each further try
	busyTime     = 30 * time.Second // the same for a server that says that it is busy, but not for how long; doubled each time
	tries        = 4
	waitMost     = time.Hour
	afterMost    = 24 * time.Hour   // the longest Retry-After that counts: a wrong clock may name a date in ten years
	maxTag       = 1 << 10          // bytes of an ETag that is remembered
	hostsMost    = 1_000            // about the most hosts that are remembered
	paceTime     = 10 * time.Second // an answer is given up if fewer than paceBytes come in this time
	paceBytes    = 32 << 10
	packedTwice  = 2 // a compressed document may be compressed once more in transport
)

// A Getter asks the servers of sources for documents, as a considerate guest: it makes
// one request at a time to a host, says who it is, waits as long as a busy server asks,
// and gives up an answer that comes too slowly. It follows few redirects. While a host
// wants to be left alone, a request to it fails with a *Busy and is not made. The fields
// must not be changed after the first use. Several goroutines may use it.
type Getter struct {
	Client    *http.Client                    // makes the requests; its CheckRedirect is not used
	Check     func(name, target string) error // returns an error if a URL must not be requested; name says what the URL is; default: http and https are allowed
	UserAgent string                          // default: outbound.UserAgent
	Accept    string                          // media types to ask for; default: XML rather than others
	Tries     int                             // how often a document is requested while its server is busy or unreachable; default 4
	Wait      time.Duration                   // the longest wait that a server may ask for; default 1 hour
	Robots    bool                            // obey the Crawl-delay of the host's robots.txt, up to a minute
	Now       func() time.Time                // for the wait that a host asks for; default: time.Now
	Note      func(error, time.Duration)      // called before a document is requested again, with the reason and the wait; default: nothing is called

	of *Getter // the Getter whose turns at hosts it shares; nil: its own

	mu    sync.Mutex
	hosts map[string]*host
}

// A host is a server that a Getter asks.
type host struct {
	turn chan struct{} // holds an element while a request is under way

	// Only the goroutine with the turn may use these.
	robots robots
	asked  time.Time // when its robots.txt was requested; zero: never
	left   time.Time // when the last request ended; zero: never
	busy   *Busy     // the newest answer that asked to wait; nil if there was none
	until  time.Time // when the wait that busy asks for ends
}

// refused notes the error of a request, which may be that the host asked to wait. Then all
// requests to it wait: a caller with a new reason to ask does not know what the host
// answered before.
func (h *host) refused(err error, now time.Time) error {
	if busy, ok := errors.AsType[*Busy](err); ok && busy.After > 0 {
		h.busy, h.until = busy, now.Add(busy.After)
	}
	return err
}

// waiting returns what is left of the wait that the host asked for, nil if nothing is.
func (h *host) waiting(now time.Time) *Busy {
	if left := h.until.Sub(now); left > 0 {
		return &Busy{h.busy.Status, left}
	}
	return nil
}

// A Version identifies a version of a document, in the words of its server. The zero
// Version means unknown.
type Version struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// ErrUnchanged means that a document, or all documents of a listing, did not change.
var ErrUnchanged = errors.New("unchanged")

// A Busy is the error of a server that asks to be called later.
type Busy struct {
	Status int
	After  time.Duration // how long not to ask it, a day at most; 0: it does not say
}

// Error says when the server may be called again.
func (b *Busy) Error() string {
	return fmt.Sprintf("the answer is %d: the server wants to be asked again in %v", b.Status, b.After)
}

// IsAway reports whether an error of a Getter means that a server is busy, broken or
// unreachable. The error then says nothing about the server's documents, and the caller
// may try later.
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
	Body     io.Reader // the document, unpacked
	URL      *url.URL  // where it is, after redirects
	Header   http.Header
	Version  Version // for the next request
	Complete bool    // if Body ends without an error, HTTP guarantees that the document is whole

	close func()
}

// Close ends the request. The caller of Get must call it.
func (a *Answer) Close() { a.close() }

// Get asks for the document at target. what names the document in errors. The error is
// ErrUnchanged when the document still has the version known. Get blocks until the answer
// begins, including all waits between tries. Reading Body blocks, too, but fails if too
// little data comes. Errors do not contain the query of the URL, which may be a secret.
func (g *Getter) Get(ctx context.Context, what, target string, known Version) (a *Answer, err error) {
	err = g.Retry(ctx, func() error {
		a, err = g.try(ctx, what, target, known, false)
		return err
	})
	return a, err
}

// GetAny makes one try to get the document at target, whatever the status of the answer is.
// It follows redirects, and an answer that asks to be called later is a *Busy.
func (g *Getter) GetAny(ctx context.Context, what, target string) (*Answer, error) {
	return g.try(ctx, what, target, Version{}, true)
}

// Refused returns the error of Get for an answer that has another status than 200.
func (a *Answer) Refused(what string) error {
	return fmt.Errorf("%s (%s): %w", what, Plain(a.URL), answered(a.Status))
}

// Retry calls f until it succeeds. It calls f again only while a server is busy or
// unreachable, as often and with the same waits as Get. It returns the last error of f.
func (g *Getter) Retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		wait, again := g.again(err, try)
		if err == nil || !again {
			return err
		}
		if g.Note != nil {
			g.Note(err, wait)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return fmt.Errorf("%w; then it was given up: %w", err, context.Cause(ctx))
		}
	}
}

// Once returns a Getter like g that makes only one try. It shares the turns at hosts with
// g.
func (g *Getter) Once() *Getter {
	return &Getter{Client: g.Client, Check: g.Check, UserAgent: g.UserAgent, Accept: g.Accept, Wait: g.Wait, Now: g.Now, Robots: g.Robots, Tries: 1, of: g.root()}
}

func (g *Getter) now() time.Time {
	if g.Now == nil {
		return time.Now()
	}
	return g.Now()
}

// root returns the Getter whose turns at hosts g shares.
func (g *Getter) root() *Getter {
	if g.of != nil {
		return g.of
	}
	return g
}

// again reports whether to try again after an error, and how long to wait.
func (g *Getter) again(err error, try int) (time.Duration, bool) {
	most, tried := g.Wait, g.Tries
	if most <= 0 {
		most = waitMost
	}
	if tried <= 0 {
		tried = tries
	}
	if err == nil || try >= tried {
		return 0, false
	}
	if busy, ok := errors.AsType[*Busy](err); ok {
		if busy.After == 0 {
			return backoff.Jitter(busyTime << (try - 1)), true
		}
		return busy.After, busy.After <= most
	}
	if f, ok := errors.AsType[*outbound.Failure](err); ok {
		switch f.Outcome {
		case outbound.Timeout, outbound.Unreachable, outbound.Other, outbound.ServerError:
			return backoff.Jitter(waitTime << (2 * (try - 1))), true
		}
	}
	return 0, false
}

// try makes one try, and follows redirects. any says that every status is an answer.
func (g *Getter) try(ctx context.Context, what, target string, known Version, any bool) (*Answer, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("%s: its URL cannot be read", what) // err contains the URL
	}
	for hop := 0; ; hop++ {
		if err := idn.Host(u); err != nil {
			return nil, fmt.Errorf("%s (%s): %w", what, Plain(u), resourcesync.Invalidf("%v", err))
		}
		a, to, err := g.ask(ctx, what, u, known, any)
		if err != nil && err != ErrUnchanged {
			return nil, fmt.Errorf("%s (%s): %w", what, Plain(u), err)
		}
		if to == nil {
			return a, err
		}
		if hop == redirectsMax {
			return nil, fmt.Errorf("%s (%s): more than %d redirects", what, Plain(u), redirectsMax)
		}
		u = to
	}
}

// Plain returns a URL without the parts that may be secret: user, password and
// query.
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
		return resourcesync.Invalidf("%s is at no URL that begins with http:// or https://", name)
	case g.Check != nil:
		return g.Check(strings.TrimPrefix(name, "the "), u.String())
	}
	return nil
}

// ask makes one request. It returns the answer, or where a redirect leads.
func (g *Getter) ask(ctx context.Context, what string, u *url.URL, known Version, any bool) (a *Answer, to *url.URL, err error) {
	if err := g.check(what, u); err != nil {
		return nil, nil, err
	}
	h, leave, err := g.enter(ctx, u)
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
		err := unanswered(resp)
		if _, busy := errors.AsType[*Busy](err); busy || !any {
			return nil, nil, h.refused(err, g.now())
		}
	}
	body := outbound.NewPaced(resp.Body, paceBytes, paceTime, cancel)
	unpacked, err := unpack(body)
	if err != nil {
		body.Stop()
		if resp.StatusCode != http.StatusOK {
			return nil, nil, unanswered(resp)
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

// unanswered returns the error for an answer that has no document.
func unanswered(resp *http.Response) error {
	switch status := resp.StatusCode; status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &Busy{status, min(problem.RetryAfter(resp.Header, time.Now()), afterMost)}
	default:
		return answered(status)
	}
}

func answered(status int) error {
	return outbound.Answered(fmt.Sprintf("the answer is %d", status), status)
}

// request sends a request, and waits until the answer begins. The caller must call
// cancel.
func (g *Getter) request(ctx context.Context, u *url.URL, known Version) (resp *http.Response, cancel context.CancelFunc, err error) {
	ctx, cancel = context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, nil, errors.New("its URL cannot be requested") // err contains the URL
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
	late := time.AfterFunc(headTime, cancel)
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

// enter waits for the turn at a host. The caller must call leave. The error is a *Busy if
// the host wants to be left alone.
func (g *Getter) enter(ctx context.Context, u *url.URL) (h *host, leave func(), err error) {
	h, err = g.turn(ctx, u)
	if err != nil {
		return nil, nil, err
	}
	if busy := h.waiting(g.now()); busy != nil {
		<-h.turn
		return nil, nil, busy
	}
	if g.Robots && !h.left.IsZero() { // the first request need not wait
		g.readRobots(ctx, h, u)
	}
	if wait := time.Until(h.left.Add(h.robots.delay)); wait > 0 && backoff.Sleep(ctx, wait) != nil {
		<-h.turn
		return nil, nil, outbound.Explain(context.Cause(ctx))
	}
	return h, func() {
		h.left = time.Now()
		<-h.turn
	}, nil
}

// turn waits for the turn at a host. To give it up, receive from the host's
// channel.
func (g *Getter) turn(ctx context.Context, u *url.URL) (*host, error) {
	root := g.root()
	root.mu.Lock()
	if root.hosts == nil {
		root.hosts = map[string]*host{}
	}
	name := outbound.Site(u)
	h := root.hosts[name]
	if h == nil {
		if len(root.hosts) >= hostsMost {
			now := g.now()
			maps.DeleteFunc(root.hosts, func(_ string, h *host) bool { return h.rested(now) })
		}
		h = &host{turn: make(chan struct{}, 1)}
		root.hosts[name] = h
	}
	root.mu.Unlock()
	select {
	case h.turn <- struct{}{}:
		return h, nil
	case <-ctx.Done():
		return nil, outbound.Explain(context.Cause(ctx))
	}
}

// rested reports whether a host has no request under way, and wants no pause before the next.
func (h *host) rested(now time.Time) bool {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
		return time.Since(h.left) >= h.robots.delay && h.waiting(now) == nil
	default:
		return false
	}
}

// VersionOf returns the Version of an answer. What changed within the last two seconds has
// none: it may change again within that second, and then many servers give it the same ETag,
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

// unpack returns the content of r, decompressed if it is gzip. It decides by the first
// bytes, because the headers of many servers are wrong.
func unpack(r io.Reader) (io.Reader, error) {
	for range packedTwice {
		in := bufio.NewReaderSize(r, 32<<10)
		r = in
		if begin, _ := in.Peek(2); !gunzip.IsGzip(begin) { // the first read returns an error again
			return r, nil
		}
		packed, err := gunzip.NewReader(in)
		if err != nil {
			return nil, damaged(err)
		}
		r = unpacking{packed}
	}
	return r, nil
}

// unpacking is a gzip reader. The errors of a damaged gzip say that the document may be
// whole at another try.
type unpacking struct{ *gunzip.Reader }

func (u unpacking) Read(b []byte) (int, error) {
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
