// Package fetch gets the contents of resources over HTTP, many at once but few from one host, and
// verifies length and hash.
//
// It does not decide what to get, when to try again, or where to store it: package mirror does.
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

// Options of a Fetcher. Zero values are the defaults.
type Options struct {
	Client    *http.Client  // default http.DefaultClient; a Fetcher copies it, and follows redirects itself
	Parallel  int           // requests at a time; default 16
	PerHost   int           // requests at a time to one host; default 4
	MaxSize   int64         // the most bytes of a content; default 10 GiB
	Stall     time.Duration // a request ends if less than 1 KiB comes in that time; default 30 s
	Tries     int           // how often a content is requested in one Get; default 3
	Pause     time.Duration // before the second try, doubled each time; default 1 s
	UserAgent string        // default "rsmirror"

	// DuplicatesFirst requests a content first from the duplicates that the source names,
	// and from its loc only if none of them is right. Default: its loc first.
	DuplicatesFirst bool
}

const (
	maxRedirects = 5
	stallBytes   = 1 << 10 // of Options.Stall
	moreBytes    = 4 << 10 // of a redirect that are read, so that the connection can be used again
)

func (o Options) withDefaults() Options {
	client := *cmp.Or(o.Client, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	o.Parallel = cmp.Or(o.Parallel, 16)
	o.PerHost = cmp.Or(o.PerHost, 4)
	o.MaxSize = cmp.Or(o.MaxSize, 10<<30)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Tries = cmp.Or(o.Tries, 3)
	o.Pause = cmp.Or(o.Pause, time.Second)
	o.UserAgent = cmp.Or(o.UserAgent, "rsmirror")
	return o
}

// A Fetcher fetches contents. Several goroutines may use it.
type Fetcher struct {
	opts  Options
	hosts *hosts
}

// New returns a Fetcher.
func New(o Options) *Fetcher {
	o = o.withDefaults()
	return &Fetcher{opts: o, hosts: newHosts(o.Parallel, o.PerHost)}
}

// Parallel returns how many requests are under way at a time, at most.
func (f *Fetcher) Parallel() int { return f.opts.Parallel }

// A Wanted says which content to fetch.
type Wanted struct {
	Change *resourcesync.Change // the content is at its loc, its links rel=duplicate, and its links rel=memento with its hash; length and hash verify it

	// ETag and Modified belong to the content that the caller has. If the server says
	// that it is unchanged, nothing is transferred.
	ETag, Modified string

	// Changed is when the content changed. If the source names no hash, caches on the way may
	// have only what is younger. The zero Time means unknown: they may have nothing.
	Changed time.Time

	Part *Part // the part that the file already has; nil: the file is empty

	// Packed opens the content in a package. If that content is wrong, Get requests it
	// over HTTP. Default: no package.
	Packed func() (io.ReadCloser, error)

	Patience time.Duration // how long one request with its content may take; default: as long as data comes
}

// A Part says where the beginning of a content came from.
type Part struct {
	URL  string
	ETag string // a strong ETag
}

// A Got is a content that is complete and verified.
type Got struct {
	Unchanged bool // the server says that the caller's content is unchanged; the file is empty
	Size      int64
	SHA256    string // lower-case hex
	ETag      string // empty: the answer has none, it is no proof, or the content is not from its loc
	Modified  string // Last-Modified of the answer; empty as ETag
}

// A Failure means that the content could not be fetched, or is wrong. Errors of the
// caller's disk are other errors.
type Failure struct {
	Err   error
	After time.Duration // another try before this time is useless; 0: unknown
	Part  *Part         // the part in the file that another try can continue; nil: the file is useless
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Get writes a content to a file. It blocks until the content is complete and verified,
// or until all tries at all of its URLs have failed. The error is a *Failure, one of the
// file, or ctx's error.
func (f *Fetcher) Get(ctx context.Context, w Wanted, to *os.File) (*Got, error) {
	if n := w.Change.Length; n != nil && *n > f.opts.MaxSize {
		return nil, &Failure{Err: fmt.Errorf("the content has %d bytes, and at most %d are allowed", *n, f.opts.MaxSize)}
	}
	g := &getting{Fetcher: f, Wanted: w, body: body{to, NewSum(w.Change.Hash)}}
	if w.Packed != nil {
		if got, err := g.unpack(ctx); got != nil || err != nil {
			return got, err
		}
	}
	if g.Part != nil {
		if err := g.load(); err != nil {
			return nil, err
		}
	}
	var why *Failure
	for _, place := range f.places(w.Change) {
		got, err := g.from(ctx, place)
		failure, failed := errors.AsType[*Failure](err)
		if err == nil && place != w.Change.Loc {
			got.ETag, got.Modified = "", "" // they do not belong to the loc
		}
		if !failed {
			return got, err
		}
		if why == nil || place == w.Change.Loc {
			why = failure
		}
	}
	why.Part = g.Part // the file may have a part from a later place
	return nil, why
}

// places returns the URLs of a content, in the order of the tries. A memento of the
// wanted version comes last: only it still has the content if the resource has changed
// again. Without a hash, a version cannot be recognized.
func (f *Fetcher) places(c *resourcesync.Change) []string {
	all := linked(c, "duplicate", func(*resourcesync.Link) bool { return true })
	if f.opts.DuplicatesFirst {
		all = append(all, c.Loc)
	} else {
		all = append([]string{c.Loc}, all...)
	}
	return append(all, linked(c, "memento", func(l *resourcesync.Link) bool { return shareHash(l.Hash, c.Hash) })...)
}

// linked returns the targets of the fitting links of a relation, at most five, those with
// the lowest pri first.
func linked(c *resourcesync.Change, rel string, fits func(*resourcesync.Link) bool) (all []string) {
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

// shareHash reports whether two texts in the form of resourcesync.Change.Hash have a hash in
// common.
func shareHash(a, b string) bool {
	for hash := range strings.FieldsSeq(a) {
		if slices.ContainsFunc(strings.Fields(b), func(other string) bool { return strings.EqualFold(hash, other) }) {
			return true
		}
	}
	return false
}

// A getting is one Get.
type getting struct {
	*Fetcher
	Wanted
	body
	place string // the URL that is tried now
	fresh bool   // make caches ask the server, because their content was wrong
}

// errWrong means that a content is complete but wrong.
type errWrong struct{ error }

// from fetches the content from one place.
func (g *getting) from(ctx context.Context, place string) (*Got, error) {
	u, err := url.Parse(place)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &Failure{Err: fmt.Errorf("%s is not a URL with http or https, so it cannot be fetched", resourcesync.Shorten(place))}
	}
	g.place, g.fresh = place, false
	for try := 1; ; try++ {
		got, err := g.once(ctx, u)
		if ctx.Err() != nil && err != nil {
			return nil, ctx.Err()
		}
		if d, ok := errors.AsType[*diskError](err); ok {
			return nil, d.err
		}
		if _, failed := errors.AsType[*Failure](err); err == nil || failed {
			return got, err
		}
		_, wrong := errors.AsType[errWrong](err)
		if p, paused := errors.AsType[*Paused](err); paused {
			return nil, &Failure{Err: err, After: time.Until(p.Until), Part: g.Part}
		}
		if try >= g.opts.Tries || wrong && g.fresh {
			return nil, &Failure{Err: err, Part: g.Part}
		}
		g.fresh = g.fresh || wrong
		if !wrong && !backoff.Wait(ctx, g.opts.Pause<<(try-1)) {
			return nil, ctx.Err()
		}
	}
}

// once makes one request, and follows redirects. After a *Failure another request is
// useless now; after any other error it makes sense.
func (g *getting) once(ctx context.Context, u *url.URL) (*Got, error) {
	if g.Patience > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, g.Patience, errPatience)
		defer end()
	}
	at := u
	for hop := 0; ; hop++ {
		got, to, err := g.ask(ctx, u, at)
		switch {
		case err != nil && context.Cause(ctx) == errPatience:
			return nil, &Failure{Err: fmt.Errorf("%w; so far it has %d bytes", errPatience, g.Size()), Part: g.Part}
		case err != nil || to == nil:
			return got, err
		case hop == maxRedirects:
			return nil, &Failure{Err: fmt.Errorf("there are more than %d redirects", maxRedirects)}
		}
		at = to
	}
}

