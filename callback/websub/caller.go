package websub

import (
	"cmp"
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
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
)

// CallerOptions configures a Caller. The zero value uses the defaults.
type CallerOptions struct {
	Timeout       time.Duration // of a delivery, until the status of the response; default: 15 s
	VerifyTimeout time.Duration // of a verification or denial; default: 10 s
	Inventories   Inventories   // baselines for subscribers that lost changes; default: none
}

// A Caller is an outlet.Outlet that makes the requests of WebSub to callbacks. It POSTs changes (section 7) and
// verifies subscriptions by a GET with a challenge (section 5.3).
type Caller struct {
	client http.RoundTripper
	base   feed.Base
	opts   CallerOptions
}

var _ outlet.Outlet = (*Caller)(nil)

// NewCaller returns a Caller for the topics under base. client must enforce the rules for addresses, as
// outbound.Client does, and must not follow redirects.
func NewCaller(client http.RoundTripper, base feed.Base, o CallerOptions) *Caller {
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.VerifyTimeout = cmp.Or(o.VerifyTimeout, 10*time.Second)
	return &Caller{client: client, base: base, opts: o}
}

const (
	maxRetryAfter = time.Hour // longest Retry-After that is respected

	// firstTimeout bounds the first request to a callback. A slow honest one is called again, with the full
	// timeout; many that hang occupy less of the hub.
	firstTimeout = 5 * time.Second
)

// requestTimeout returns the timeout of a request.
func requestTimeout(timeout time.Duration, first bool) time.Duration {
	if first {
		return min(timeout, firstTimeout)
	}
	return timeout
}

// Deliver POSTs a delivery to its callback. 2xx means success, 410 ends the subscription, 413 requests fewer
// changes, and everything else is retried.
func (c *Caller) Deliver(ctx context.Context, d *outlet.Delivery) outlet.Verdict {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout(c.opts.Timeout, d.First))
	defer cancel()
	ctx, peer := outbound.WithPeer(ctx, d.To.By)
	status, after, err := c.post(ctx, cancel, d)
	if err != nil {
		return outlet.Unanswered(err, outlet.Again, peer)
	}
	if isSuccess(status) {
		return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.Success, Place: peer.AddressKey()}
	}
	v := outlet.Failed(outlet.Again, outbound.StatusFailure("unsuccessful response", status), peer)
	v.After = after
	switch status {
	case http.StatusGone:
		v.Decision = outlet.Over
	case http.StatusRequestEntityTooLarge:
		v.Decision = outlet.Smaller
	}
	return v
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }

// post makes one POST. It returns the status of the response, and its Retry-After.
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
		// An empty Idempotency-Key is not sent. It allows the transport to repeat the request if the callback
		// has closed an idle connection: repeats are allowed.
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
	sign(r.Header, "X-Hub-Signature", outlet.Keys{Secret: secret, Former: former}, d.Body)
	resp, err := c.client.RoundTrip(r)
	if err != nil {
		return 0, 0, err
	}
	outbound.Drain(resp, cancel)
	return resp.StatusCode, min(problem.RetryAfter(resp.Header, time.Now()), maxRetryAfter), nil
}

// sign sets the header name to the signature by keys.Secret, and Rs-Former-Signature to the one by keys.Former.
// The latter, and the Rs-Signature of a query, are not in section 7.1: receivers expect one signature in
// X-Hub-Signature, and that it covers a body.
func sign(h http.Header, name string, keys outlet.Keys, parts [][]byte) {
	if keys.Secret != "" {
		h.Set(name, signature(keys.Secret, parts))
	}
	if keys.Former != "" {
		h.Set("Rs-Former-Signature", signature(keys.Former, parts))
	}
}

// signature returns the signature of the concatenated parts, in the form of section 7.1.
func signature(secret string, parts [][]byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range parts {
		mac.Write(part)
	}
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Confirm GETs the callback with a challenge, which the callback must return. A 5xx response is retried. Every
// other unsuccessful response is final.
func (c *Caller) Confirm(ctx context.Context, q *outlet.Question) outlet.Verdict {
	challenge := rand.Text()
	params := verification(q, c.base.TopicIn(q.Request.Set, q.Request.Form), c.base.Status(statusName(q.Request.ID(), q.Token)))
	params.Set("hub.challenge", challenge)
	ctx, peer := outbound.WithPeer(ctx, q.Request.By)
	timeout := requestTimeout(c.opts.VerifyTimeout, q.First)
	status, body, err := c.get(ctx, q.Request.Callback, params, q.Keys, timeout, max(len(challenge), maxQuoted)+1)
	switch {
	case errors.Is(err, outbound.ErrAddress):
		return outlet.Unanswered(err, outlet.Over, peer)
	case err != nil && len(body) <= len(challenge): // a longer body is wrong, whatever follows
		return outlet.Unanswered(err, outlet.Again, peer)
	case status >= 500:
		return outlet.Failed(outlet.Again, outbound.StatusFailure("response does not confirm", status), peer)
	case !isSuccess(status):
		return outlet.Failed(outlet.Over, outbound.StatusFailure("response does not confirm", status), peer)
	case string(body) != challenge:
		return outlet.Failed(outlet.Over, &outbound.Failure{Text: wrongAnswer(body, q), Outcome: outbound.Other, Status: status}, peer)
	}
	return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.Success, Place: peer.AddressKey()}
}

