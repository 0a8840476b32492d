package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A batch gathers changes, and publishes them.
//
// Its key is made of the changes and of the newest cursor that is known of the hub's log.
// A run that was interrupted while a batch was under way may have published it or not. If
// not, the next run finds the same cursor and the same changes, so it makes the same key,
// and a batch that arrives late is not taken twice. If the same changes come again later,
// because a resource went back to what it was, the cursor has moved, and so the key is
// another one.
type batch struct {
	hub  Hub
	head feed.Cursor
	sent func([]resourcesync.Change) error // is told what was published

	changes []resourcesync.Change
	bytes   int
}

// add adds a change. If the batch is full, it is published before.
func (b *batch) add(ctx context.Context, c *resourcesync.Change) error {
	if n := len(b.changes); n == MaxBatch || n > 0 && b.bytes+c.Size() > maxBatchBytes {
		if err := b.send(ctx); err != nil {
			return err
		}
	}
	b.changes = append(b.changes, *c)
	b.bytes += c.Size()
	return nil
}

// send publishes what was added.
func (b *batch) send(ctx context.Context) error {
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
