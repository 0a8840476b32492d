package disklog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// pages is the inventory.Store of a Log. The inventories share the write-ahead log with the sets' logs,
// so a crash leaves a prefix of both.
type pages struct{ log *Log }

var _ inventory.Store = (*pages)(nil)

// Inventories returns the store of the sets' inventories, which is part of the memory. None of its
// methods may be called after the Log is closed. Even a crash of only the process may undo writes,
// until an Update with Durable set has returned.
func (l *Log) Inventories() inventory.Store { return &pages{log: l} }

// An inventoryRecord is the value of inv/<set>: begin, the number 1, term, head.
type inventoryRecord struct {
	begin int64  // begin of the log that the inventory belongs to
	term  uint64 // term of the writer
	head  []byte
}

func (r *inventoryRecord) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24+len(r.head)), uint64(r.begin))
	b = binary.BigEndian.AppendUint64(b, 1)
	b = binary.BigEndian.AppendUint64(b, r.term)
	return append(b, r.head...)
}

// inventory returns the record of a set's inventory, or nil if the store has none for the log that started at
// begin.
func (l *Log) inventory(set string, begin int64) (*inventoryRecord, error) {
	v, err := l.get(invKey(set))
	if v == nil || err != nil {
		return nil, err
	}
	if len(v) < 24 {
		return nil, fmt.Errorf("%w: inventory record: got %d bytes, want at least 24", changelog.ErrCorrupt, len(v))
	}
	r := &inventoryRecord{int64(binary.BigEndian.Uint64(v)), binary.BigEndian.Uint64(v[16:]), v[24:]}
	if r.begin != begin {
		return nil, nil
	}
	return r, nil
}

// Load returns the inventory record of a set.
func (p *pages) Load(ctx context.Context, set string) (inventory.Record, error) {
	r, err := p.load(ctx, set)
	if err != nil {
		return r, fmt.Errorf("load the inventory of set %q: %w", set, err)
	}
	return r, nil
}

func (p *pages) load(ctx context.Context, set string) (r inventory.Record, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	s := p.log.find(set)
	if s == nil {
		return r, feed.ErrNoSet
	}
	return p.loadOf(s)
}

func (p *pages) loadOf(s *set) (r inventory.Record, err error) {
	record, err := p.log.inventory(s.name, s.begin)
	if err != nil {
		return r, err
	}
	state := s.state.Load() // read after the record, so that the state is not older than the record
	if state == nil {
		return r, feed.ErrNoSet
	}
	r = inventory.Record{Log: *state, Now: p.log.now()}
	if record != nil {
		r.Term, r.Head = record.term, record.head
	}
	return r, nil
}

// Update changes the inventory record of a set.
func (p *pages) Update(ctx context.Context, set string, u inventory.Update) error {
	if err := p.update(ctx, set, u); err != nil {
		return fmt.Errorf("write the inventory of set %q: %w", set, err)
	}
	return nil
}

// update may use the disk's reserve, so that inventories can free pages on a full disk.
func (p *pages) update(ctx context.Context, set string, u inventory.Update) error {
	s, err := p.lock(ctx, set)
	if err != nil {
		return err
	}
	b, err := p.updateLocked(s, u)
	s.pages.Unlock()
	if err == nil && u.Durable {
		err = p.log.waitDurable(b)
	}
	return err
}

// updateLocked applies an Update. If it is Durable, it returns a batch that the caller must wait for.
// The caller must hold s.pages.
func (p *pages) updateLocked(s *set, u inventory.Update) (*pebble.Batch, error) {
	l := p.log
	r, err := p.loadOf(s)
	if err == nil {
		err = u.Change(&r)
	}
	if err == nil {
		err = l.checkCursor(s, u.At)
	}
	if err != nil {
		return nil, err
	}
	if len(r.Head) > inventory.MaxHead {
		return nil, fmt.Errorf("inventory head: got %d bytes, want at most %d", len(r.Head), inventory.MaxHead)
	}
	b := l.db.NewBatch()
	put(b, invKey(s.name), (&inventoryRecord{s.begin, r.Term, r.Head}).encode())
	if u.Durable {
		return b, l.apply(b)
	}
	return nil, l.applyLazily(b)
}

// checkCursor returns inventory.ErrLog unless the set's log has an entry at the cursor or the
// cursor is zero. On disk, only retention can remove the entry.
func (l *Log) checkCursor(s *set, at feed.Cursor) error {
	if at.IsZero() {
		return nil
	}
	v, err := l.view(s)
	if err != nil {
		return err
	}
	ok, err := v.contains(at)
	if err := errors.Join(err, v.close()); err != nil {
		return err
	}
	if !ok {
		return inventory.ErrLog
	}
	return nil
}

