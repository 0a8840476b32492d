package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/resourcesync"
)

const (
	connectTimeout = 10 * time.Second
	requestTimeout = 60 * time.Second // a whole batch, from the dial to the answer
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
	maxAnswer      = 1 << 20 // bytes
)

// A clock tells the time and waits. Tests have their own.
type clock interface {
	now() time.Time
	sleep(ctx context.Context, d time.Duration) error
}

type realClock struct{}

func (realClock) now() time.Time { return time.Now() }

func (realClock) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A receipt is the hub's answer to a batch that it has accepted.
type receipt struct {
	Set      string `json:"set"`
	Cursor   string `json:"cursor"`
	Count    int    `json:"count"`
	Replayed bool   `json:"replayed"` // it had the batch already
}

// A refusal is an answer that trying again would not change.
type refusal struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Entry  int    `json:"entry"` // in the batch
	Line   int    `json:"line"`  // in the batch
	Loc    string `json:"loc"`

	doubt bool // whether the hub has the batch all the same, from a try before
}

func (r *refusal) Error() string {
	s := fmt.Sprintf("the hub refused it: %d %s", r.Status, clean(orElse(r.Title, http.StatusText(r.Status))))
	if r.Detail != "" {
		s += ": " + clean(r.Detail)
	}
	return s
}

// rule is the detail without the place, which the hub counts in the batch.
func (r *refusal) rule() string {
	place := (&resourcesync.Error{Entry: r.Entry, Line: r.Line, Loc: r.Loc}).Error()
	return clean(strings.TrimPrefix(r.Detail, place))
}

// trouble is what may pass: no connection, no answer, or one that asks to come
// again.
type trouble struct {
	err   error
	after time.Duration // not sooner
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

// A client sends batches to one set's topic.
type client struct {
	http     *http.Client
	hub      string
	topic    string
	token    string
	patience time.Duration
	clock    clock
	note     func(format string, args ...any)
}

func newClient(cfg *config, clock clock, note func(string, ...any)) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	transport.TLSHandshakeTimeout = connectTimeout
	return &client{
		http: &http.Client{
			Transport: transport,
			// A redirect would turn the POST into a GET, or carry the changes
			// and the token to another host: it is for the user to follow.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		hub:      cfg.hub,
		topic:    cfg.hub + "/sets/" + cfg.set + "/changes",
		token:    cfg.token,
		patience: cfg.retry,
		clock:    clock,
		note:     note,
	}
}

// send posts a batch until the hub accepts or refuses it, or patience is at its
// end. The key makes it safe to send what may have been accepted before.
func (c *client) send(ctx context.Context, key string, body []byte, count int) (*receipt, error) {
	var deadline time.Time
	for try := 0; ; try++ {
		r, err := c.post(ctx, key, body, count)
		if err == nil {
			// What only the answer to an earlier try was lost of, is new.
			r.Replayed = r.Replayed && try == 0
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if refused, ok := errors.AsType[*refusal](err); ok {
			refused.doubt = try > 0
			return nil, err
		}
		passing, ok := errors.AsType[*trouble](err)
		if !ok {
			return nil, err
		}
		if try == 0 {
			deadline = c.clock.now().Add(c.patience)
		}
		left := deadline.Sub(c.clock.now())
		switch {
		case c.patience == 0:
			return nil, fail(exitUnavailable, "%w", err)
		case passing.after > left && left > 0:
			return nil, fail(exitUnavailable, "%w; it asks to come again in %s, and -retry %s does not allow that", err, passing.after.Round(time.Second), c.patience)
		case left <= 0:
			return nil, fail(exitUnavailable, "%w; gave up after %d tries in %s", err, try+1, c.patience)
		}
		wait := min(max(pause(try), passing.after), left) // the last try is at the deadline
		c.note("rspublish: %v; trying again in %s", err, wait.Round(100*time.Millisecond))
		if err := c.clock.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// pause doubles with every try, and jitter keeps those who failed together from
// coming back together.
func pause(try int) time.Duration {
	d := longestPause
	if try < 10 {
		d = min(d, firstPause<<try)
	}
	return d/2 + rand.N(d/2)
}

// post sends a batch once.
func (c *client) post(ctx context.Context, key string, body []byte, count int) (*receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.topic, bytes.NewReader(body))
	if err != nil {
		return nil, fail(exitUsage, "the hub's URL: %w", err)
	}
	// The transport may not send it again by itself: whether an answer was lost
	// is ours to know.
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("User-Agent", "rspublish/"+build.Version())
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(err)
	}
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
		return c.accepted(answer, count)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		t := &trouble{fmt.Errorf("%s answers %s", c.hub, statusText(resp, answer)), retryAfter(resp.Header, c.clock.now())}
		if status == http.StatusInsufficientStorage {
			t.after = max(t.after, longestPause) // room comes slowly: by retention, or by hand
		}
		return nil, t
	}
	return nil, c.refused(resp, answer)
}

func (c *client) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return &trouble{err: fmt.Errorf("%s does not answer in time", c.hub)}
		}
		err = u.Err // the URL is said already
	}
	err = fmt.Errorf("cannot reach %s: %w", c.hub, err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	if badCertificate || errors.Is(err, http.ErrSchemeMismatch) {
		return fail(exitUnavailable, "%w", err) // time does not mend it
	}
	return &trouble{err: err}
}

// accepted believes only a receipt for the very batch: a 200 may come from
// anything that stands in the hub's place.
func (c *client) accepted(answer []byte, count int) (*receipt, error) {
	r := new(receipt)
	if err := json.Unmarshal(answer, r); err != nil || r.Cursor == "" {
		return nil, fail(exitRefused, "%s answers 200, but not as a hub does; is the URL right?", c.topic)
	}
	if r.Count != count {
		return nil, fail(exitRefused, "%s took %d changes of a batch of %d", c.hub, r.Count, count)
	}
	r.Cursor = clean(r.Cursor)
	return r, nil
}

func (c *client) refused(resp *http.Response, answer []byte) error {
	r := problem(resp, answer)
	if location := resp.Header.Get("Location"); r.Status < 400 && location != "" {
		r.Detail = "it points to " + location + "; if that is the hub, give it as -hub"
	}
	if r.Status == http.StatusUnauthorized && c.token == "" {
		r.Detail = strings.TrimPrefix(r.Detail+"; give a token in RSPUBLISH_TOKEN or -token-file", "; ")
	}
	return &failure{exitRefused, r}
}

// problem reads a problem document (RFC 9457), or makes do with the status.
func problem(resp *http.Response, answer []byte) *refusal {
	r := new(refusal)
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "application/problem+json" {
		if json.Unmarshal(answer, r) != nil {
			r = new(refusal)
		}
	}
	r.Status = resp.StatusCode
	return r
}

func statusText(resp *http.Response, answer []byte) string {
	r := problem(resp, answer)
	s := fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))
	if r.Detail != "" {
		s += " (" + clean(r.Detail) + ")"
	}
	return s
}

// retryAfter reads the header in both its forms, seconds and a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(s, 0), 1e9)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// clean makes what the hub says fit for a terminal: one line, of sane length.
func clean(s string) string {
	r := []rune(s)
	if len(r) > 500 {
		r = append(r[:500], '…')
	}
	for i, c := range r {
		if !unicode.IsPrint(c) {
			r[i] = ' '
		}
	}
	return string(r)
}
