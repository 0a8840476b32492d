package disklog

import (
	"context"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// Keys yields the records of the idempotency keys of a set, in the order of their numbers. An error
// ends the sequence.
func (l *Log) Keys(ctx context.Context, name string) iter.Seq2[changelog.KeyRecord, error] {
	return func(yield func(changelog.KeyRecord, error) bool) {
		if err := l.keys(ctx, name, func(k changelog.KeyRecord) bool { return yield(k, nil) }); err != nil {
			yield(changelog.KeyRecord{}, fmt.Errorf("read the keys of set %q: %w", name, err))
		}
	}
}

func (l *Log) keys(ctx context.Context, name string, yield func(changelog.KeyRecord) bool) error {
	from, to := bounds("age/", name)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return wrapCorrupt(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := it.Value()
		if len(v) < 8 {
			return fmt.Errorf("%w: age of an idempotency key", changelog.ErrCorrupt)
		}
		key := string(v[8:])
		record, err := l.get(keyKey(name, key))
		if err != nil {
			return err
		}
		if record == nil {
			continue // the key was removed after the iterator was created
		}
		r, err := decodeReceipt(record)
		if err != nil {
			return err
		}
		if r.Number != number(it.Key()) {
			continue // the key was used again after the iterator was created
		}
		if !yield(changelog.KeyRecord{Key: key, Hash: r.Hash, Number: r.Number, After: r.After, Cursor: r.Cursor}) {
			return nil
		}
	}
	return wrapCorrupt(it.Error())
}

// Deleted returns the tombstones of deleted sets by name, except for sets that were created again.
func (l *Log) Deleted(ctx context.Context) (map[string]changelog.Tombstone, error) {
	deleted := make(map[string]changelog.Tombstone)
	err := ctx.Err()
	if err == nil {
		err = l.scanSets("was/", func(name string, v []byte) error {
			left, err := decodeTombstone(v)
			if err == nil && l.find(name) == nil {
				deleted[name] = left
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the deleted sets: %w", err)
	}
	return deleted, nil
}