// ask makes one request at one of the places to which u leads. It returns the content, or
// the target of a redirect. Each host has its own bound and its own pauses.
func (g *getting) ask(ctx context.Context, u, at *url.URL) (got *Got, to *url.URL, err error) {
	all := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host := outbound.Site(at)
	leave, err := g.hosts.enter(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	r, err := g.request(ctx, u, at)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	headers := time.AfterFunc(g.opts.Stall, cancel)
	resp, err := g.opts.Client.Do(r)
	if err != nil {
		if all.Err() == nil {
			g.hosts.unanswered(host, began)
		}
		if !headers.Stop() {
			err = fmt.Errorf("no answer comes within %v", g.opts.Stall)
		}
		return nil, nil, g.plain(err)
	}
	defer headers.Stop()
	defer resp.Body.Close()
	g.hosts.answered(host, resp)
	if to, err = outbound.RedirectOf(resp); err != nil {
		return nil, nil, &Failure{Err: err}
	}
	if to != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, moreBytes) // until headers ends it
		return nil, to, nil
	}
	headers.Stop()
	got, err = g.take(resp, u, cancel)
	return got, nil, err
}

// errPatience means that a content takes longer than Wanted.Patience.
var errPatience = errors.New("the content takes too long")

// plain removes from an error what the caller knows: the method and the URL.
func (g *getting) plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// request returns a request at one of the places to which u leads.
func (g *getting) request(ctx context.Context, u, at *url.URL) (*http.Request, error) {
	if g.Part != nil && g.Part.URL != u.String() || g.Part == nil && g.Size() > 0 {
		g.Part = nil
		if err := g.clear(); err != nil {
			return nil, &diskError{err}
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, &Failure{Err: err}
	}
	r.Header.Set("User-Agent", g.opts.UserAgent)
	r.Header.Set("Accept-Encoding", "identity") // the hashes are those of the unencoded content
	if !g.Verified() {
		r.Header.Set("Cache-Control", "max-age="+strconv.FormatInt(g.age(), 10))
	}
	switch {
	case g.Part != nil:
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", g.Size()))
		r.Header.Set("If-Range", g.Part.ETag)
	case g.fresh:
		r.Header.Set("Cache-Control", "no-cache")
	case g.place != g.Change.Loc: // ETag and Modified belong to the loc
	case g.ETag != "":
		r.Header.Set("If-None-Match", g.ETag)
	case g.Modified != "":
		r.Header.Set("If-Modified-Since", g.Modified)
	}
	return r, nil
}

// age returns how many seconds ago the content has surely changed already.
func (g *getting) age() int64 {
	if g.Changed.IsZero() {
		return 0
	}
	const rounded = time.Second // caches count whole seconds
	return max(0, int64((time.Since(g.Changed)-rounded)/time.Second))
}

// take reads an answer.
func (g *getting) take(resp *http.Response, u *url.URL, cancel context.CancelFunc) (*Got, error) {
	version := harvest.VersionOf(resp)
	got := &Got{ETag: version.ETag, Modified: version.LastModified}
	switch status := resp.StatusCode; {
	case status == http.StatusNotModified && g.Part == nil && !g.fresh && (g.ETag != "" || g.Modified != ""):
		got.Unchanged = true
		return got, nil
	case status == http.StatusPartialContent && g.Part != nil:
		var from, to, size int64 // a server may send less than the rest
		ranges := resp.Header.Get("Content-Range")
		if _, err := fmt.Sscanf(ranges, "bytes %d-%d/%d", &from, &to, &size); err != nil || from != g.Size() || to+1 != size {
			g.Part = nil
			return nil, fmt.Errorf("the rest was asked for from byte %d on, and the answer has the Content-Range %.40q", g.Size(), ranges)
		}
		if asked, tag := g.Part.ETag, resp.Header.Get("ETag"); tag != asked { // some servers do not know If-Range
			g.Part = nil
			return nil, fmt.Errorf("the rest was asked for of the ETag %.40q, and the answer has %.40q", asked, tag)
		}
	case status == http.StatusRequestedRangeNotSatisfiable:
		g.Part = nil
		return nil, answered(resp)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable, status >= 500:
		return nil, answered(resp)
	case status != http.StatusOK:
		return nil, &Failure{Err: answered(resp)}
	case g.encoded(resp):
		g.Part = nil
		return nil, errWrong{fmt.Errorf("the content comes encoded with %.40q: neither was that asked for, nor does the source say so", resp.Header.Get("Content-Encoding"))}
	default:
		g.Part = nil
		if err := g.clear(); err != nil {
			return nil, &diskError{err}
		}
	}
	if err := g.read(resp, u, cancel); err != nil {
		return nil, err
	}
	got.Size, got.SHA256 = g.Size(), g.SHA256()
	return got, nil
}

// answered returns the error for an answer without a content. It does not have the server's own
// words: they may be long, and control a terminal.
func answered(resp *http.Response) error {
	return errors.New(strings.TrimSpace(fmt.Sprintf("the answer is %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))))
}

// encoded reports whether an answer has another encoding than the source says. A length or a hash
// shows by itself whether the content is right.
func (g *getting) encoded(resp *http.Response) bool {
	coding := resp.Header.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(coding, "identity") && !strings.EqualFold(coding, g.Change.Encoding) && g.Change.Length == nil && !g.Verified()
}

// read reads the body of an answer, and verifies the content of the file.
func (g *getting) read(resp *http.Response, u *url.URL, cancel context.CancelFunc) error {
	most, whose := g.opts.MaxSize, "are allowed"
	if n := g.Change.Length; n != nil {
		most, whose = *n, "the source says"
	}
	tooLong := fmt.Errorf("the content has more than the %d bytes that %s", most, whose)
	if n := resp.ContentLength; n > most-g.Size() {
		g.Part = nil
		return errWrong{tooLong}
	}
	in := outbound.NewPacedReader(resp.Body, stallBytes, g.opts.Stall, cancel)
	defer in.Stop()
	_, err := io.Copy(&g.body, io.LimitReader(in, most-g.Size()+1))
	if d, ok := errors.AsType[*diskError](err); ok {
		return d
	}
	switch {
	case g.Size() > most:
		g.Part = nil
		return errWrong{tooLong}
	case err != nil:
		err = fmt.Errorf("the content broke off after %d bytes: %w", g.Size(), err)
		g.Part = nil
		tag := harvest.VersionOf(resp).ETag
		if g.Verified() { // then the hash shows whether the rest is that of another content
			tag = resp.Header.Get("ETag")
		}
		if strings.HasPrefix(tag, `"`) && g.Size() > 0 {
			g.Part = &Part{URL: u.String(), ETag: tag}
		}
		return err
	}
	g.Part = nil
	if err := g.Check(g.Change.Length); err != nil {
		return errWrong{err}
	}
	return nil
}
