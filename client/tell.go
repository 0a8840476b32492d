package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
)

// ErrOther means that a hub does not hold what a proof says.
var ErrOther = errors.New("the hub has something else")

// Tell tells a hub that a destination has proved to hold the same. The hub compares the
// proof with what it held at that cursor, and shows its operators when the destination of
// that name was last equal. A name has 1 to 100 bytes, printable; destinations of the same
// caller and set have different names.
//
// Tell tries again as Publish does when the hub cannot be reached. It returns ErrOther if
// the hub held something else. It returns feed.ErrGone if the hub cannot look at that
// cursor any more, which it can for some minutes after the audit. The other errors are
// those of Audit; a hub of an earlier version refuses it.
func (c *Client) Tell(ctx context.Context, name string, p audit.Proof) error {
	if err := feed.CheckSet(p.Set); err != nil {
		return err
	}
	a := &auditor{client: c, set: p.Set, at: p.Cursor, name: name}
	reply, err := a.askOnce(ctx, p.Question())
	if err == nil && len(reply.Ranges) > 0 {
		err = fmt.Errorf("%w than %d resources of set %q with the digest %v at %v", ErrOther, p.Count, p.Set, p.Digest, p.Cursor)
	}
	return err
}
