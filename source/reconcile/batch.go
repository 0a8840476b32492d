package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Batch gathers changes, and publishes them: at most MaxBatch together.
//
// Its key is made of the changes and of the newest cursor that is known of the hub's log.
// A run that was interrupted while a batch was under way may have published it or not. If
// not, the next run finds the same cursor and the same changes, so it makes the same key,
// and a batch that arrives late is not taken twice. If the same changes come again later,
// because a resource went back to what it was, the cursor has moved, and so the key is
// another one.
type Batch struct {
	hub  Hub
	head feed.Cursor
	sent func([]resourcesync.Change) error

	changes []resourcesync.Change
	bytes   int
}

// NewBatch returns a Batch for a hub whose newest cursor that is known is head. sent is told
// what was published; its error is that of Send.
func NewBatch(hub Hub, head feed.Cursor, sent func([]resourcesync.Change) error) *Batch {
	return &Batch{hub: hub, head: head, sent: sent}
}

// Head returns the newest cursor that is known by now.
func (b *Batch) Head() feed.Cursor { return b.head }

// Add adds a change. If the Batch is full, it is published before.
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

// Send publishes what was added. It blocks until the hub has it.
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
	at, err := b.hub.Publish(ctx, hex.EncodeToString(h.Sum(nil)[:16]), b.changes)
	if err != nil {
		return err
	}
	b.head = at
	err = b.sent(b.changes)
	b.changes, b.bytes = b.changes[:0], 0
	return err
}
