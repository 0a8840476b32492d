package disklog

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

var _ changelog.Exporter = (*Log)(nil)

// Keys yields the publishes that a set knows by their keys.
func (l *Log) Keys(ctx context.Context, name string) iter.Seq2[changelog.Known, error] {
	return func(yield func(changelog.Known, error) bool) {
		if err := l.keys(ctx, name, func(k changelog.Known) bool { return yield(k, nil) }); err != nil {
			yield(changelog.Known{}, fmt.Errorf("read the keys of set %q: %w", name, err))
		}
	}
}

func (l *Log) keys(ctx context.Context, name string, yield func(changelog.Known) bool) error {
	from, to := bounds("age/", name)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return damage(err)
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
			continue // it was just forgotten
		}
		k, err := decodeKnown(record)
		if err != nil {
			return err
		}
		if k.Number != number(it.Key()) {
			continue // it was just used anew
		}
		if !yield(changelog.Known{Key: key, Hash: k.Hash, Number: k.Number, After: k.After, Cursor: k.Cursor}) {
			return nil
		}
	}
	return damage(it.Error())
}

// Deleted returns the sets that were deleted and not made again.
func (l *Log) Deleted(ctx context.Context) (map[string]int64, error) {
	deleted := make(map[string]int64)
	err := ctx.Err()
	if err == nil {
		err = l.scan("was/", func(name string, v []byte) error {
			if len(v) != 8 {
				return fmt.Errorf("%w: what it left", changelog.ErrCorrupt)
			}
			if l.find(name) == nil {
				deleted[name] = int64(binary.BigEndian.Uint64(v))
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the deleted sets: %w", err)
	}
	return deleted, nil
}
