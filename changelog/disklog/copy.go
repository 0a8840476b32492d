package disklog

import (
	"context"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// Keys yields the publishes that a set remembers by their keys, in the order of
// their numbers. After an error it yields nothing more.
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
			return fmt.Errorf("%w: the age of a key", changelog.ErrCorrupt)
		}
		key := string(v[8:])
		record, err := l.get(keyKey(name, key))
		if err != nil {
			return err
		}
		if record == nil {
			continue // the key was forgotten since the iterator was made
		}
		r, err := decodeReceipt(record)
		if err != nil {
			return err
		}
		if r.Number != number(it.Key()) {
			continue // the key was used again since the iterator was made
		}
		if !yield(changelog.KeyRecord{Key: key, Hash: r.Hash, Number: r.Number, After: r.After, Cursor: r.Cursor}) {
			return nil
		}
	}
	return wrapCorrupt(it.Error())
}

// Deleted returns what is remembered of deleted sets that were not made again.
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
