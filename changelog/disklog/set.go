package disklog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A set is the in-memory part of one of the Log's sets. Its blocks and keys are only on disk.
type set struct {
	name  string
	begin int64 // datetime of the start of the log, in microseconds since 1970

	// write guards record and tip. It is held while a change of the set is applied. An append
	// releases it before the fsync, so that the next append can share the fsync.
	write  sync.Mutex
	record record // as applied
	tip    tip    // as applied; it may not be durable yet

	// pages guards the record and the pages of the inventory. No append waits for it, so commits of
	// an inventory do not delay appends. Delete locks write before pages.
	pages sync.Mutex

	// state is the state visible to readers, and nil after the set was deleted. Its head is durable
	// and only increases. Its floor is raised before the entries up to the new floor are removed.
	state atomic.Pointer[feed.State]
}

func newSet(name string, r record, t tip) *set {
	s := &set{name: name, begin: r.Begin, record: r, tip: t}
	s.state.Store(&feed.State{
		Set: name, Description: r.Description, ListSize: r.ListSize, Begin: r.Begin, PriorMicros: r.PriorMicros,
		Floor: r.Floor, Head: t.Head, BeforeLatest: t.Latest,
	})
	return s
}

// updateState applies change to a copy of the state, and makes it visible to readers. It does
// nothing if the set was deleted. change may be called repeatedly.
func (s *set) updateState(change func(*feed.State)) {
	for {
		old := s.state.Load()
		if old == nil {
			return
		}
		state := *old
		change(&state)
		if s.state.CompareAndSwap(old, &state) {
			return
		}
	}
}

// lock locks s.write. If the set was deleted or ctx is done, lock returns an error and the set is
// not locked.
func (s *set) lock(ctx context.Context) error {
	s.write.Lock()
	err := ctx.Err() // ctx may have been canceled during the wait for the lock
	if err == nil && s.state.Load() == nil {
		err = feed.ErrNoSet
	}
	if err != nil {
		s.write.Unlock()
	}
	return err
}

// find returns the set with a name, or nil if it does not exist.
func (l *Log) find(name string) *set {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.sets[name]
}

// loadSets reads all sets from the store. Open calls it.
func (l *Log) loadSets() error {
	tips := make(map[string]tip)
	if err := l.scanSets("tip/", func(name string, v []byte) (err error) {
		tips[name], err = decodeTip(v)
		return err
	}); err != nil {
		return err
	}
	return l.scanSets("set/", func(name string, v []byte) error {
		r, err := decodeRecord(v)
		if err != nil {
			return err
		}
		t, ok := tips[name]
		if !ok {
			return fmt.Errorf("%w: tip is missing", changelog.ErrCorrupt)
		}
		l.sets[name] = newSet(name, r, t)
		return nil
	})
}

// scanSets calls do with the name and the value of each key of the form prefix<set>, in ascending
// order. The value is valid only until do returns.
func (l *Log) scanSets(prefix string, do func(name string, value []byte) error) error {
	end := prefix[:len(prefix)-1] + "0"
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte(prefix), UpperBound: []byte(end)})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		name := string(it.Key()[len(prefix):])
		if err := do(name, it.Value()); err != nil {
			return fmt.Errorf("set %q: %w", name, err)
		}
	}
	return wrapCorrupt(it.Error())
}

// Make creates a set; see changelog.Log.
func (l *Log) Make(ctx context.Context, name string, d feed.Description, listSize int) error {
	if err := l.makeSet(ctx, name, d, listSize); err != nil {
		return fmt.Errorf("create set %q: %w", name, err)
	}
	return nil
}

