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

// requestTimeout limits one attempt of Request, including the response.
const requestTimeout = time.Minute

// Request sends a request for JSON to a part of the hub's API for which the Client has no method.
// ref is appended to the hub's URL, such as "/sets/demo/audit?prefix=https%3A%2F%2Fexample.org".
// body is JSON, or nil for none. If the status is 200, Request calls read with the body of the
// response. An error of read means that the response does not come from a hub; Request returns it
// as an ErrNotHub.
//
// While the hub is unavailable, Request retries as Publish does, so the request must be safe to
// repeat. The error is an *UnavailableError, a *RefusedError, ErrNotHub, or ctx's error.
func (c *Client) Request(ctx context.Context, method, ref string, body []byte, read func(io.Reader) error) error {
	target, _, _ := strings.Cut(string(c.base)+ref, "?")
	return c.retry(ctx, func() error {
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
		return c.do(req, func(resp *http.Response) error {
			if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "application/json" {
				return fmt.Errorf("%s: %w", target, ErrNotHub)
			}
			if err := read(resp.Body); err != nil {
				return fmt.Errorf("%s: %w (%v)", target, ErrNotHub, err)
			}
			return nil
		})
	})
}

// ReadUpTo yields the changes of a set after since up to the cursor to, which the log must have. It
// accepts the values of since that Follow does, and returns the errors of Follow. If the log has
// lost its tail, the error is feed.ErrGone. Unlike Follow, ReadUpTo yields ctx's error when ctx is
// done.
func (c *Client) ReadUpTo(ctx context.Context, set, since string, f feed.Filter, to feed.Cursor) iter.Seq2[[]feed.Entry, error] {
	return func(yield func([]feed.Entry, error) bool) {
		if since == to.String() {
			return
		}
		for b, err := range c.Follow(ctx, set, since, FollowOptions{Filter: f}) {
			if err == nil && b.Diverged {
				err = fmt.Errorf("%w: log of set %q does not have %s", feed.ErrGone, set, since)
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