const (
	maxQuoted = 40 // bytes of a wrong response to a verification that an error quotes
	knownBy   = 4  // bytes at the start of a secret by which it is recognized
)

// wrongAnswer describes a response that is not the challenge, given the start of its body. The subscriber and
// the log see the text, and a callback may echo its query, so the quotation ends before any secret of q.
func wrongAnswer(body []byte, q *outlet.Question) string {
	text := string(body[:min(len(body), maxQuoted)])
	for _, secret := range []string{q.Token, q.Request.VerifyToken, q.Request.Secret, q.Keys.Secret, q.Keys.Former} {
		for _, s := range []string{secret, url.QueryEscape(secret)} {
			if len(s) >= knownBy {
				text, _, _ = strings.Cut(text, s[:knownBy])
			}
		}
	}
	if len(text) == len(body) {
		return fmt.Sprintf("response body: got %q, want the challenge", text)
	}
	last := max(len(text)-1, 0)
	for last > 0 && !utf8.RuneStart(text[last]) {
		last--
	}
	if !utf8.FullRuneInString(text[last:]) { // the last character was cut
		text = text[:last]
	}
	return fmt.Sprintf("response body: got %q (first %d bytes), want the challenge", text+"…", len(text))
}

// Deny notifies a callback that its subscription ended (section 5.2).
func (c *Caller) Deny(ctx context.Context, d *outlet.Denial) outlet.Verdict {
	params := url.Values{"hub.mode": {"denied"}, "hub.topic": {c.base.TopicIn(d.Set, d.Form)}, "hub.reason": {d.Reason}}
	setVerifyToken(params, d.VerifyToken)
	ctx, peer := outbound.WithPeer(ctx, "")
	status, _, err := c.get(ctx, d.Callback, params, d.Keys, c.opts.VerifyTimeout, 0)
	if err != nil {
		return outlet.Unanswered(err, outlet.Again, peer)
	}
	return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.StatusOutcome(status), Place: peer.AddressKey()}
}

// get sends a GET with parameters, and with a signature of the whole query if there are keys. The query then has
// the time, too, so that a receiver can reject a replay. If the status is 2xx, get reads at most limit bytes of
// the body, and returns those that it got even with an error.
func (c *Caller) get(
	ctx context.Context, callback string, params url.Values, keys outlet.Keys, timeout time.Duration, limit int,
) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if keys.Secret != "" {
		params.Set("rs.time", time.Now().UTC().Format(time.RFC3339))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, addQuery(callback, params), nil)
	if err != nil {
		return 0, nil, fmt.Errorf("verify callback: %w", err)
	}
	r.Header.Set("User-Agent", outbound.UserAgent)
	sign(r.Header, "Rs-Signature", keys, [][]byte{[]byte(r.URL.RawQuery)})
	r.Close = true // the next one may be days later, and the host may not have asked for it
	resp, err := c.client.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer outbound.Drain(resp, cancel)
	if isSuccess(resp.StatusCode) {
		body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)))
	}
	return resp.StatusCode, body, err
}

// verification returns the parameters of a verification (section 5.3), without the challenge. The extras have
// their effective values, so that the subscriber sees how the hub understood its request. status is the URL of
// the subscription's status.
func verification(of *outlet.Question, topic, status string) url.Values {
	r := of.Request
	q := url.Values{}
	if r.Mode == subscription.Subscribe {
		q = termsParams(&r.Terms)
		q.Set("hub.lease_seconds", strconv.FormatInt(int64(of.Lease/time.Second), 10))
		q.Set("rs.since", of.Since.String())
		q.Set("rs.renewed", strconv.FormatBool(of.Renewal))
		q.Set("rs.status", status)
	}
	q.Set("hub.mode", string(r.Mode))
	q.Set("hub.topic", topic)
	setVerifyToken(q, r.VerifyToken)
	return q
}

// termsParams returns the parameters of a subscription's terms, except the secret.
func termsParams(t *subscription.Terms) url.Values {
	q := url.Values{}
	for name, values := range t.Filter.Values() {
		q.Set("rs."+name, strings.Join(values, ","))
	}
	if t.Every > 0 {
		q.Set("rs.every", t.Every.String())
	}
	return q
}

// setVerifyToken sets hub.verify_token of PubSubHubbub 0.3 (section 6.2), if the request had one.
func setVerifyToken(q url.Values, token string) {
	if token != "" {
		q.Set("hub.verify_token", token)
	}
}

// addQuery appends parameters to a callback. The callback's own query stays as it is, byte by byte.
func addQuery(callback string, q url.Values) string {
	sep := "?"
	if _, own, ok := strings.Cut(callback, "?"); ok {
		sep = "&"
		if own == "" || strings.HasSuffix(own, "&") {
			sep = ""
		}
	}
	return callback + sep + q.Encode()
}
