package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/feed"
)

// Describe replaces the description of a set. If the set does not exist and publishing may create
// it, Describe creates it, even with the zero Description. The caller needs the right to publish to
// the set. While the hub is unavailable, Describe retries as Publish does; repeating it is
// harmless. The error is an *UnavailableError, a *RefusedError, ErrNotHub, or ctx's error.
func (c *Client) Describe(ctx context.Context, set string, d feed.Description) error {
	body := struct {
		feed.Description
		NoInventory bool   `json:"noInventory,omitempty"` // replaced by inventory in a PUT
		Inventory   string `json:"inventory,omitempty"`
		NoPush      bool   `json:"noPush,omitempty"` // replaced by push in a PUT
		Push        string `json:"push,omitempty"`
		Every       string `json:"every,omitempty"` // duration as text
	}{Description: d}
	if d.Every > 0 {
		body.Every = d.Every.String()
	}
	if d.NoInventory {
		body.Inventory = "off"
	}
	if d.NoPush {
		body.Push = "off"
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return c.putDescription(ctx, set, text)
}

// SetComplete sets whether the hub knows all resources of a set. Other properties of the set are
// unchanged. While a set is complete, destinations may delete resources that the hub does not name,
// and the hub offers a Resource List of its own. The caller needs the right to publish to the set.
// The errors are the same as Describe's.
func (c *Client) SetComplete(ctx context.Context, set string, complete bool) error {
	return c.putDescription(ctx, set, fmt.Appendf(nil, `{"complete":%t}`, complete))
}

// putDescription sends a JSON description of a set.
func (c *Client) putDescription(ctx context.Context, set string, body []byte) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	target := c.base.Set(set)
	return c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("describe set %q: %w", set, err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, application/problem+json")
		return c.do(req, func(resp *http.Response) error {
			var view struct{ Set string }
			err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxReceipt)).Decode(&view)
			if err != nil || view.Set != set {
				return fmt.Errorf("%s: %w", target, ErrNotHub)
			}
			return nil
		})
	})
}
