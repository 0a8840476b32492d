package disklog

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A Keep is an ordered map from keys to bytes, for data of the hub on its disk
// other than logs. It is in the store of the change memory, so it shares the
// memory's fsyncs and is part of the memory's backups. A key is not empty.
// Methods may be called concurrently, until the Log is closed.
type Keep struct {
	log    *Log
	prefix string
}

// Keep returns the map of a name, which has no slash. Maps of different names
// have nothing in common.
func (l *Log) Keep(name string) *Keep { return &Keep{l, "keep/" + name + "/"} }

// Get returns the value of a key, nil when there is none.
func (k *Keep) Get(ctx context.Context, key string) ([]byte, error) {
	err := ctx.Err()
	if err == nil {
		var v []byte
		if v, err = k.log.get([]byte(k.prefix + key)); err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("read what the hub keeps in %s: %w", k.log.dir, err)
}

// Scan calls do with the keys that begin with prefix and are greater than after,
// in ascending order, and with their values, until do returns false. It sees the
// map as it was when Scan was called. A value is valid until do returns.
func (k *Keep) Scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	if err := k.scan(ctx, prefix, after, do); err != nil {
		return fmt.Errorf("read what the hub keeps in %s: %w", k.log.dir, err)
	}
	return nil
}

func (k *Keep) scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from := []byte(k.prefix + prefix)
	to := end(from)
	if after >= prefix {
		from = []byte(k.prefix + after + "\x00")
	}
	it, err := k.log.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return damage(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return damage(err)
		}
		if !do(string(it.Key()[len(k.prefix):]), v) {
			return nil
		}
	}
	return damage(it.Error())
}

// end returns the smallest key that is greater than all keys with a prefix. The
// prefix begins with letters, so there is such a key.
func end(prefix []byte) []byte {
	e := append([]byte(nil), prefix...)
	for e[len(e)-1] == 0xff {
		e = e[:len(e)-1]
	}
	e[len(e)-1]++
	return e
}

// Apply sets keys to values in one atomic step, and removes the keys whose value is
// nil. When it returns nil, the step is durable. Readers may see the step a moment
// earlier. Steps whose calls do not overlap are seen in the order of the calls.
//
// If grows is true, Apply returns feed.ErrFull while the disk has less free space
// than the reserve. If grows is false, Apply may use the reserve.
func (k *Keep) Apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if err := k.apply(ctx, writes, grows); err != nil {
		return fmt.Errorf("keep in %s: %w", k.log.dir, err)
	}
	return nil
}

func (k *Keep) apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(writes) == 0 {
		return nil
	}
	if grows {
		if err := k.log.room(); err != nil {
			return err
		}
	}
	b := k.log.db.NewBatch()
	for key, value := range writes {
		if value == nil {
			remove(b, []byte(k.prefix+key))
		} else {
			put(b, []byte(k.prefix+key), value)
		}
	}
	return k.log.commit(b)
}

// Forget removes replaced values of the map from the store's files. Otherwise they stay
// there until the store compacts the files by itself. Forget blocks while the store
// writes the whole map again. Values that are written meanwhile may be stored twice.
func (k *Keep) Forget(ctx context.Context) error {
	from := []byte(k.prefix)
	if err := k.log.db.Compact(ctx, from, end(from), false); err != nil {
		return fmt.Errorf("forget in %s what was replaced: %w", k.log.dir, err)
	}
	return nil
}
