package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Proof is what the hub answers when it has compared what a callback's destination holds
// with what it holds itself.
type Proof struct {
	Equal    bool
	At       feed.Cursor // at which both were compared
	Complete bool        // the hub knows all resources of the set
	Time     time.Time   // when the hub compared; zero if both are not equal
}

// Prove lets the hub compare what the destination of a WebSub subscription holds with what
// it holds itself, at the same cursor and within the subscription's rs.prefix. If both are
// equal, the hub shows so to its operators and in the subscription's status. status is the
// URL of that status, which the callback was told in rs.status. look is what the destination
// holds: audit.LookAt of its state, or the last look of an Audit that has yielded no
// difference. Only its Cursor, Count, and the digest that by names count.
//
// Prove tries again as Publish does when the hub cannot be reached. The error is an
// *Unavailable, a *Refused, an ErrNoHub, or ctx's error. It is feed.ErrGone if the hub
// cannot make the state at the cursor any more: then the caller has to Audit again.
func (c *Client) Prove(ctx context.Context, status string, look audit.Look, by digest.By) (p Proof, err error) {
	if name, ok := strings.CutPrefix(status, c.base.Status("")); !ok || name == "" || strings.ContainsAny(name, "/?#") {
		return p, resourcesync.Invalid("the status of a subscription is at a URL that begins with %s, and this one is elsewhere", c.base.Status(""))
	}
	body, err := json.Marshal(map[string]any{"at": look.Cursor.String(), "count": look.Count, string(by): look.Digest(by).String()})
	if err != nil {
		return p, fmt.Errorf("prove what a subscription holds: %w", err)
	}
	err = c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, auditTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, status, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("prove what a subscription holds: %w", err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, application/problem+json")
		return c.exchange(req, func(resp *http.Response) error {
			var answer struct {
				Equal    *bool
				At       string
				Complete bool
				Proved   time.Time
			}
			err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxLook)).Decode(&answer)
			if err != nil || answer.Equal == nil || answer.At != look.Cursor.String() {
				return fmt.Errorf("the status of a subscription at %s answers 200, but %w", c.base, ErrNoHub)
			}
			p = Proof{Equal: *answer.Equal, At: look.Cursor, Complete: answer.Complete, Time: answer.Proved}
			return nil
		})
	})
	return p, err
}
