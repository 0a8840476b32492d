package disklog

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// findReceipt returns the unexpired receipt of an earlier publish with the key of p. If the key has
// expired, findReceipt removes its old number in b.
func (l *Log) findReceipt(a *appendOp, b *pebble.Batch, p *changelog.Publish, now int64) (r receipt, ok bool, err error) {
	if p.Key == "" {
		return r, false, nil
	}
	if r, ok = a.receipts[p.Key]; ok {
		return r, true, nil
	}
	if r, ok, err = l.receipt(a.set.name, p.Key); !ok || err != nil {
		return r, false, err
	}
	if a.expired(r, now) {
		remove(b, ageKey(a.set.name, r.Number)) // a new publish gets a new number
		return r, false, nil
	}
	return r, true, nil
}

// isBarred reports whether the set has an unexpired receipt for p.Unless.
func (l *Log) isBarred(a *appendOp, p *changelog.Publish, now int64) (bool, error) {
	if p.Unless == "" {
		return false, nil
	}
	if _, ok := a.receipts[p.Unless]; ok {
		return true, nil
	}
	r, ok, err := l.receipt(a.set.name, p.Unless)
	return ok && !a.expired(r, now), err
}

// receipt reads the receipt of a key, which may have expired. ok is false if the key has none.
func (l *Log) receipt(set, key string) (r receipt, ok bool, err error) {
	v, done, err := l.db.Get(keyKey(set, key))
	if err == pebble.ErrNotFound {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read an idempotency key: %w", wrapCorrupt(err))
	}
	defer done.Close()
	r, err = decodeReceipt(v)
	return r, err == nil, err
}

// expired reports whether the receipt is too old, or too many keys were stored after it.
func (a *appendOp) expired(r receipt, now int64) bool {
	return a.tip.Keys-r.Number >= changelog.KeyCount || !a.doubtful && now-r.Cursor.Micros > changelog.KeyAge.Microseconds()
}

// addReceipt stores the receipt of an added publish, if the publish has a key.
func (a *appendOp) addReceipt(b *pebble.Batch, p *changelog.Publish, r receipt) {
	if p.Key == "" {
		return
	}
	a.tip.Keys++
	r.Number = a.tip.Keys
	r.put(b, a.set.name, p.Key)
	if len(a.publishes) > 1 {
		if a.receipts == nil {
			a.receipts = make(map[string]receipt)
		}
		a.receipts[p.Key] = r
	}
}

// put stores a receipt under a key of a set.
func (r receipt) put(b *pebble.Batch, set, key string) {
	put(b, keyKey(set, key), r.encode())
	at := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(key)), uint64(r.Cursor.Micros))
	put(b, ageKey(set, r.Number), append(at, key...))
}

// expireBatchSize is the maximum number of keys removed while the set is locked, because appends to
// the set wait during that time.
const expireBatchSize = 5_000

// expireKeys removes the expired keys of a set. If the clock is doubtful, no key expires by age.
func (l *Log) expireKeys(ctx context.Context, s *set, doubtful bool) error {
	for {
		n, err := l.expireKeyBatch(ctx, s, doubtful)
		if err != nil {
			return fmt.Errorf("remove expired idempotency keys: %w", err)
		}
		if n < expireBatchSize {
			return nil
		}
	}
}

// expireKeyBatch removes up to expireBatchSize expired keys, oldest first, and returns their number.
func (l *Log) expireKeyBatch(ctx context.Context, s *set, doubtful bool) (n int, err error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.write.Unlock()
	from, to := bounds("age/", s.name)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	oldest := l.now() - changelog.KeyAge.Microseconds()
	if doubtful {
		oldest = math.MinInt64
	}
	b := l.db.NewBatch()
	for it.First(); it.Valid() && n < expireBatchSize; it.Next() {
		v := it.Value()
		if len(v) < 8 {
			return 0, fmt.Errorf("%w: age of an idempotency key", changelog.ErrCorrupt)
		}
		if s.tip.Keys-number(it.Key()) < changelog.KeyCount && int64(binary.BigEndian.Uint64(v)) >= oldest {
			break
		}
		remove(b, keyKey(s.name, string(v[8:])))
		remove(b, it.Key())
		n++
	}
	if err := it.Error(); err != nil {
		return 0, wrapCorrupt(err)
	}
	if n == 0 {
		return 0, b.Close()
	}
	return n, l.commit(b)
}
