package disklog

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A Bucket is a named, ordered map from nonempty keys to values, for data of the hub other than logs
// and inventories. It is in the store of the change memory, so it shares the memory's fsyncs and is
// part of its backups. A Bucket is safe for concurrent use. No method may be called after the Log is
// closed.
type Bucket struct {
	log    *Log
	prefix string
}

// Bucket returns the bucket with a name, which must not contain a slash. Buckets with different names
// are independent.
func (l *Log) Bucket(name string) *Bucket { return &Bucket{l, "keep/" + name + "/"} }

// Get returns the value of a key, or nil if the bucket does not have the key. The caller owns the
// value.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	err := ctx.Err()
	if err == nil {
		var v []byte
		if v, err = b.log.get([]byte(b.prefix + key)); err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("read records of the hub in %s: %w", b.log.dir, err)
}

// Scan calls do with each key that starts with prefix and is greater than after, and with its value,
// in ascending order, until do returns false. It reads a snapshot of the bucket from the time of the
// call. A value is valid only until do returns.
func (b *Bucket) Scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	if err := b.scan(ctx, prefix, after, do); err != nil {
		return fmt.Errorf("read records of the hub in %s: %w", b.log.dir, err)
	}
	return nil
}

func (b *Bucket) scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from := []byte(b.prefix + prefix)
	to := prefixEnd(from)
	if after >= prefix {
		from = []byte(b.prefix + after + "\x00")
	}
	it, err := b.log.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return wrapCorrupt(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return wrapCorrupt(err)
		}
		if !do(string(it.Key()[len(b.prefix):]), v) {
			return nil
		}
	}
	return wrapCorrupt(it.Error())
}

// prefixEnd returns the smallest key that is greater than all keys with a prefix. Such a key exists,
// because the prefix starts with letters.
func prefixEnd(prefix []byte) []byte {
	e := append([]byte(nil), prefix...)
	for e[len(e)-1] == 0xff {
		e = e[:len(e)-1]
	}
	e[len(e)-1]++
	return e
}

// Apply sets keys to values in one atomic step, and removes the keys whose value is nil. If it returns
// nil, the writes are durable. Readers may see them shortly before. Writes of calls that do not
// overlap become visible in the order of the calls.
//
// If grows is true, Apply returns feed.ErrFull while the disk has less free space than the reserve.
// If grows is false, Apply may use the reserve.
func (b *Bucket) Apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if err := b.apply(ctx, writes, grows); err != nil {
		return fmt.Errorf("write records of the hub in %s: %w", b.log.dir, err)
	}
	return nil
}

func (b *Bucket) apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(writes) == 0 {
		return nil
	}
	if grows {
		if err := b.log.checkSpace(); err != nil {
			return err
		}
	}
	batch := b.log.db.NewBatch()
	for key, value := range writes {
		if value == nil {
			remove(batch, []byte(b.prefix+key))
		} else {
			put(batch, []byte(b.prefix+key), value)
		}
	}
	return b.log.commit(batch)
}

// EraseReplaced removes replaced and removed values of the bucket from the store's files, where they
// would otherwise stay until the store compacts the files itself. It blocks while the store rewrites
// the whole bucket. Values that are written during the call may be stored
// twice.
func (b *Bucket) EraseReplaced(ctx context.Context) error {
	from := []byte(b.prefix)
	if err := b.log.db.Compact(ctx, from, prefixEnd(from), false); err != nil {
		return fmt.Errorf("compact records of the hub in %s: %w", b.log.dir, err)
	}
	return nil
}
