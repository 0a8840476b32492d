// Package fetch downloads the contents of resources over HTTP, many at once but few from one host,
// and verifies length and hash.
//
// Package mirror decides what to fetch, when to retry, and where to store it.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

// Options configures a Fetcher. Zero values are the defaults.
type Options struct {
	Client       *http.Client  // default http.DefaultClient; a Fetcher copies it, and follows redirects itself
	Parallel     int           // maximum concurrent requests; default 16
	PerHost      int           // maximum concurrent requests per host; default 4
	MaxSize      int64         // maximum size of a content in bytes; default 10 GiB
	StallTimeout time.Duration // ends a request that receives less than 1 KiB in this time; default 30 s
	Attempts     int           // requests of a content per URL and Get; default 3
	RetryPause   time.Duration // pause before the second attempt, doubled each time; default 1 s
	UserAgent    string        // default "rsmirror"

	// DuplicatesFirst requests a content first from the duplicates that the source names, and
	// from its loc only if no duplicate is correct. Default: its loc first.
	DuplicatesFirst bool
}

const (
	maxRedirects    = 5
	stallBytes      = 1 << 10 // of Options.StallTimeout
	maxRedirectBody = 4 << 10 // bytes read from the body of a redirect, so that the connection can be reused
)

func (o Options) withDefaults() Options {
	client := *cmp.Or(o.Client, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	o.Parallel = cmp.Or(o.Parallel, 16)
	o.PerHost = cmp.Or(o.PerHost, 4)
	o.MaxSize = cmp.Or(o.MaxSize, 10<<30)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.Attempts = cmp.Or(o.Attempts, 3)
	o.RetryPause = cmp.Or(o.RetryPause, time.Second)
	o.UserAgent = cmp.Or(o.UserAgent, "rsmirror")
	return o
}

// A Fetcher fetches contents. It is safe for concurrent use.
type Fetcher struct {
	opts  Options
	hosts *hostLimits
}

// New returns a Fetcher.
func New(o Options) *Fetcher {
	o = o.withDefaults()
	return &Fetcher{opts: o, hosts: newHostLimits(o.Parallel, o.PerHost)}
}

// Parallel returns the maximum number of concurrent requests.
func (f *Fetcher) Parallel() int { return f.opts.Parallel }

// A Request describes a content to fetch.
type Request struct {
	Change *resourcesync.Change // names the URLs: its loc, its links rel=duplicate, and its links rel=memento with its hash; length and hash verify the content

	// ETag and Modified are the validators of the content that the caller has. If the server
	// reports it as unchanged, nothing is transferred.
	ETag, Modified string

	// Changed is the time of the last change of the content. If the source names no hash, caches
	// may serve only younger copies. Zero means unknown: then caches may serve none.
	Changed time.Time

	Part *Part // part that the file already has; nil if the file is empty

	// Packed opens the content in a package. If that content is wrong, Get requests it over
	// HTTP. Default: no package.
	Packed func() (io.ReadCloser, error)

	Timeout time.Duration // maximum duration of a request with its body; default: as long as data arrives
}

// A Part names the origin of a partly received content.
type Part struct {
	URL  string
	ETag string // a strong ETag
}

// A Result describes a content that is complete and verified.
type Result struct {
	Unchanged bool // the caller's content is still current, and the file is empty
	Size      int64
	SHA256    string // lower-case hex
	ETag      string // empty if the response has none, if it is too young to be reliable, or if the content is not from its loc
	Modified  string // Last-Modified of the response; empty in the same cases
}

// A Failure reports that the content could not be fetched, or is wrong. Errors of the caller's
// disk have other types.
type Failure struct {
	Err        error
	RetryAfter time.Duration // time before which a retry is useless; 0 if unknown
	Part       *Part         // part in the file that a retry can resume; nil if the file is useless
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Get writes a content to a file. It blocks until the content is complete and verified, or until
// all attempts at all URLs have failed. The error is a *Failure, an error of the file, or the
// error of ctx.
func (f *Fetcher) Get(ctx context.Context, w Request, to *os.File) (*Result, error) {
	if n := w.Change.Length; n != nil && *n > f.opts.MaxSize {
		return nil, &Failure{Err: fmt.Errorf("content: got %d bytes, want at most %d", *n, f.opts.MaxSize)}
	}
	g := &transfer{Fetcher: f, Request: w, body: body{to, NewSum(w.Change.Hash)}}
	if w.Packed != nil {
		if result, err := g.readPacked(ctx); result != nil || err != nil {
			return result, err
		}
	}
	if g.Part != nil {
		if err := g.rehash(); err != nil {
			return nil, err
		}
	}
	var why *Failure
	for _, place := range f.urls(w.Change) {
		got, err := g.fetchFrom(ctx, place)
		failure, failed := errors.AsType[*Failure](err)
		if err == nil && place != w.Change.Loc {
			got.ETag, got.Modified = "", "" // they are not validators of the loc
		}
		if !failed {
			return got, err
		}
		if why == nil || place == w.Change.Loc {
			why = failure
		}
	}
	why.Part = g.Part // the file may have a part from a later URL
	return nil, why
}

// urls returns the URLs of a content in the order of the attempts. A memento of the requested
// version comes last: only it still has the content if the resource has changed again. Without a
// hash, a version cannot be recognized.
func (f *Fetcher) urls(c *resourcesync.Change) []string {
	all := linkTargets(c, "duplicate", func(*resourcesync.Link) bool { return true })
	if f.opts.DuplicatesFirst {
		all = append(all, c.Loc)
	} else {
		all = append([]string{c.Loc}, all...)
	}
	return append(all, linkTargets(c, "memento", func(l *resourcesync.Link) bool { return shareHash(l.Hash, c.Hash) })...)
}

// linkTargets returns the targets of at most five matching links of a relation, in ascending
// order of pri.
func linkTargets(c *resourcesync.Change, rel string, fits func(*resourcesync.Link) bool) (all []string) {
	const most, lowest = 5, 999_999
	pri := func(l *resourcesync.Link) int {
		if l.Pri == 0 {
			return lowest // core section 7
		}
		return l.Pri
	}
	var links []*resourcesync.Link
	for i := range c.Links {
		if l := &c.Links[i]; l.Rel == rel && (strings.HasPrefix(l.Href, "https://") || strings.HasPrefix(l.Href, "http://")) && fits(l) {
			links = append(links, l)
		}
	}
	slices.SortStableFunc(links, func(a, b *resourcesync.Link) int { return pri(a) - pri(b) })
	for _, l := range links[:min(len(links), most)] {
		all = append(all, l.Href)
	}
	return all
}

// shareHash reports whether two lists of hashes in the form of resourcesync.Change.Hash have one
// in common.
func shareHash(a, b string) bool {
	for hash := range strings.FieldsSeq(a) {
		if slices.ContainsFunc(strings.Fields(b), func(other string) bool { return strings.EqualFold(hash, other) }) {
			return true
		}
	}
	return false
}

// A transfer is one call of Get.
type transfer struct {
	*Fetcher
	Request
	body
	url     string // current URL
	noCache bool   // make caches revalidate, because their content was wrong
}

// A wrongContentError reports that a content is complete but wrong.
type wrongContentError struct{ error }

// fetchFrom fetches the content from one URL, with retries.
func (g *transfer) fetchFrom(ctx context.Context, place string) (*Result, error) {
	u, err := url.Parse(place)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &Failure{Err: fmt.Errorf("fetch %s: want an http or https URL", resourcesync.Shorten(place))}
	}
	g.url, g.noCache = place, false
	for try := 1; ; try++ {
		got, err := g.attempt(ctx, u)
		if ctx.Err() != nil && err != nil {
			return nil, ctx.Err()
		}
		if d, ok := errors.AsType[*diskError](err); ok {
			return nil, d.err
		}
		if _, failed := errors.AsType[*Failure](err); err == nil || failed {
			return got, err
		}
		_, wrong := errors.AsType[wrongContentError](err)
		if p, paused := errors.AsType[*HostPausedError](err); paused {
			return nil, &Failure{Err: err, RetryAfter: time.Until(p.Until), Part: g.Part}
		}
		if try >= g.opts.Attempts || wrong && g.noCache {
			return nil, &Failure{Err: err, Part: g.Part}
		}
		g.noCache = g.noCache || wrong
		if !wrong && !backoff.Wait(ctx, g.opts.RetryPause<<(try-1)) {
			return nil, ctx.Err()
		}
	}
}

// attempt makes one request, and follows redirects. After a *Failure another attempt is useless
// now; after any other error it makes sense.
func (g *transfer) attempt(ctx context.Context, u *url.URL) (*Result, error) {
	if g.Timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, g.Timeout, errTimeout)
		defer end()
	}
	at := u
	for hop := 0; ; hop++ {
		got, to, err := g.roundTrip(ctx, u, at)
		switch {
		case err != nil && context.Cause(ctx) == errTimeout:
			return nil, &Failure{Err: fmt.Errorf("%w: got %d bytes", errTimeout, g.Size()), Part: g.Part}
		case err != nil || to == nil:
			return got, err
		case hop == maxRedirects:
			return nil, &Failure{Err: fmt.Errorf("got more than %d redirects", maxRedirects)}
		}
		at = to
	}
}

