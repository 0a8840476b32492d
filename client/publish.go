package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const (
	ndjson         = "application/x-ndjson"
	publishTimeout = time.Minute // limit of one attempt, from connecting to the end of the response
	maxReceipt     = 1 << 20     // bytes
)

// Publish publishes changes to a set in the given order, all of them or none. When it returns a
// receipt, the hub's change memory has them exactly once. While the hub is unreachable or not
// ready, Publish blocks and sends the changes again with the same key, for at most the Client's
// RetryTimeout. It does not retry before the time that the hub's Retry-After asks for.
//
// The key identifies the publish of the caller to the set, for a day. It is one word of
// ASCII. If it is empty, Publish generates one. A program that may be terminated during a Publish
// should choose and store a key. Then it can publish the same changes with the key again, and the
// receipt is Replayed if the hub already had them.
//
// The error is an *UnavailableError, a *RefusedError, ErrNotHub, or ctx's error. After each of them
// the hub may have the changes anyway, except after a *RefusedError that is not Uncertain and an
// *UnavailableError that is Unsent. If a change is invalid, the error is a *resourcesync.Error, and
// nothing is sent. Publish normalizes each Hash in changes to single spaces between its values, as
// resourcesync.Change.Validate does.
func (c *Client) Publish(ctx context.Context, set, key string, changes []resourcesync.Change) (*feed.Receipt, error) {
	body := append(make([]byte, 0, 20+300*len(changes)), `{"changes":[`...)
	for i := range changes {
		if err := changes[i].Validate(); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Entry = i + 1
			}
			return nil, err
		}
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, '{')
		body = resourcesync.AppendJSONMembers(body, &changes[i])
		body = append(body, '}')
	}
	return c.publish(ctx, set, key, "application/json", append(body, "]}"...), len(changes))
}

// PublishLines is like Publish, for changes that are already encoded as JSON. lines has count
// changes, one JSON object per line; resourcesync.AppendJSONMembers encodes their members. The hub
// accepts a thousand lines at a time. If there are more, lines before an error may be published,
// and Accepted in a *RefusedError reports how many. lines must not be modified until PublishLines
// returns.
func (c *Client) PublishLines(ctx context.Context, set, key string, lines []byte, count int) (*feed.Receipt, error) {
	return c.publish(ctx, set, key, ndjson, lines, count)
}

func (c *Client) publish(ctx context.Context, set, key, mediaType string, body []byte, count int) (*feed.Receipt, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	if key == "" {
		key = rand.Text()
	}
	switch {
	case !isASCIIWord(key):
		return nil, resourcesync.Invalidf("an idempotency key must be one word of ASCII")
	case count == 0:
		return nil, resourcesync.Invalidf("no changes in the batch; send at least one")
	}
	var receipt *feed.Receipt
	sent := false // whether an attempt may have reached the hub
	err := c.retry(ctx, func() error {
		r, err := c.postChanges(ctx, set, key, mediaType, body, count)
		if err == nil {
			r.Replayed = r.Replayed && !sent // if sent, this call published the changes, and only the response was lost
			receipt = r
			return nil
		}
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			refused.Uncertain = sent
		}
		u, ok := errors.AsType[*UnavailableError](err)
		sent = sent || !ok || !u.Unsent
		if ok {
			u.Unsent = !sent
		}
		return err
	})
	return receipt, err
}

// retry calls try until it returns nil, an error that retrying cannot fix, or an *UnavailableError
// after RetryTimeout.
func (c *Client) retry(ctx context.Context, try func() error) error {
	var deadline time.Time
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		u, ok := errors.AsType[*UnavailableError](err)
		if !ok || u.Permanent {
			return err
		}
		now := c.opts.Now()
		if n == 0 {
			deadline = now.Add(c.opts.RetryTimeout)
		}
		left := deadline.Sub(now)
		if left <= 0 || u.retryAfter > left {
			u.Tries = n + 1
			if left > 0 {
				u.RetryAfter = u.retryAfter
			}
			return u
		}
		wait := min(max(retryDelay(n), u.retryAfter), left) // the last attempt is at the deadline
		c.opts.OnRetry(err, wait)
		if err := c.opts.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// postChanges sends a publish once.
func (c *Client) postChanges(ctx context.Context, set, key, mediaType string, body []byte, count int) (r *feed.Receipt, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.Topic(set), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("publish to set %q: %w", set, err)
	}
	// The transport must not repeat the request on its own, since publish has to know whether a
	// response was lost.
	req.GetBody = nil
	req.Header.Set("Content-Type", mediaType)
	if mediaType == ndjson {
		req.Header.Set("Incremental", "?1") // RFC 10036: the hub reads lines as they arrive, so a proxy need not buffer them
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("Idempotency-Key", key)
	err = c.do(req, func(resp *http.Response) error {
		r, err = c.readReceipt(resp.Body, set, count)
		return err
	})
	return r, err
}

// readReceipt decodes a receipt, and rejects a receipt for other changes, since a response with
// status 200 may not come from the hub.
func (c *Client) readReceipt(body io.Reader, set string, count int) (*feed.Receipt, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxReceipt))
	if err != nil {
		return nil, err
	}
	r := new(feed.Receipt)
	if err = json.Unmarshal(text, r); err == nil {
		_, err = feed.ParseCursor(r.Cursor)
	}
	if err != nil || r.Set != set {
		return nil, fmt.Errorf("%s: %w", c.base.Topic(set), ErrNotHub)
	}
	if r.Count != count {
		return nil, notHubError(fmt.Sprintf("%s: accepted %d changes, want %d", c.base, r.Count, count))
	}
	return r, nil
}
