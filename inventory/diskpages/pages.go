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

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/pebbledb"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// Load returns the record of a set.
func (s *Store) Load(ctx context.Context, set string) (inventory.Record, error) {
	r, begin, err := s.record(ctx, set)
	if err == nil && begin != r.Log.Begin {
		r = inventory.Record{Log: r.Log}
	}
	r.Now = time.Now().UnixMicro()
	return r, err
}

// record returns the stored record of a set, and when the record's log began.
// The set may have a newer log by now.
func (s *Store) record(ctx context.Context, set string) (r inventory.Record, begin int64, err error) {
	if err := ctx.Err(); err != nil {
		return r, 0, err
	}
	if set == "" || strings.Contains(set, "/") {
		return r, 0, fmt.Errorf("%q cannot name an inventory", set)
	}
	r.Log.Set = set
	if s.opts.Log != nil {
		if r.Log, err = s.opts.Log.State(ctx, set); err != nil {
			return r, 0, err
		}
	}
	b, err := pebbledb.Get(s.db, recordPrefix+set)
	if b == nil || err != nil {
		return r, r.Log.Begin, err
	}
	if len(b) < 24 {
		return r, 0, fmt.Errorf("%w: its record has %d bytes", inventory.ErrDamaged, len(b))
	}
	begin = int64(binary.BigEndian.Uint64(b))
	r.Version, r.Attempt, r.Head = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), b[24:]
	return r, begin, nil
}

// isOf reports whether the stored record and pages of a set belong to the log that began
// at begin, and the set still has this log.
func (s *Store) isOf(ctx context.Context, set string, begin int64) (bool, error) {
	r, of, err := s.record(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return false, nil
	}
	return err == nil && of == begin && r.Log.Begin == begin, err
}

// Swap replaces the record of a set.
func (s *Store) Swap(ctx context.Context, set string, w inventory.Swap) error {
	b := s.db.NewBatch()
	err := s.swap(ctx, set, w, b)
	if err == nil && durable(w) {
		err = s.known(b.SyncWait())
	}
	return err
}

// durable reports whether a Swap has to survive a crash. A Swap that reaches a cursor
// has to survive, too: a destination that lost it would have to read the same baseline
// again.
func durable(w inventory.Swap) bool { return w.Durable || !w.At.IsZero() }

func (s *Store) swap(ctx context.Context, set string, w inventory.Swap, b *pebble.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, begin, err := s.record(ctx, set)
	switch {
	case err != nil:
		return err
	case w.Begin != r.Log.Begin:
		return inventory.ErrLog
	case begin != w.Begin: // an earlier log: remove the pages that it left
		r.Version = 0
		remove(b, set)
	}
	if w.Version != r.Version {
		return inventory.ErrRaced
	}
	if err := s.holds(ctx, set, w.At); err != nil {
		return err
	}
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 24+len(w.Head)), uint64(w.Begin))
	v = binary.BigEndian.AppendUint64(v, w.Version+1)
	v = binary.BigEndian.AppendUint64(v, w.Attempt)
	_ = b.Set([]byte(recordPrefix+set), append(v, w.Head...), nil) // cannot fail: a batch is in memory until it is applied
	if durable(w) {
		return s.known(s.db.ApplyNoSyncWait(b, pebble.Sync))
	}
	return s.known(s.db.Apply(b, pebble.NoSync))
}

// holds returns ErrLog unless the log holds the entry at a cursor, or the cursor is zero.
func (s *Store) holds(ctx context.Context, set string, at feed.Cursor) error {
	if s.opts.Log == nil || at.IsZero() {
		return nil
	}
	held, err := s.opts.Log.At(ctx, set, at.Position)
	if errors.Is(err, feed.ErrGone) || errors.Is(err, resourcesync.ErrInvalid) || err == nil && held != at {
		return inventory.ErrLog
	}
	return err
}

// Put writes pages.
func (s *Store) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	b := s.db.NewBatch()
	for _, p := range pages {
		_ = b.Set(pageKey(set, p.Number), p.Bytes, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, of, err := s.record(ctx, set)
	if err != nil {
		return err
	}
	if of != begin || r.Log.Begin != begin || attempt == 0 || r.Attempt != attempt {
		return inventory.ErrRaced
	}
	return s.known(s.db.Apply(b, pebble.NoSync))
}

// Get returns the bytes of pages.
func (s *Store) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	pages := make([][]byte, len(numbers))
	if here, err := s.isOf(ctx, set, begin); err != nil || !here {
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
func (s *Store) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here, err := s.isOf(ctx, set, begin); err != nil || !here {
		return err
	}
	b := s.db.NewBatch()
	for _, n := range numbers {
		_ = b.Delete(pageKey(set, n), nil)
	}
	return s.known(s.db.Apply(b, pebble.NoSync))
}

// Numbers yields the numbers of all pages of a set.
func (s *Store) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		here, err := s.isOf(ctx, set, begin)
		if err != nil {
			yield(0, err)
		}
		if !here {
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

// Drop removes the inventory of a set.
func (s *Store) Drop(set string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.db.NewBatch()
	remove(b, set)
	if err := s.known(s.db.Apply(b, pebble.NoSync)); err != nil {
		return fmt.Errorf("drop the inventory of set %q: %w", set, err)
	}
	return nil
}

// remove removes the record and all pages of a set.
func remove(b *pebble.Batch, set string) {
	_ = b.Delete([]byte(recordPrefix+set), nil)
	_ = b.DeleteRange([]byte(pagePrefix+set+"/"), []byte(pagePrefix+set+"0"), nil)
}

func pageKey(set string, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(pagePrefix+set+"/"), number)
}
