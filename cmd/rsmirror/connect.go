package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
)

func userAgent() string { return "rsmirror/" + build.Version() }

// foreignTransport returns a transport for URLs in the documents of a source. With -public, it
// connects only to public addresses.
func (p *program) foreignTransport() http.RoundTripper {
	if p.public {
		return outbound.New(outbound.Options{PerHost: p.perHost, Idle: p.parallel})
	}
	t := newTransport()
	t.MaxIdleConnsPerHost = p.perHost
	return t
}

// newTransport returns a transport that does not decompress contents.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // contents are stored unchanged
	return t
}

// A bearerTransport adds a bearer token to requests. It sends each token only to its origin.
type bearerTransport struct {
	http.RoundTripper
	tokens map[string]string // tokens by origin
}

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if token := b.tokens[outbound.Origin(r.URL)]; token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.RoundTripper.RoundTrip(r)
}

// An originTransport sends requests to origin with the embedded RoundTripper, and requests to
// other origins, whose URLs are from documents of the source, with foreign.
type originTransport struct {
	http.RoundTripper
	origin  string
	foreign http.RoundTripper
}

func (o originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if outbound.Origin(r.URL) == o.origin {
		return o.RoundTripper.RoundTrip(r)
	}
	return o.foreign.RoundTrip(r)
}

// makeClients makes the clients for the source and the contents. The settings must be known.
func (p *program) makeClients() {
	p.documents = p.documentClient()
	p.fetcher = fetch.New(fetch.Options{
		Client: &http.Client{Transport: bearerTransport{p.foreignTransport(), p.contentTokens}}, Parallel: p.parallel, PerHost: p.perHost,
		MaxSize: int64(p.maxSize), UserAgent: userAgent(), DuplicatesFirst: p.duplicatesFirst,
	})
}

// documentClient returns a client for the documents and the hub of the source.
func (p *program) documentClient() *http.Client {
	var t http.RoundTripper = newTransport()
	if u, err := url.Parse(p.settings.URL); err == nil {
		if p.public {
			t = originTransport{t, outbound.Origin(u), p.foreignTransport()}
		}
		if p.token != "" {
			t = bearerTransport{t, map[string]string{outbound.Origin(u): p.token}}
		}
	}
	return &http.Client{Transport: t}
}

// mirrorOptions returns the options of a mirror.
func (p *program) mirrorOptions() mirror.Options {
	return mirror.Options{
		HTTP: p.documents, UserAgent: userAgent(), Prefix: p.settings.Prefix, Collection: p.settings.Collection, PollInterval: p.every, SourceTimeout: p.retry,
		MaxSize: int64(p.maxSize),
		Logf:    p.noteNew,
		OnCount: p.setExpected,
		Hub:     p.clientOptions(),
	}
}

// clientOptions returns the options of a client of the hub.
func (p *program) clientOptions() client.Options {
	return client.Options{HTTP: p.documents, UserAgent: userAgent(), OnRetry: p.printRetry}
}

// setExpected sets the number of resources for the progress report. With several sets it is unknown.
func (p *program) setExpected(n uint64) {
	if p.set == "" {
		p.report.setExpected(n)
	}
}

// printRetry prints the reason for a retry, and the delay before it.
func (p *program) printRetry(err error, wait time.Duration) {
	p.note("%v; retrying in %s", err, wait.Round(100*time.Millisecond))
}

// findSource discovers the documents of the source. While the source is unavailable it retries: with
// -once, for audits and for one of several sets no longer than -retry. It blocks until it succeeds,
// fails for good, or ctx is canceled.
func (p *program) findSource(ctx context.Context) (*discovery.Source, error) {
	g := &harvest.Getter{Client: p.documents, UserAgent: userAgent(), Robots: true, Tries: 1}
	pause := time.Second
	for start := time.Now(); ; {
		source, err := discovery.Find(ctx, g, p.settings.URL)
		if err == nil {
			return source, nil
		}
		if f, ok := errors.AsType[*outbound.Failure](err); ok && f.Status == http.StatusUnauthorized && p.token == "" {
			err = fmt.Errorf("%w; set RSMIRROR_TOKEN or -token-file to a token", err)
		}
		wait := backoff.Jitter(pause)
		if busy, ok := errors.AsType[*harvest.Busy](err); ok {
			wait = max(wait, busy.After)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !harvest.IsAway(err), errors.Is(err, outbound.ErrAddress), (p.once || p.audit || p.set != "") && time.Since(start)+wait > p.retry:
			return nil, &mirror.SourceError{Err: err}
		}
		p.printRetry(err, wait)
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
		pause = min(2*pause, time.Minute)
	}
}
