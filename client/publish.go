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
	publishTimeout = time.Minute // one try of a publish, from the connection to the answer
	maxReceipt     = 1 << 20     // bytes
)

// Publish publishes changes to a set, all of them or none, in their order. When it
// returns a receipt, the hub's change memory holds them exactly once. While the hub
// cannot be reached or is not ready, Publish blocks and sends the changes again with
// the same key, for as long as the Client's Patience. It does not try again before the
// time that the hub's Retry-After asks for.
//
// The key names the publish among those of the caller to the set, for a day. It is one
// word of ASCII. If it is empty, Publish makes one. A program that may be ended during
// a Publish should keep a key of its own. It can then publish the same changes with it
// again, and the receipt says Replayed if the hub had them already.
//
// The error is an *Unavailable, a *Refused, an ErrNoHub, or ctx's error. After each of
// them, except a *Refused without Doubt and an *Unavailable that is Unsent, the hub may
// have the changes all the same. If a change breaks a rule, the error is a
// *resourcesync.Error, and nothing is sent. Publish puts single spaces between the
// values of a Hash, as resourcesync.Change.Validate does.
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

// PublishLines is Publish for changes that are JSON already. lines has count changes,
// one JSON object on each line; resourcesync.AppendJSONMembers writes their members.
// The hub takes a thousand lines at a time. If there are more, the lines before an
// error may be published, and a *Refused says in Accepted how many. lines must not
// change until PublishLines returns.
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
	case !oneWord(key):
		return nil, resourcesync.Invalid("a key must be one word of ASCII")
	case count == 0:
		return nil, resourcesync.Invalid("there is no change in the batch: send at least one")
	}
	var receipt *feed.Receipt
	sent := false // a try may have reached the hub
	err := c.patiently(ctx, func() error {
		r, err := c.post(ctx, set, key, mediaType, body, count)
		if err == nil {
			r.Replayed = r.Replayed && !sent // else this call itself brought the changes, and only the answer was lost
			receipt = r
			return nil
		}
		if refused, ok := errors.AsType[*Refused](err); ok {
			refused.Doubt = sent
		}
		u, ok := errors.AsType[*Unavailable](err)
		sent = sent || !ok || !u.Unsent
		if ok {
			u.Unsent = !sent
		}
		return err
	})
	return receipt, err
}

// patiently calls try until it returns nil, an error that another try cannot
// help, or an *Unavailable when the Client's Patience is over.
func (c *Client) patiently(ctx context.Context, try func() error) error {
	var deadline time.Time
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		u, ok := errors.AsType[*Unavailable](err)
		if !ok || u.Lasting {
			return err
		}
		now := c.opts.Now()
		if n == 0 {
			deadline = now.Add(c.opts.Patience)
		}
		left := deadline.Sub(now)
		if left <= 0 || u.after > left {
			u.Tries = n + 1
			if left > 0 {
				u.After = u.after
			}
			return u
		}
		wait := min(max(pause(n), u.after), left) // the last try is at the deadline
		c.opts.Note(err, wait)
		if err := c.opts.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// post sends a publish once.
func (c *Client) post(ctx context.Context, set, key, mediaType string, body []byte, count int) (r *feed.Receipt, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.Topic(set), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("publish to set %q: %w", set, err)
	}
	// The transport must not send the request again by itself, because publish has to
	// know whether an answer was lost.
	req.GetBody = nil
	req.Header.Set("Content-Type", mediaType)
	if mediaType == ndjson {
		req.Header.Set("Incremental", "?1") // RFC 10036: the hub takes a stream of lines as it comes, so a proxy need not buffer it
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("Idempotency-Key", key)
	err = c.exchange(req, func(resp *http.Response) error {
		r, err = c.receipt(resp.Body, set, count)
		return err
	})
	return r, err
}

// receipt accepts only a receipt for exactly these changes, because a 200 may come
// from something else than the hub.
func (c *Client) receipt(body io.Reader, set string, count int) (*feed.Receipt, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxReceipt))
	if err != nil {
		return nil, err
	}
	r := new(feed.Receipt)
	if err = json.Unmarshal(text, r); err == nil {
		_, err = feed.ParseCursor(r.Cursor)
	}
	if err != nil || r.Set != set {
		return nil, fmt.Errorf("%s answers 200, but %w", c.base.Topic(set), ErrNoHub)
	}
	if r.Count != count {
		return nil, strange(fmt.Sprintf("%s took %d changes of a batch of %d", c.base, r.Count, count))
	}
	return r, nil
}
