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

// Holds reports whether the log of a set still has the entry at a cursor, or had it
// until retention removed it. If Holds returns false, the set was deleted, or the
// change memory lost its newest entries. Holds tries again as Publish does. The error
// is an *Unavailable, a *Refused (the caller needs the right to follow the set), an
// ErrNoHub, or ctx's error.
func (c *Client) Holds(ctx context.Context, set string, at feed.Cursor) (held bool, err error) {
	if err := feed.CheckSet(set); err != nil {
		return false, err
	}
	err = c.patiently(ctx, func() error {
		held, err = c.holds(ctx, set, at)
		return err
	})
	return held, err
}

func (c *Client) holds(ctx context.Context, set string, at feed.Cursor) (bool, error) {
	f := newFollower(c, set, at.String(), FollowOptions{Limit: 1})
	b, err := f.page(ctx)
	if !errors.Is(err, feed.ErrGone) {
		return err == nil && !b.Diverged, err
	}
	// Retention removed the entry, or the set has a new log that began later.
	begin, floor, err := c.floor(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return false, nil
	}
	return err == nil && begin.UnixMicro() <= at.Micros && floor.Position >= at.Position, err
}

// floor asks once when the log of a set began, and which is the newest entry that
// retention removed.
func (c *Client) floor(ctx context.Context, set string) (begin time.Time, floor feed.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.Set(set), nil)
	if err != nil {
		return begin, floor, fmt.Errorf("ask for set %q: %w", set, err)
	}
	req.Header.Set("Accept", "application/json")
	var view struct {
		Set, Floor string
		Begin      time.Time
	}
	err = c.exchange(req, func(resp *http.Response) error {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxReceipt))
		if err != nil {
			return err
		}
		if err = json.Unmarshal(text, &view); err == nil {
			floor, err = feed.ParseCursor(view.Floor)
		}
		if err != nil || view.Set != set || view.Begin.IsZero() {
			return fmt.Errorf("%s answers 200, but %w", req.URL, ErrNoHub)
		}
		return nil
	})
	return view.Begin, floor, err
}
