package disklog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// An Import is a changelog.Importer into a directory of the local disk. It changes
// the sets of its Log without locks: one goroutine uses it, and nobody else has the
// Log.
type Import struct {
	log   *Log
	batch *pebble.Batch // the changes that are not written yet
}

var _ changelog.Importer = (*Import)(nil)

// OpenImport opens a directory that is to hold a copy of the memory with the
// identity id. It makes the directory if there is none. It goes on with an
// unfinished copy of that memory. It returns changelog.ErrCopied for a finished
// copy, and another error for anything else, which it does not change. Only one
// process may have the directory open: ErrInUse. The caller closes the Import.
func OpenImport(dir, id string, opts Options) (*Import, error) {
	l, err := openDir(dir, opts, func(l *Log) error { return l.adopt(id) })
	if err != nil {
		return nil, err
	}
	return &Import{log: l, batch: l.db.NewBatch()}, nil
}

// adopt makes an empty store an unfinished copy of the memory with the identity id,
// or goes on with such a copy.
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
		return fmt.Errorf("it has an unfinished copy of another memory (%s), and nothing was changed: choose another directory, or remove this one first", l.id)
	case l.id != id:
		return fmt.Errorf("it has another memory (%s), and nothing was changed: choose another directory, or remove this one first", l.id)
	case string(format) == formatUnfinished:
		return nil
	case string(format) == formatVersion:
		return changelog.ErrCopied
	}
	return l.identify()
}

// Sets returns what the store holds so far.
func (m *Import) Sets(ctx context.Context) ([]feed.State, error) { return m.log.Sets(ctx) }

// Begin makes a set, see changelog.Importer.
func (m *Import) Begin(ctx context.Context, s feed.State, after feed.Cursor) error {
	if err := feed.CheckLog(s.Set); err != nil {
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
	removeAll(m.batch, s.Set, "page/")
	remove(m.batch, invKey(s.Set))
	set := newSet(s.Set, record{s.Description, s.ListSize, s.Begin, s.Was, s.Floor, s.Epochs}, tip{Head: after, Latest: s.Latest})
	put(m.batch, setKey(s.Set), set.record.encode())
	m.log.sets[s.Set] = set
	return m.reached(ctx, set)
}

// reached notes the tip of a set. It writes the gathered changes when they are
// importBytes or more, so that many steps share one fsync.
func (m *Import) reached(ctx context.Context, s *set) error {
	put(m.batch, tipKey(s.name), s.tip.encode())
	s.show(func(state *feed.State) { state.Head, state.Latest = s.tip.Head, s.tip.Latest })
	if m.batch.Len() < m.log.opts.importBytes {
		return ctx.Err()
	}
	return m.write(ctx)
}

// write makes the gathered changes durable.
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

// Inventories returns the store of the inventories of the copy. Before it looks at a set,
// it writes what was imported so far. One goroutine at a time uses it or the Import.
func (m *Import) Inventories() inventory.Store {
	return &pages{log: m.log, flush: func(ctx context.Context) error {
		if m.batch.Empty() {
			return nil
		}
		return m.write(ctx)
	}}
}

// Add adds blocks behind the head of a set, which must be after.
func (m *Import) Add(ctx context.Context, name string, after feed.Cursor, blocks []changelog.PlacedBlock) error {
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
		return fmt.Errorf("add keys to set %q: %w", name, feed.ErrNoSet)
	}
	for _, k := range keys {
		receipt{k.Number, k.Hash, k.After, k.Cursor}.put(m.batch, name, k.Key)
		s.tip.Keys = k.Number
	}
	return m.reached(ctx, s)
}

// Deleted removes a set, and notes what it left for a new set of the same name.
func (m *Import) Deleted(ctx context.Context, name string, left changelog.Left) error {
	if err := feed.CheckLog(name); err != nil {
		return err
	}
	if m.log.find(name) != nil {
		removeSet(m.batch, name)
		delete(m.log.sets, name)
	}
	put(m.batch, wasKey(name), encodeLeft(left))
	return ctx.Err()
}

// Finish makes the store a memory.
func (m *Import) Finish(ctx context.Context) error {
	put(m.batch, formatKey, []byte(formatVersion))
	err := markCopy(m.log.opts.FS, m.log.dir)
	if err == nil {
		err = m.write(ctx)
	}
	if err != nil {
		return fmt.Errorf("finish the copy in %s: %w", m.log.dir, err)
	}
	return nil
}

// Close releases the store.
func (m *Import) Close() error {
	_ = m.batch.Close() // its changes are dropped: the next run makes them again
	return m.log.Close()
}