func (l *Log) makeSet(ctx context.Context, name string, d feed.Description, listSize int) error {
	if err := feed.CheckSet(name); err != nil {
		return err
	}
	if listSize < 1 || listSize > changelog.MaxListSize {
		return resourcesync.Invalidf("list size: want 1 to %d, got %d", changelog.MaxListSize, listSize)
	}
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.find(name) != nil {
		return nil
	}
	if err := l.checkSpace(); err != nil {
		return err
	}
	begin, prior, err := l.newBegin(name)
	if err != nil {
		return err
	}
	floor := feed.Cursor{Micros: begin}
	s := newSet(name, record{Description: d, ListSize: listSize, Begin: begin, PriorMicros: prior, Floor: floor}, tip{Head: floor, Latest: floor})
	b := l.db.NewBatch()
	put(b, setKey(name), s.record.encode())
	put(b, tipKey(name), s.tip.encode())
	if err := l.commit(b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets[name] = s
	return nil
}

// newBegin returns the datetime at which a new set starts: now, and after the entries of all
// deleted sets with its name. If a clock was wrong, the entries of a deleted set may be far in the
// future. Then the new set starts now, and prior is the latest datetime that a cursor of a deleted
// set may have; see view.since.
func (l *Log) newBegin(name string) (begin, prior int64, err error) {
	begin = l.now()
	v, err := l.get(tombstoneKey(name))
	if v == nil || err != nil {
		return begin, 0, err
	}
	left, err := decodeTombstone(v)
	if left.End-begin <= l.opts.ClockSkew.Microseconds() {
		begin = max(begin, left.End+1)
	}
	if left.Latest >= begin {
		prior = left.Latest
	}
	return begin, prior, err
}

// Describe replaces the description of a set.
func (l *Log) Describe(ctx context.Context, name string, d feed.Description) error {
	if err := l.describe(ctx, name, d); err != nil {
		return fmt.Errorf("describe set %q: %w", name, err)
	}
	return nil
}

func (l *Log) describe(ctx context.Context, name string, d feed.Description) error {
	s := l.find(name)
	if s == nil {
		return feed.ErrNoSet
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	s.record.Description = d
	b := l.db.NewBatch()
	put(b, setKey(name), s.record.encode())
	if err := l.commit(b); err != nil {
		return err
	}
	s.updateState(func(state *feed.State) { state.Description = d })
	return nil
}

// Delete removes a set. Only its changelog.Tombstone stays, which ensures that no cursor of the set
// is valid in a new set with the same name.
func (l *Log) Delete(ctx context.Context, name string) error {
	if err := l.delete(ctx, name); err != nil {
		return fmt.Errorf("delete set %q: %w", name, err)
	}
	return nil
}

func (l *Log) delete(ctx context.Context, name string) error {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	s := l.find(name)
	if s == nil {
		return feed.ErrNoSet
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	s.pages.Lock()
	defer s.pages.Unlock()
	s.state.Store(nil) // before the entries are removed, see Log.view
	b := l.db.NewBatch()
	removeSet(b, name)
	head, now := s.tip.Head.Micros, l.now()
	left := changelog.Tombstone{End: head, Latest: max(head, s.record.PriorMicros)}
	if head-now > l.opts.ClockSkew.Microseconds() {
		left.End = min(head, max(now, s.record.Begin))
	}
	put(b, tombstoneKey(name), encodeTombstone(left))
	if err := l.commit(b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sets, name)
	return nil
}

// removeSet removes all data of a set: its entries, its keys, its inventory and its records.
func removeSet(b *pebble.Batch, name string) {
	removeKeys(b, name, "log/", "key/", "age/", "page/")
	remove(b, invKey(name))
	remove(b, setKey(name))
	remove(b, tipKey(name))
}

// removeKeys removes all keys of a set under the prefixes.
func removeKeys(b *pebble.Batch, name string, prefixes ...string) {
	for _, prefix := range prefixes {
		from, to := bounds(prefix, name)
		removeRange(b, from, to)
	}
}

// State returns the state of a set.
func (l *Log) State(ctx context.Context, name string) (feed.State, error) {
	err := ctx.Err()
	if err == nil {
		if s := l.find(name); s != nil {
			if state := s.state.Load(); state != nil {
				return *state, nil
			}
		}
		err = feed.ErrNoSet
	}
	return feed.State{}, fmt.Errorf("read state of set %q: %w", name, err)
}
