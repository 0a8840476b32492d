package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/feed"
)

// Describe replaces the description of a set. If there is no such set and publishing may
// make it, Describe makes it; d may then be the zero Description. The caller needs the
// right to publish to the set. Describe tries again as Publish does; a repeated Describe
// does no harm. The error is an *Unavailable, a *Refused, an ErrNoHub, or ctx's error.
func (c *Client) Describe(ctx context.Context, set string, d feed.Description) error {
	body := struct {
		feed.Description
		NoInventory bool   `json:"noInventory,omitempty"` // a PUT sends it as inventory
		Inventory   string `json:"inventory,omitempty"`
		NoPush      bool   `json:"noPush,omitempty"` // a PUT sends it as push
		Push        string `json:"push,omitempty"`
		Every       string `json:"every,omitempty"` // as text
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
	return c.put(ctx, set, text)
}

// Complete says whether the hub knows all resources of a set. The rest of the set's
// description stays. While a set is complete, a destination may delete resources that the
// hub does not name, and the hub offers a Resource List of its own. The caller needs the
// right to publish to the set. The errors are those of Describe.
func (c *Client) Complete(ctx context.Context, set string, complete bool) error {
	return c.put(ctx, set, fmt.Appendf(nil, `{"complete":%t}`, complete))
}

// put sends a description of a set.
func (c *Client) put(ctx context.Context, set string, body []byte) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	target := c.base.Set(set)
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("describe set %q: %w", set, err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, application/problem+json")
		return c.exchange(req, func(resp *http.Response) error {
			var view struct{ Set string }
			err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxReceipt)).Decode(&view)
			if err != nil || view.Set != set {
				return fmt.Errorf("%s answers 200, but %w", target, ErrNoHub)
			}
			return nil
		})
	})
}