// roundTrip makes one request to at, the URL that u has redirected to so far. It returns the
// content or the target of the next redirect. Each host has its own limit and its own pauses.
func (g *transfer) roundTrip(ctx context.Context, u, at *url.URL) (got *Result, to *url.URL, err error) {
	all := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host := outbound.Site(at)
	release, err := g.hosts.acquire(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	r, err := g.newRequest(ctx, u, at)
	if err != nil {
		return nil, nil, err
	}
	start := time.Now()
	headers := time.AfterFunc(g.opts.StallTimeout, cancel)
	resp, err := g.opts.Client.Do(r)
	if err != nil {
		if all.Err() == nil {
			g.hosts.recordTimeout(host, start)
		}
		if !headers.Stop() {
			err = fmt.Errorf("no response within %v", g.opts.StallTimeout)
		}
		return nil, nil, g.withoutURL(err)
	}
	defer headers.Stop()
	defer resp.Body.Close()
	g.hosts.recordResponse(host, resp)
	if to, err = outbound.RedirectOf(resp); err != nil {
		return nil, nil, &Failure{Err: err}
	}
	if to != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRedirectBody) // the headers timer bounds it
		return nil, to, nil
	}
	headers.Stop()
	got, err = g.readResponse(resp, u, cancel)
	return got, nil, err
}

