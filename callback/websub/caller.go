package websub

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
)

// CallerOptions are the options of a Caller. Zero values are the defaults.
type CallerOptions struct {
	Timeout       time.Duration // of a whole delivery, from connecting to the status of the answer; default 15 s
	VerifyTimeout time.Duration // of a whole verification or denial; default 10 s

	Inventories Inventories // to begin anew with when changes are gone; default: none
}

// A Caller makes the requests of WebSub to callbacks. It is an outlet.Outlet
// that POSTs changes (section 7), and confirms by a GET with a challenge
// (section 5.3).
type Caller struct {
	client http.RoundTripper
	base   feed.Base
	opts   CallerOptions
}

var _ outlet.Outlet = (*Caller)(nil)

// NewCaller returns a Caller for the topics under base. It makes its requests
// with client, which must keep to the rules for addresses, as outbound.Client
// does, and must not follow redirects.
func NewCaller(client http.RoundTripper, base feed.Base, o CallerOptions) *Caller {
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.VerifyTimeout == 0 {
		o.VerifyTimeout = 10 * time.Second
	}
	return &Caller{client: client, base: base, opts: o}
}

// maxRetryAfter bounds how long the Retry-After of an answer counts.
const maxRetryAfter = time.Hour

// Deliver POSTs a delivery to its callback. Every 2xx means success, 410 ends
// the subscription, 413 asks for fewer changes, and everything else is tried
// again.
func (c *Caller) Deliver(ctx context.Context, d *outlet.Delivery) outlet.Verdict {
	ctx, cancel := context.WithTimeout(ctx, within(c.opts.Timeout, d.First))
	defer cancel()
	ctx, peer := outbound.WithPeer(ctx, d.To.By)
	status, after, err := c.post(ctx, cancel, d)
	switch {
	case err != nil:
		return outlet.Unanswered(err, outlet.Again, peer)
	case status >= 200 && status <= 299:
		return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.Success, Place: peer.AddressKey()}
	}
	f := outbound.StatusFailure("unsuccessful response", status)
	v := outlet.Verdict{Decision: outlet.Again, After: after, Status: status, Error: f.Text, Outcome: f.Outcome, Place: peer.AddressKey()}
	switch status {
	case http.StatusGone:
		v.Decision = outlet.Over
	case http.StatusRequestEntityTooLarge:
		v.Decision = outlet.Smaller
	}
	return v
}

// firstTimeout bounds the first request to a callback. One that is slow and honest is
// called again, with all of the time; many that hang get less of the hub.
const firstTimeout = 5 * time.Second

// within returns how long a request may take.
func within(timeout time.Duration, first bool) time.Duration {
	if first {
		return min(timeout, firstTimeout)
	}
	return timeout
}

// post makes one POST. It returns the status of the answer, and its
// Retry-After.
func (c *Caller) post(ctx context.Context, cancel context.CancelFunc, d *outlet.Delivery) (status int, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.To.Callback, outbound.NewBody(d.Body))
	if err != nil {
		return 0, 0, fmt.Errorf("post to callback: %w", err)
	}
	r.ContentLength = d.Size()
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(outbound.NewBody(d.Body)), nil }
	r.Header = http.Header{
		"Content-Type": {d.Format.Batch.MediaType},
		"User-Agent":   {outbound.UserAgent},
		"Link":         {c.base.LinkIn(d.To.Set, d.To.Form)},
		"Rs-Position":  {strconv.FormatUint(d.Cursor.Position, 10)},
		"Rs-Previous":  {strconv.FormatUint(d.From.Position, 10)},
		"Rs-Attempt":   {strconv.Itoa(d.Attempt)},
		// An empty Idempotency-Key is not sent. It allows the transport to repeat the
		// request when the callback has closed a kept connection: repeats are allowed.
		"Idempotency-Key": {},
	}
	if !d.Gap.IsZero() {
		r.Header["Rs-Gap"] = []string{outlet.Lost(d.Gap, d.From)}
		if c.opts.Inventories != nil && c.opts.Inventories.Keeps(ctx, d.To.Set) {
			r.Header.Add("Link", c.base.InventoryLink(d.To.Set))
		}
	}
	if d.Diverged {
		r.Header["Rs-Diverged"] = []string{"true"}
	}
	secret, former := d.To.Secrets(time.Now())
	if secret != "" {
		r.Header["X-Hub-Signature"] = []string{signature(secret, d.Body)}
	}
	if former != "" {
		r.Header[formerHeader] = []string{signature(former, d.Body)}
	}
	resp, err := c.client.RoundTrip(r)
	if err != nil {
		return 0, 0, err
	}
	outbound.Drain(resp, cancel)
	return resp.StatusCode, min(problem.RetryAfter(resp.Header, time.Now()), maxRetryAfter), nil
}

// Headers with signatures that section 7.1 does not know: that of the query of a GET, and
// that with the secret before, of a body or of a query. They are headers of their own because
// receivers expect one signature in X-Hub-Signature, and that of a body.
const (
	queryHeader  = "Rs-Signature"
	formerHeader = "Rs-Former-Signature"
)

// signature returns the value of X-Hub-Signature (section 7.1), or of another header with a
// signature.
func signature(secret string, body [][]byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range body {
		mac.Write(part)
	}
	return string(hex.AppendEncode([]byte("sha256="), mac.Sum(nil)))
}

