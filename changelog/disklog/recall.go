package disklog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// recall finds the publish that had the same key before. A brief key is looked
// for in the same call only: below this log is nobody who could send it again.
func (l *Log) recall(a *appending, b *pebble.Batch, p *changelog.Publish, now int64) (k known, ok bool, err error) {
	if p.Key == "" {
		return k, false, nil
	}
	if k, ok = a.seen[p.Key]; ok || p.Brief {
		return k, ok, nil
	}
	v, done, err := l.db.Get(keyKey(a.set.name, p.Key))
	if err == pebble.ErrNotFound {
		return k, false, nil
	}
	if err != nil {
		return k, false, fmt.Errorf("look for an idempotency key: %w", damage(err))
	}
	defer done.Close()
	if k, err = decodeKnown(v); err != nil {
		return k, false, err
	}
	if a.tip.Keys-k.Number >= changelog.KeyCount || now-k.Cursor.Micros > changelog.KeyAge.Microseconds() {
		remove(b, ageKey(a.set.name, k.Number)) // the key gets a new number
		return k, false, nil
	}
	return k, true, nil
}

// remember keeps the key of a publish that was added.
func (a *appending) remember(b *pebble.Batch, p *changelog.Publish, k known) {
	if p.Key == "" {
		return
	}
	if !p.Brief {
		a.tip.Keys++
		k.Number = a.tip.Keys
		k.put(b, a.set.name, p.Key)
	}
	if len(a.publishes) > 1 {
		if a.seen == nil {
			a.seen = make(map[string]known)
		}
		a.seen[p.Key] = k
	}
}

// put keeps a known publish.
func (k known) put(b *pebble.Batch, set, key string) {
	put(b, keyKey(set, key), k.encode())
	at := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(key)), uint64(k.Cursor.Micros))
	put(b, ageKey(set, k.Number), append(at, key...))
}

// forgetStep bounds for how long appends wait while keys are forgotten.
const forgetStep = 5_000

// forget removes expired keys.
func (l *Log) forget(ctx context.Context, s *set) error {
	for {
		n, err := l.forgetSome(ctx, s)
		if err != nil {
			return fmt.Errorf("forget idempotency keys: %w", err)
		}
		if n < forgetStep {
			return nil
		}
	}
}

func (l *Log) forgetSome(ctx context.Context, s *set) (n int, err error) {
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
	b := l.db.NewBatch()
	for it.First(); it.Valid() && n < forgetStep; it.Next() {
		v := it.Value()
		if len(v) < 8 {
			return 0, fmt.Errorf("%w: the age of a key", changelog.ErrCorrupt)
		}
		if s.tip.Keys-number(it.Key()) < changelog.KeyCount && int64(binary.BigEndian.Uint64(v)) >= oldest {
			break
		}
		remove(b, keyKey(s.name, string(v[8:])))
		remove(b, it.Key())
		n++
	}
	if err := it.Error(); err != nil {
		return 0, damage(err)
	}
	if n == 0 {
		return 0, b.Close()
	}
	return n, l.commit(b)
}