// lock returns a set after locking its pages. The caller must unlock set.pages. If lock returns an error,
// nothing is locked.
func (p *pages) lock(ctx context.Context, name string) (*set, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := p.log.find(name)
	if s == nil {
		return nil, feed.ErrNoSet
	}
	s.pages.Lock()
	err := ctx.Err() // ctx may have been canceled during the wait for the lock
	if err == nil && s.state.Load() == nil {
		err = feed.ErrNoSet
	}
	if err != nil {
		s.pages.Unlock()
		return nil, err
	}
	return s, nil
}

// Put writes pages of a set.
func (p *pages) Put(ctx context.Context, set string, begin int64, term uint64, put []inventory.Page) error {
	if err := p.put(ctx, set, begin, term, put); err != nil {
		return fmt.Errorf("write pages of the inventory of set %q: %w", set, err)
	}
	return nil
}

func (p *pages) put(ctx context.Context, set string, begin int64, term uint64, written []inventory.Page) error {
	if err := p.log.checkSpace(); err != nil {
		return err
	}
	b := p.log.db.NewBatch()
	for i := range written {
		put(b, pageKey(set, written[i].Number), written[i].Bytes)
	}
	s, err := p.lock(ctx, set)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	defer s.pages.Unlock()
	if err := p.checkTerm(s, begin, term); err != nil {
		return errors.Join(err, b.Close())
	}
	return p.log.applyLazily(b)
}

// checkTerm returns an error unless the record of the log that began at begin has the term. The caller must
// hold s.pages.
func (p *pages) checkTerm(s *set, begin int64, term uint64) error {
	if s.begin != begin {
		return inventory.ErrLog
	}
	r, err := p.log.inventory(s.name, begin)
	if err == nil && (term == 0 || r == nil || r.term != term) {
		err = inventory.ErrFenced
	}
	return err
}

// Get returns pages of a set.
func (p *pages) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	found, err := p.get(ctx, set, begin, numbers)
	if err != nil {
		return nil, fmt.Errorf("read pages of the inventory of set %q: %w", set, err)
	}
	return found, nil
}

func (p *pages) get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	none := make([][]byte, len(numbers))
	s := p.log.find(set)
	if s == nil || s.begin != begin {
		return none, nil
	}
	r, err := p.log.inventory(set, begin)
	if r == nil || err != nil {
		return none, err // pages that exist belong to an earlier log
	}
	found := make([][]byte, len(numbers))
	for i, n := range numbers {
		if found[i], err = p.log.get(pageKey(set, n)); err != nil {
			return nil, fmt.Errorf("page %d: %w", n, err)
		}
	}
	if s.state.Load() == nil {
		return none, nil // the set was deleted in the meantime, and perhaps created again
	}
	return found, nil
}

// Remove removes pages of a set.
func (p *pages) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	if err := p.remove(ctx, set, begin, term, numbers); err != nil {
		return fmt.Errorf("remove pages of the inventory of set %q: %w", set, err)
	}
	return nil
}

func (p *pages) remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	s, err := p.lock(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.pages.Unlock()
	if s.begin != begin {
		return nil
	}
	if err := p.checkTerm(s, begin, term); err != nil {
		return err
	}
	b := p.log.db.NewBatch()
	for _, n := range numbers {
		key := pageKey(set, n)
		size, err := p.log.valueSize(key)
		if err != nil {
			return errors.Join(err, b.Close())
		}
		if size >= 0 {
			_ = b.DeleteSized(key, uint32(size), nil) // so that Pebble knows how much space a compaction frees
		}
	}
	if b.Empty() {
		return b.Close()
	}
	return p.log.applyLazily(b)
}

// valueSize returns the size of the value of a key in bytes, or -1 if the key does not exist.
func (l *Log) valueSize(key []byte) (int, error) {
	v, done, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return 0, wrapCorrupt(err)
	}
	return len(v), done.Close()
}

// Numbers yields the numbers of the pages of a set.
func (p *pages) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if err := p.numbers(ctx, set, begin, func(n uint64) bool { return yield(n, nil) }); err != nil {
			yield(0, fmt.Errorf("list the pages of the inventory of set %q: %w", set, err))
		}
	}
}

func (p *pages) numbers(ctx context.Context, set string, begin int64, yield func(uint64) bool) error {
	s := p.log.find(set)
	if s == nil || s.begin != begin {
		return ctx.Err()
	}
	r, err := p.log.inventory(set, begin)
	if r == nil || err != nil {
		return errors.Join(err, ctx.Err())
	}
	from, to := bounds("page/", set)
	it, err := p.log.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return wrapCorrupt(err)
	}
	defer it.Close()
	for it.First(); it.Valid() && s.state.Load() != nil; it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !yield(number(it.Key())) {
			return nil
		}
	}
	return errors.Join(wrapCorrupt(it.Error()), ctx.Err())
}
