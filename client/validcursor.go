package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
)

// ValidCursor reports whether the log of a set has the entry at a cursor, or had it until retention
// removed it. If it returns false, the set was deleted, or the change memory has lost its newest
// entries. The caller needs the right to follow the set. While the hub is unavailable, ValidCursor
// retries as Publish does. The error is an *UnavailableError, a *RefusedError, ErrNotHub, or ctx's
// error.
func (c *Client) ValidCursor(ctx context.Context, set string, at feed.Cursor) (valid bool, err error) {
	if err := feed.CheckSet(set); err != nil {
		return false, err
	}
	err = c.retry(ctx, func() error {
		valid, err = c.validCursor(ctx, set, at)
		return err
	})
	return valid, err
}

// validCursor sends the requests of ValidCursor once.
func (c *Client) validCursor(ctx context.Context, set string, at feed.Cursor) (bool, error) {
	f := newFollower(c, set, at.String(), FollowOptions{Limit: 1})
	b, err := f.nextPage(ctx)
	if !errors.Is(err, feed.ErrGone) {
		return err == nil && !b.Diverged, err
	}
	// Retention removed the entry, or the set has a new log that started later.
	begin, floor, err := c.fetchFloor(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return false, nil
	}
	return err == nil && begin.UnixMicro() <= at.Micros && floor.Position >= at.Position, err
}

// fetchFloor sends one request for the datetime at which the log of a set started, and for its
// floor: the cursor of the newest entry that retention removed.
func (c *Client) fetchFloor(ctx context.Context, set string) (begin time.Time, floor feed.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.Set(set), nil)
	if err != nil {
		return begin, floor, fmt.Errorf("get set %q: %w", set, err)
	}
	req.Header.Set("Accept", "application/json")
	var view struct {
		Set, Floor string
		Begin      time.Time
	}
	err = c.do(req, func(resp *http.Response) error {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxReceipt))
		if err != nil {
			return err
		}
		if err = json.Unmarshal(text, &view); err == nil {
			floor, err = feed.ParseCursor(view.Floor)
		}
		if err != nil || view.Set != set || view.Begin.IsZero() {
			return fmt.Errorf("%s: %w", req.URL, ErrNotHub)
		}
		return nil
	})
	return view.Begin, floor, err
}