// Confirm GETs the callback with a challenge, which a callback that confirms
// sends back. A 5xx answer is tried again. Every other answer that is no
// success is final.
func (c *Caller) Confirm(ctx context.Context, q *outlet.Question) outlet.Verdict {
	challenge := rand.Text()
	params := verification(q, c.base.TopicIn(q.Request.Set, q.Request.Form), c.base.Status(statusName(q.Request.ID(), q.Token)))
	params = append(dated(params, q.Keys), param{"hub.challenge", challenge})
	var answer []byte
	ctx, cancel := context.WithTimeout(ctx, within(c.opts.VerifyTimeout, q.First))
	defer cancel()
	ctx, peer := outbound.WithPeer(ctx, q.Request.By)
	status, err := c.get(ctx, addQuery(q.Request.Callback, params), q.Keys, func(body io.Reader) (err error) {
		answer, err = io.ReadAll(io.LimitReader(body, int64(max(len(challenge), maxQuoted))+1))
		if len(answer) > len(challenge) {
			return nil // it is wrong, whatever follows
		}
		return err
	})
	refused := func(d outlet.Decision, f *outbound.Failure) outlet.Verdict {
		return outlet.Verdict{Decision: d, Status: status, Error: f.Text, Outcome: f.Outcome, Place: peer.AddressKey()}
	}
	switch {
	case errors.Is(err, outbound.ErrAddress):
		return outlet.Unanswered(err, outlet.Over, peer)
	case err != nil:
		return outlet.Unanswered(err, outlet.Again, peer)
	case status >= 500:
		return refused(outlet.Again, outbound.StatusFailure("response does not confirm", status))
	case status < 200 || status > 299:
		return refused(outlet.Over, outbound.StatusFailure("response does not confirm", status))
	case string(answer) != challenge:
		return refused(outlet.Over, &outbound.Failure{Text: wrongAnswer(answer, q), Outcome: outbound.Other})
	}
	return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.Success, Place: peer.AddressKey()}
}

// maxQuoted bounds the bytes of a wrong answer to a verification that an error quotes.
const maxQuoted = 40

// wrongAnswer describes the body of an answer that is not the challenge, of which answer is the
// beginning. The subscriber and the log see it, so it ends before anything that is secret in q:
// a callback may send back its query.
func wrongAnswer(answer []byte, q *outlet.Question) string {
	text := string(answer[:min(len(answer), maxQuoted)])
	for _, secret := range []string{q.Token, q.Request.VerifyToken, q.Request.Secret, q.Keys.Secret, q.Keys.Former} {
		for _, s := range []string{secret, url.QueryEscape(secret)} {
			if i := strings.Index(text, s[:min(len(s), knownBy)]); i >= 0 && len(s) >= knownBy {
				text = text[:i]
			}
		}
	}
	if len(text) == len(answer) {
		return fmt.Sprintf("response body: got %q, want the challenge", text)
	}
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) { // it was cut
				text = text[:len(text)-n]
			}
			break
		}
	}
	return fmt.Sprintf("response body: got %q (first %d bytes), want the challenge", text+"…", len(text))
}

// knownBy is how many bytes at the beginning of a secret show that it is in a text.
const knownBy = 4

// Deny tells a callback that its subscription ended (section 5.2).
func (c *Caller) Deny(ctx context.Context, d *outlet.Denial) outlet.Verdict {
	q := withVerifyToken([]param{{"hub.mode", "denied"}, {"hub.topic", c.base.TopicIn(d.Set, d.Form)}, {"hub.reason", d.Reason}}, d.VerifyToken)
	status, err := c.get(ctx, addQuery(d.Callback, dated(q, d.Keys)), d.Keys, nil)
	if err != nil {
		f := outbound.Explain(err)
		return outlet.Verdict{Decision: outlet.Again, Error: f.Text, Outcome: f.Outcome}
	}
	return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.StatusOutcome(status)}
}

// dated adds to the parameters of a GET that is signed when it is sent, so that a receiver can
// refuse one that somebody sends again later.
func dated(q []param, keys outlet.Keys) []param {
	if keys.Secret == "" {
		return q
	}
	return append(q, param{"rs.time", time.Now().UTC().Format(time.RFC3339)})
}

// get sends a GET, with signatures of its query: all between "?" and the end, as it is sent. It gives the body of a successful answer to read, unless
// read is nil.
func (c *Caller) get(ctx context.Context, target string, keys outlet.Keys, read func(io.Reader) error) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.VerifyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, fmt.Errorf("verify callback: %w", err)
	}
	r.Header.Set("User-Agent", outbound.UserAgent)
	query := [][]byte{[]byte(r.URL.RawQuery)}
	if keys.Secret != "" {
		r.Header.Set(queryHeader, signature(keys.Secret, query))
	}
	if keys.Former != "" {
		r.Header.Set(formerHeader, signature(keys.Former, query))
	}
	r.Close = true // it is the only one for days, and a host that did not ask for it need not keep the connection
	resp, err := c.client.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer outbound.Drain(resp, cancel)
	if read != nil && resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		err = read(resp.Body)
	}
	return resp.StatusCode, err
}
