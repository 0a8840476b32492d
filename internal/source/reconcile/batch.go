package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Batch gathers changes and publishes at most MaxBatch of them together.
//
// Its key is a hash of the changes and the newest known cursor of the hub's log. If a run is
// interrupted during a publish, the batch may or may not have been published. If not, the next run
// finds the same cursor and the same changes, so it computes the same key, and the hub does not
// accept a late batch twice. If the same changes come again later, because a resource changed back,
// the cursor has moved, so the key is new.
type Batch struct {
	hub        Hub
	head       feed.Cursor
	beforeSend func(head feed.Cursor, changes []resourcesync.Change) error // called before each publish; may be nil
	afterSend  func(head feed.Cursor, changes []resourcesync.Change) error

	changes []resourcesync.Change
	bytes   int
}

// NewBatch returns a Batch for a hub whose newest known cursor is head. Send calls afterSend with
// the published changes and the new head, and returns its error.
func NewBatch(hub Hub, head feed.Cursor, sent func(head feed.Cursor, changes []resourcesync.Change) error) *Batch {
	return &Batch{hub: hub, head: head, afterSend: sent}
}

// Add adds a change. If the Batch is full, Add publishes it first.
func (b *Batch) Add(ctx context.Context, c *resourcesync.Change) error {
	if n := len(b.changes); n == MaxBatch || n > 0 && b.bytes+c.Size() > maxBatchBytes {
		if err := b.Send(ctx); err != nil {
			return err
		}
	}
	b.changes = append(b.changes, *c)
	b.bytes += c.Size()
	return nil
}

// Send publishes the added changes. It blocks until the hub has them.
func (b *Batch) Send(ctx context.Context) error {
	if len(b.changes) == 0 {
		return nil
	}
	h := sha256.New()
	line := append(b.head.Append(nil), '\n')
	for i := range b.changes {
		line = append(resourcesync.AppendJSONMembers(line, &b.changes[i]), '\n')
		h.Write(line)
		line = line[:0]
	}
	if b.beforeSend != nil {
		if err := b.beforeSend(b.head, b.changes); err != nil {
			return err
		}
	}
	head, err := b.hub.Publish(ctx, hex.EncodeToString(h.Sum(nil)[:16]), b.changes)
	if err != nil {
		return err
	}
	b.head = head
	err = b.afterSend(head, b.changes)
	b.changes, b.bytes = b.changes[:0], 0
	return err
}
