package diskpages

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/pebbledb"
)

// Load returns the record of a set.
func (s *Store) Load(ctx context.Context, set string) (inventory.Record, error) {
	r, err := s.record(ctx, set)
	r.Now = time.Now().UnixMicro()
	return r, err
}

// record returns the stored record of a set.
func (s *Store) record(ctx context.Context, set string) (r inventory.Record, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if set == "" || strings.Contains(set, "/") {
		return r, fmt.Errorf("invalid set name %q", set)
	}
	r.Log.Set = set
	b, err := pebbledb.Get(s.db, recordPrefix+set)
	if b == nil || err != nil {
		return r, err
	}
	if len(b) < 24 {
		return r, fmt.Errorf("%w: record has %d bytes", inventory.ErrDamaged, len(b))
	}
	r.Term, r.Head = binary.BigEndian.Uint64(b[16:]), b[24:]
	return r, nil
}

// Update changes the record of a set.
func (s *Store) Update(ctx context.Context, set string, u inventory.Update) error {
	b := s.db.NewBatch()
	err := s.update(ctx, set, u, b)
	if err == nil && durable(u) {
		err = s.known(b.SyncWait())
	}
	return err
}

// durable reports whether an Update has to survive a crash. An Update that reaches a cursor
// has to survive, too: a destination that lost it would have to read the same baseline
// again.
func durable(u inventory.Update) bool { return u.Durable || !u.At.IsZero() }

func (s *Store) update(ctx context.Context, set string, u inventory.Update, b *pebble.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.Load(ctx, set)
	if err == nil {
		err = u.Change(&r)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	v := make([]byte, 16, 24+len(r.Head)) // two values that a log would have
	v = binary.BigEndian.AppendUint64(v, r.Term)
	_ = b.Set([]byte(recordPrefix+set), append(v, r.Head...), nil) // cannot fail: a batch is in memory until it is applied
	if durable(u) {
		return s.known(s.db.ApplyNoSyncWait(b, pebble.Sync))
	}
	return s.known(s.db.Apply(b, pebble.NoSync))
}

// Put writes pages.
func (s *Store) Put(ctx context.Context, set string, begin int64, term uint64, pages []inventory.Page) error {
	return s.change(ctx, set, begin, term, func(b *pebble.Batch) {
		for _, p := range pages {
			_ = b.Set(pageKey(set, p.Number), p.Bytes, nil)
		}
	})
}

// change applies a batch under the term of a writer.
func (s *Store) change(ctx context.Context, set string, begin int64, term uint64, fill func(*pebble.Batch)) error {
	b := s.db.NewBatch()
	fill(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.record(ctx, set)
	switch {
	case err != nil:
	case begin != 0:
		err = inventory.ErrLog
	case term == 0 || r.Term != term:
		err = inventory.ErrFenced
	default:
		return s.known(s.db.Apply(b, pebble.NoSync))
	}
	return errors.Join(err, b.Close())
}

// Get returns the bytes of pages.
func (s *Store) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	pages := make([][]byte, len(numbers))
	if err := ctx.Err(); err != nil || begin != 0 {
		return pages, err
	}
	var err error
	for i, n := range numbers {
		if pages[i], err = pebbledb.Get(s.db, string(pageKey(set, n))); err != nil {
			return nil, fmt.Errorf("page %d: %w", n, err)
		}
	}
	return pages, nil
}

// Remove removes pages.
func (s *Store) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	if err := ctx.Err(); err != nil || begin != 0 {
		return err
	}
	return s.change(ctx, set, begin, term, func(b *pebble.Batch) {
		for _, n := range numbers {
			_ = b.Delete(pageKey(set, n), nil)
		}
	})
}

// Numbers yields the numbers of all pages of a set.
func (s *Store) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if begin != 0 {
			return
		}
		prefix := []byte(pagePrefix + set + "/")
		it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: prefix, UpperBound: []byte(pagePrefix + set + "0")})
		if err != nil {
			yield(0, err)
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			if !yield(binary.BigEndian.Uint64(it.Key()[len(prefix):]), nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(0, err)
		}
	}
}

func pageKey(set string, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(pagePrefix+set+"/"), number)
}
