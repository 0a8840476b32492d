package client

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

const (
	pageTimeout   = 30 * time.Second // limit for one page, in addition to the time that the hub waits for changes
	maxPage       = 64 << 20         // bytes
	maxRetryAfter = time.Hour        // limit for Retry-After, which may be days because of a maintenance page or a skewed clock
)

// A reader reads consecutive pages of a set's topic.
type reader struct {
	client *Client
	set    string

	limit    int // number of entries to request; reduced while the connection is slow
	maxLimit int // maximum of limit; reduced if pages are too large
	attempts     // requests for pages
}

// notePage records that a page was received.
func (r *reader) notePage() {
	r.attempts = attempts{started: true}
	r.limit = min(2*r.limit, r.maxLimit)
}

// attempts counts attempts to receive something from a hub without a limit on their number.
type attempts struct {
	started  bool // whether one has succeeded
	failures int  // number of failures since the last success
}

// get sends one request for a page, which the hub may hold for the duration of wait. read decodes
// the response.
//
// get uses the Client's URL and not the "next" URL of the previous page, which starts with the URL
// by which the hub knows itself. Behind a proxy it may name another host, to which the token must
// not be sent.
func (r *reader) get(ctx context.Context, query url.Values, wait time.Duration, read func(*http.Response) error) error {
	c := r.client
	query.Set("limit", strconv.Itoa(r.limit))
	ctx, cancel := context.WithTimeout(ctx, pageTimeout+wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.Topic(r.set)+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("read set %q: %w", r.set, err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "zstd")
	return c.do(req, func(resp *http.Response) error {
		if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "application/json" {
			return fmt.Errorf("%s: %w", c.base.Topic(r.set), ErrNotHub)
		}
		if resp.Header.Get("Content-Encoding") == "zstd" {
			text, err := zst.NewReader(resp.Body)
			if err != nil {
				return fmt.Errorf("decompress page of %s: %w", c.base.Topic(r.set), err)
			}
			defer text.Close()
			resp.Body = text
		}
		return read(resp)
	})
}

// readError returns the error for a page that could not be decoded because of err.
func (r *reader) readError(err error) error {
	topic := r.client.base.Topic(r.set)
	if errors.Is(err, resourcesync.ErrTooLarge) {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	return fmt.Errorf("%s: %w (%v)", topic, ErrNotHub, err)
}

// handleError returns how long to wait after err before the next attempt, or the error that ends
// the reading.
func (r *reader) handleError(err error) (time.Duration, error) {
	// A RefusedError may match ErrTooLarge too, but the hub would refuse a smaller page as well.
	_, refused := errors.AsType[*RefusedError](err)
	if !refused && errors.Is(err, resourcesync.ErrTooLarge) && r.limit > 1 {
		r.limit /= 2
		r.maxLimit = r.limit
		return 0, nil
	}
	if u, ok := errors.AsType[*UnavailableError](err); ok && u.slow {
		r.limit = max(r.limit/2, 1)
	}
	return r.attempts.handleError(r.client, err)
}

// handleError counts a failure because of err. It returns how long to wait before the next attempt, or
// the error that ends the attempts.
func (a *attempts) handleError(c *Client, err error) (time.Duration, error) {
	u, unavailable := errors.AsType[*UnavailableError](err)
	// After a first valid response the URL is known to be correct, so an unexpected response is an
	// outage.
	if !a.started && (!unavailable || u.Permanent) || !unavailable && !errors.Is(err, ErrNotHub) {
		return 0, err
	}
	wait := retryDelay(a.failures)
	if unavailable {
		wait = max(wait, min(u.retryAfter, maxRetryAfter))
	}
	a.failures++
	c.opts.OnRetry(err, wait)
	return wait, nil
}
