package disklog

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// A set is what is in memory of a set of resources.
type set struct {
	name string

	// write is held by who changes the set, while the change is applied. An
	// append lets it go before its fsync, so that the next one can share it.
	write  sync.Mutex
	record record // as applied
	tip    tip    // as applied; it may not be durable yet

	// state is what readers see, nil once the set is deleted. Its head is
	// durable and only moves forward. Its floor moves before the entries below
	// it go.
	state atomic.Pointer[changelog.State]
}

func newSet(name string, r record, t tip) *set {
	s := &set{name: name, record: r, tip: t}
	s.state.Store(&changelog.State{
		Set: name, Description: r.Description, ListSize: r.ListSize, Begin: r.Begin,
		Floor: r.Floor, Head: t.Head, Latest: t.Latest,
	})
	return s
}

// show changes what readers see.
func (s *set) show(change func(*changelog.State)) {
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

// lock locks the set for a change.
func (s *set) lock(ctx context.Context) error {
	s.write.Lock()
	err := ctx.Err() // after what may have been a long wait
	if err == nil && s.state.Load() == nil {
		err = changelog.ErrNoSet
	}
	if err != nil {
		s.write.Unlock()
	}
	return err
}

// find returns a set, or nil.
func (l *Log) find(name string) *set {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.sets[name]
}

// load reads what the store holds of all sets, at Open.
func (l *Log) load() error {
	tips := make(map[string]tip)
	if err := l.scan("tip/", func(name string, v []byte) (err error) {
		tips[name], err = decodeTip(v)
		return err
	}); err != nil {
		return err
	}
	return l.scan("set/", func(name string, v []byte) error {
		r, err := decodeRecord(v)
		if err != nil {
			return err
		}
		t, ok := tips[name]
		if !ok {
			return fmt.Errorf("%w: it has no tip", changelog.ErrCorrupt)
		}
		l.sets[name] = newSet(name, r, t)
		return nil
	})
}

// scan calls do for every set that has a key under a prefix.
func (l *Log) scan(prefix string, do func(name string, value []byte) error) error {
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
	return damage(it.Error())
}

// Make makes a set.
func (l *Log) Make(ctx context.Context, name string, d changelog.Description, listSize int) error {
	if err := l.make(ctx, name, d, listSize); err != nil {
		return fmt.Errorf("make set %q: %w", name, err)
	}
	return nil
}

func (l *Log) make(ctx context.Context, name string, d changelog.Description, listSize int) error {
	if err := changelog.CheckSet(name); err != nil {
		return err
	}
	if listSize < 1 || listSize > changelog.MaxListSize {
		return changelog.Invalid("a list size is 1 to %d, not %d", changelog.MaxListSize, listSize)
	}
	l.making.Lock()
	defer l.making.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.find(name) != nil {
		return nil
	}
	if err := l.room(); err != nil {
		return err
	}
	begin := l.now()
	was, err := l.get(wasKey(name))
	if err != nil {
		return err
	}
	if len(was) == 8 {
		begin = max(begin, int64(binary.BigEndian.Uint64(was))+1)
	}
	floor := changelog.Cursor{Micros: begin}
	s := newSet(name, record{d, listSize, begin, floor}, tip{Head: floor, Latest: floor})
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

// Describe replaces a set's description.
func (l *Log) Describe(ctx context.Context, name string, d changelog.Description) error {
	if err := l.describe(ctx, name, d); err != nil {
		return fmt.Errorf("describe set %q: %w", name, err)
	}
	return nil
}

func (l *Log) describe(ctx context.Context, name string, d changelog.Description) error {
	s := l.find(name)
	if s == nil {
		return changelog.ErrNoSet
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
	s.show(func(state *changelog.State) { state.Description = d })
	return nil
}

// Delete removes a set. Of it remains the datetime of its head, so that a set
// made again under its name begins later.
func (l *Log) Delete(ctx context.Context, name string) error {
	if err := l.delete(ctx, name); err != nil {
		return fmt.Errorf("delete set %q: %w", name, err)
	}
	return nil
}

func (l *Log) delete(ctx context.Context, name string) error {
	l.making.Lock()
	defer l.making.Unlock()
	s := l.find(name)
	if s == nil {
		return changelog.ErrNoSet
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	s.state.Store(nil) // before the entries go: see view
	b := l.db.NewBatch()
	removeSet(b, name)
	putWas(b, name, s.tip.Head.Micros)
	if err := l.commit(b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sets, name)
	return nil
}

// removeSet removes all that is of a set.
func removeSet(b *pebble.Batch, name string) {
	removeAll(b, name, "log/", "key/", "age/")
	remove(b, setKey(name))
	remove(b, tipKey(name))
}

// removeAll removes what a set has under some prefixes.
func removeAll(b *pebble.Batch, name string, prefixes ...string) {
	for _, prefix := range prefixes {
		from, to := bounds(prefix, name)
		removeRange(b, from, to)
	}
}

// putWas notes what a set made again under a name must begin after.
func putWas(b *pebble.Batch, name string, head int64) {
	put(b, wasKey(name), binary.BigEndian.AppendUint64(nil, uint64(head)))
}

// State returns what a set is now.
func (l *Log) State(ctx context.Context, name string) (changelog.State, error) {
	err := ctx.Err()
	if err == nil {
		if s := l.find(name); s != nil {
			if state := s.state.Load(); state != nil {
				return *state, nil
			}
		}
		err = changelog.ErrNoSet
	}
	return changelog.State{}, fmt.Errorf("state of set %q: %w", name, err)
}
