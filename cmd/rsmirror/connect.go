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
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
)

func userAgent() string { return "rsmirror/" + build.Version() }

// foreignTransport returns the transport for URLs that a source names.
func (p *program) foreignTransport() http.RoundTripper {
	if p.public {
		return outbound.New(outbound.Options{PerHost: p.perHost, Idle: p.parallel})
	}
	t := newTransport()
	t.MaxIdleConnsPerHost = p.perHost
	return t
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // contents are stored unchanged
	return t
}

// A bearerTransport sends tokens, each only to the origin that it is for.
type bearerTransport struct {
	http.RoundTripper
	tokens map[string]string // by origin
}

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if token := b.tokens[outbound.Origin(r.URL)]; token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.RoundTripper.RoundTrip(r)
}

// An originTransport is a transport that makes the requests to the user's own origin directly. It
// passes requests to other origins, which the source has named, on to anywhere.
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

// documentClient returns the client for a source's documents, and for its hub.
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

func (p *program) mirrorOptions() mirror.Options {
	httpClient := p.documentClient()
	return mirror.Options{
		HTTP: httpClient, UserAgent: userAgent(), Prefix: p.settings.Prefix, Collection: p.settings.Collection, Every: p.every, Patience: p.retry,
		MaxSize: int64(p.maxSize),
		Note:    func(format string, args ...any) { p.report.Note("rsmirror: "+format, args...) },
		Expect:  p.report.setExpected,
		Hub:     client.Options{HTTP: httpClient, UserAgent: userAgent(), Note: p.printRetry},
	}
}

// printRetry reports that something is tried again.
func (p *program) printRetry(err error, wait time.Duration) {
	p.report.Note("rsmirror: %v; trying again in %s", err, wait.Round(100*time.Millisecond))
}

// findSource finds out what the source offers. It tries again while the source does not answer:
// with -once at most for the time of -retry.
func (p *program) findSource(ctx context.Context) (*discovery.Source, error) {
	g := &harvest.Getter{Client: p.documentClient(), UserAgent: userAgent(), Robots: true, Tries: 1}
	pause := time.Second
	for start := time.Now(); ; {
		source, err := discovery.Find(ctx, g, p.settings.URL)
		if err == nil {
			return source, nil
		}
		if f, ok := errors.AsType[*outbound.Failure](err); ok && f.Status == http.StatusUnauthorized && p.token == "" {
			err = fmt.Errorf("%w; give a token in RSMIRROR_TOKEN or -token-file", err)
		}
		wait := backoff.Jitter(pause)
		if busy, ok := errors.AsType[*harvest.Busy](err); ok {
			wait = max(wait, busy.After)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !harvest.IsAway(err), errors.Is(err, outbound.ErrAddress), (p.once || p.audit) && time.Since(start)+wait > p.retry:
			return nil, &mirror.SourceError{Err: err}
		}
		p.printRetry(err, wait)
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
		pause = min(2*pause, time.Minute)
	}
}
