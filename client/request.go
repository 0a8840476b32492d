package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// requestTimeout bounds one request of Request and its answer.
const requestTimeout = time.Minute

// Request sends a request for JSON to a part of the hub's API that the Client has no method
// for. ref follows the hub's URL, such as "/sets/demo/audit?prefix=https%3A%2F%2Fexample.org".
// body is JSON; nil if the request has none. If the answer is 200, Request calls read with its
// body. An error of read means that the answer does not come from a hub: it becomes an ErrNoHub.
//
// Request tries again as Publish does until the hub answers, so the request must be safe to
// repeat. The error is an *Unavailable, a *Refused, an ErrNoHub, or ctx's error.
func (c *Client) Request(ctx context.Context, method, ref string, body []byte, read func(io.Reader) error) error {
	target, _, _ := strings.Cut(string(c.base)+ref, "?")
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, string(c.base)+ref, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("request %s: %w", target, err)
		}
		req.Header.Set("Accept", "application/json, application/problem+json")
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		return c.exchange(req, func(resp *http.Response) error {
			if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "application/json" {
				return fmt.Errorf("%s answers 200, but %w", target, ErrNoHub)
			}
			if err := read(resp.Body); err != nil {
				return fmt.Errorf("%s answers 200, but %w (%v)", target, ErrNoHub, err)
			}
			return nil
		})
	})
}

// ReadUpTo yields the changes of a set after a place, up to a cursor, which the log must hold.
// It accepts the places of Follow, and returns its errors. If the log has lost its tail, the error is
// feed.ErrGone. Unlike Follow, ReadUpTo yields ctx's error when ctx is done.
func (c *Client) ReadUpTo(ctx context.Context, set, place string, f feed.Filter, to feed.Cursor) iter.Seq2[[]feed.Entry, error] {
	return func(yield func([]feed.Entry, error) bool) {
		if place == to.String() {
			return
		}
		for b, err := range c.Follow(ctx, set, place, FollowOptions{Filter: f}) {
			if err == nil && b.Diverged {
				err = fmt.Errorf("%w: the log of set %q does not hold %s", feed.ErrGone, set, place)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			entries := b.Entries
			for n := len(entries); n > 0 && entries[n-1].Position > to.Position; n = len(entries) {
				entries = entries[:n-1]
			}
			if !yield(entries, nil) || b.Cursor.Position >= to.Position {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
		}
	}
}
