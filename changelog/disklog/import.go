package disklog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// An Import is a changelog.Importer into a directory of the local disk.
type Import struct {
	log   *Log
	batch *pebble.Batch // what is not written yet
}

var _ changelog.Importer = (*Import)(nil)

// OpenImport opens a directory, which it makes when there is none, to become the
// copy of the memory with an identity. It goes on with an unfinished copy of that
// memory, says changelog.ErrCopied of a finished one, and refuses any other
// without a change. Only one process may have the directory open.
func OpenImport(dir, id string, opts Options) (*Import, error) {
	l, err := openDir(dir, opts, func(l *Log) error { return l.adopt(id) })
	if err != nil {
		return nil, err
	}
	return &Import{log: l, batch: l.db.NewBatch()}, nil
}

// adopt takes an empty store for the copy of a memory, or one that was taken for
// it before.
func (l *Log) adopt(id string) error {
	format, err := l.get(formatKey)
	if err != nil {
		return fmt.Errorf("read the format: %w", err)
	}
	if format == nil {
		if err := l.room(); err != nil {
			return err
		}
		l.id = id
		return l.found(formatUnfinished)
	}
	held, err := l.get(idKey)
	if err != nil {
		return fmt.Errorf("read the identity: %w", err)
	}
	l.id = string(held)
	switch {
	case l.id != id && string(format) == formatUnfinished:
		return fmt.Errorf("it is an unfinished copy of another memory (%s), and was left as it is: take another directory, or remove this one first", l.id)
	case l.id != id:
		return fmt.Errorf("it is another memory (%s), and was left as it is: take another directory, or remove this one first", l.id)
	case string(format) == formatUnfinished:
		return nil
	case string(format) == formatVersion:
		return changelog.ErrCopied
	}
	return l.identify()
}

// Sets returns what the store holds by now.
func (m *Import) Sets(ctx context.Context) ([]changelog.State, error) { return m.log.Sets(ctx) }

// Begin makes a set.
func (m *Import) Begin(ctx context.Context, s changelog.State, after changelog.Cursor) error {
	if err := changelog.CheckSet(s.Set); err != nil {
		return err
	}
	old := m.log.find(s.Set)
	switch {
	case after != s.Floor && (old == nil || old.tip.Head != after):
		return fmt.Errorf("go on with set %q behind %v: it does not end there", s.Set, after)
	case after == s.Floor && old != nil:
		removeAll(m.batch, s.Set, "log/", "key/", "age/")
	case old != nil:
		removeAll(m.batch, s.Set, "key/", "age/")
	}
	set := newSet(s.Set, record{s.Description, s.ListSize, s.Begin, s.Floor}, tip{Head: after, Latest: s.Latest})
	put(m.batch, setKey(s.Set), set.record.encode())
	m.log.sets[s.Set] = set
	return m.reached(ctx, set)
}

// reached notes the tip of a set, and writes what has gathered if it is much.
func (m *Import) reached(ctx context.Context, s *set) error {
	put(m.batch, tipKey(s.name), s.tip.encode())
	s.show(func(state *changelog.State) { state.Head, state.Latest = s.tip.Head, s.tip.Latest })
	if m.batch.Len() < m.log.opts.importBytes {
		return ctx.Err()
	}
	return m.write(ctx)
}

// write makes durable what has gathered.
func (m *Import) write(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.log.room(); err != nil {
		return err
	}
	b := m.batch
	m.batch = m.log.db.NewBatch()
	return m.log.commit(b)
}

// Add adds blocks to a set.
func (m *Import) Add(ctx context.Context, name string, after changelog.Cursor, blocks []changelog.PlacedBlock) error {
	s := m.log.find(name)
	if s == nil || s.tip.Head != after {
		return fmt.Errorf("add to set %q behind %v: it does not end there", name, after)
	}
	for _, b := range blocks {
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(b.Block)), uint64(b.Last.Micros))
		put(m.batch, logKey(name, b.Last.Position), append(value, b.Block...))
		s.tip.Head = b.Last
	}
	return m.reached(ctx, s)
}

// AddKeys adds known publishes to a set.
func (m *Import) AddKeys(ctx context.Context, name string, keys []changelog.Known) error {
	s := m.log.find(name)
	if s == nil {
		return fmt.Errorf("add keys to set %q: %w", name, changelog.ErrNoSet)
	}
	for _, k := range keys {
		known{k.Number, k.Hash, k.After, k.Cursor}.put(m.batch, name, k.Key)
		s.tip.Keys = k.Number
	}
	return m.reached(ctx, s)
}

// Deleted removes a set and notes what it leaves.
func (m *Import) Deleted(ctx context.Context, name string, micros int64) error {
	if err := changelog.CheckSet(name); err != nil {
		return err
	}
	if m.log.find(name) != nil {
		removeSet(m.batch, name)
		delete(m.log.sets, name)
	}
	putWas(m.batch, name, micros)
	return ctx.Err()
}

// Finish makes the store a memory.
func (m *Import) Finish(ctx context.Context) error {
	put(m.batch, formatKey, []byte(formatVersion))
	if err := m.write(ctx); err != nil {
		return fmt.Errorf("finish the copy in %s: %w", m.log.dir, err)
	}
	return nil
}

// Close releases the store.
func (m *Import) Close() error {
	_ = m.batch.Close() // it is given up
	return m.log.Close()
}