// errTimeout reports that a content takes longer than Request.Timeout.
var errTimeout = errors.New("request timed out")

// withoutURL removes from an error what the caller knows: the method and the URL.
func (g *transfer) withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// newRequest returns a request to at, the URL that u has redirected to so far.
func (g *transfer) newRequest(ctx context.Context, u, at *url.URL) (*http.Request, error) {
	if g.Part != nil && g.Part.URL != u.String() || g.Part == nil && g.Size() > 0 {
		g.Part = nil
		if err := g.truncate(); err != nil {
			return nil, &diskError{err}
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, &Failure{Err: err}
	}
	r.Header.Set("User-Agent", g.opts.UserAgent)
	r.Header.Set("Accept-Encoding", "identity") // the hashes are of the unencoded content
	if !g.HasHash() {
		r.Header.Set("Cache-Control", "max-age="+strconv.FormatInt(g.maxAge(), 10))
	}
	switch {
	case g.Part != nil:
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", g.Size()))
		r.Header.Set("If-Range", g.Part.ETag)
	case g.noCache:
		r.Header.Set("Cache-Control", "no-cache")
	case g.url != g.Change.Loc: // the validators belong to the loc
	case g.ETag != "":
		r.Header.Set("If-None-Match", g.ETag)
	case g.Modified != "":
		r.Header.Set("If-Modified-Since", g.Modified)
	}
	return r, nil
}

// maxAge returns the maximum age in seconds of a cached copy that surely has the change.
func (g *transfer) maxAge() int64 {
	if g.Changed.IsZero() {
		return 0
	}
	const rounding = time.Second // caches count whole seconds
	return max(0, int64((time.Since(g.Changed)-rounding)/time.Second))
}

// readResponse handles a response that is not a redirect.
func (g *transfer) readResponse(resp *http.Response, u *url.URL, cancel context.CancelFunc) (*Result, error) {
	version := harvest.VersionOf(resp)
	got := &Result{ETag: version.ETag, Modified: version.LastModified}
	switch status := resp.StatusCode; {
	case status == http.StatusNotModified && g.Part == nil && !g.noCache && (g.ETag != "" || g.Modified != ""):
		got.Unchanged = true
		return got, nil
	case status == http.StatusPartialContent && g.Part != nil:
		var from, to, size int64 // a server may send only part of the rest
		ranges := resp.Header.Get("Content-Range")
		if _, err := fmt.Sscanf(ranges, "bytes %d-%d/%d", &from, &to, &size); err != nil || from != g.Size() || to+1 != size {
			g.Part = nil
			return nil, fmt.Errorf("resume content: got Content-Range %.40q, want the rest from byte %d", ranges, g.Size())
		}
		if want, tag := g.Part.ETag, resp.Header.Get("ETag"); tag != want { // some servers ignore If-Range
			g.Part = nil
			return nil, fmt.Errorf("resume content: got ETag %.40q, want %.40q", tag, want)
		}
	case status == http.StatusRequestedRangeNotSatisfiable:
		g.Part = nil
		return nil, statusError(resp)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable, status >= 500:
		return nil, statusError(resp)
	case status != http.StatusOK:
		return nil, &Failure{Err: statusError(resp)}
	case g.hasWrongEncoding(resp):
		g.Part = nil
		return nil, wrongContentError{fmt.Errorf("got Content-Encoding %.40q, want identity or the encoding that the source names", resp.Header.Get("Content-Encoding"))}
	default:
		g.Part = nil
		if err := g.truncate(); err != nil {
			return nil, &diskError{err}
		}
	}
	if err := g.readBody(resp, u, cancel); err != nil {
		return nil, err
	}
	got.Size, got.SHA256 = g.Size(), g.SHA256()
	return got, nil
}

// statusError returns the error for a response without a content. It leaves out the reason
// phrase of the server, which may be long and contain control sequences for terminals.
func statusError(resp *http.Response) error {
	return errors.New(strings.TrimSpace(fmt.Sprintf("got status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))))
}

// hasWrongEncoding reports whether a response has an encoding that the source does not name.
// With a length or a hash, that check is not needed: they show whether the content is right.
func (g *transfer) hasWrongEncoding(resp *http.Response) bool {
	coding := resp.Header.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(coding, "identity") && !strings.EqualFold(coding, g.Change.Encoding) && g.Change.Length == nil && !g.HasHash()
}

// readBody reads the body of a response into the file, and verifies the content.
func (g *transfer) readBody(resp *http.Response, u *url.URL, cancel context.CancelFunc) error {
	limit, origin := g.opts.MaxSize, "the maximum size"
	if n := g.Change.Length; n != nil {
		limit, origin = *n, "the length that the source names"
	}
	tooLong := fmt.Errorf("content: got more than %d bytes, %s", limit, origin)
	if n := resp.ContentLength; n > limit-g.Size() {
		g.Part = nil
		return wrongContentError{tooLong}
	}
	in := outbound.NewPacedReader(resp.Body, stallBytes, g.opts.StallTimeout, cancel)
	defer in.Stop()
	_, err := io.Copy(&g.body, io.LimitReader(in, limit-g.Size()+1))
	if d, ok := errors.AsType[*diskError](err); ok {
		return d
	}
	switch {
	case g.Size() > limit:
		g.Part = nil
		return wrongContentError{tooLong}
	case err != nil:
		err = fmt.Errorf("content interrupted after %d bytes: %w", g.Size(), err)
		g.Part = nil
		tag := harvest.VersionOf(resp).ETag
		if g.HasHash() { // the hash shows whether the rest belongs to another content
			tag = resp.Header.Get("ETag")
		}
		if strings.HasPrefix(tag, `"`) && g.Size() > 0 {
			g.Part = &Part{URL: u.String(), ETag: tag}
		}
		return err
	}
	g.Part = nil
	if err := g.Check(g.Change.Length); err != nil {
		return wrongContentError{err}
	}
	return nil
}
