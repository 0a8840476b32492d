package redislog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/redisconn"
)

// A Source is a change memory to copy. It must not be modified during the copy.
type Source interface {
	changelog.Log

	// Keys yields the records of the idempotency keys of a set, in the order of their numbers. An
	// error ends the sequence.
	Keys(ctx context.Context, set string) iter.Seq2[changelog.KeyRecord, error]

	// Deleted returns the tombstones of deleted sets by name, except for sets that were created
	// again.
	Deleted(ctx context.Context) (map[string]changelog.Tombstone, error)
}

// An Import turns an empty Redis into a copy of a memory. Until Finish has returned nil, hubs that
// start on the copy get changelog.ErrUnfinished. An Import is not safe for concurrent use. If two
// Imports write the same copy, only the one opened last can continue, and the steps of the other
// fail.
type Import struct {
	log   *Log
	run   int64 // number of this Import, higher than any earlier one of the copy
	steps int64 // number of steps that this Import has started
}

// Progress counts what an Import has copied.
type Progress struct {
	Sets    int
	Changes uint64
}

// OpenImport opens a Redis for a copy of the memory with the identity id. All keys start with the
// prefix. If Redis has an unfinished copy of that memory, the copy starts from scratch. If the
// prefix is used for anything else, OpenImport changes nothing and returns an error. It refuses the
// same servers as Open. The caller must close the Import before conn.
func OpenImport(ctx context.Context, conn *redisconn.Conn, id string, opts Options) (*Import, error) {
	m := &Import{}
	l, err := open(ctx, conn, opts, func(l *Log) error {
		l.id.Store(&id)
		l.fixedID = true
		return m.adopt(ctx, l)
	})
	if err != nil {
		return nil, err
	}
	m.log = l
	return m, nil
}

// Close releases the Import, but not the connections.
func (m *Import) Close() error { return m.log.Close() }

// adopt turns an empty store into an unfinished copy of the memory of l, and starts a run.
func (m *Import) adopt(ctx context.Context, l *Log) error {
	a, err := l.runAdopt(ctx)
	if err != nil {
		return err
	}
	format, id := a.Text(1), a.Text(2)
	switch {
	case id != l.ID():
		return fmt.Errorf("it has another memory (%s), which was not modified; use another prefix, or remove that memory first", id)
	case format == formatVersion:
		return errors.New("it already has a finished copy of this memory; start hubs on it, or to copy again, use another prefix or remove the copy first")
	case format != formatUnfinished:
		return unknownFormat(format)
	}
	m.run = a.Number(3)
	return nil
}

// runAdopt runs adopt.lua.
func (l *Log) runAdopt(ctx context.Context, finish ...any) (a redisconn.Answer, err error) {
	err = l.write(ctx, func(t *redisconn.Try) error {
		a, err = l.runWait(t, l.scripts.adopt, []string{l.memoryKey()}, append([]any{formatUnfinished}, finish...)...)
		return err
	})
	return a, err
}

// Copy copies a memory: its identity, its sets, their entries with positions and datetimes, and
// their keys, so that the copy gives the same answers. It does not copy inventories. It copies the
// entries in full blocks. After each step, Copy calls report. It blocks until everything is copied,
// ctx is done, or an error occurs.
func (m *Import) Copy(ctx context.Context, from Source, report func(Progress)) (done Progress, err error) {
	states, err := from.Sets(ctx)
	if err != nil {
		return done, err
	}
	for _, s := range states {
		if err := m.copySet(ctx, from, s, &done, report); err != nil {
			return done, fmt.Errorf("copy set %q: %w", s.Set, err)
		}
		done.Sets++
	}
	left, err := from.Deleted(ctx)
	if err != nil {
		return done, err
	}
	for _, set := range slices.Sorted(maps.Keys(left)) {
		if err := m.copyTombstone(ctx, set, left[set]); err != nil {
			return done, err
		}
	}
	return done, nil
}

// copySet copies a set.
func (m *Import) copySet(ctx context.Context, from Source, s feed.State, done *Progress, report func(Progress)) error {
	if err := m.beginSet(ctx, s); err != nil {
		return err
	}
	for after := s.Floor; after != s.Head; {
		b, err := from.Since(ctx, s.Set, after, readLimit)
		if err != nil {
			return err
		}
		if b.Diverged || b.After != after || len(b.Entries) == 0 {
			return errors.New("set changed during the copy; stop the hub first")
		}
		if err := m.addEntries(ctx, s, after, b.Entries); err != nil {
			return err
		}
		after = b.Cursor
		done.Changes += uint64(len(b.Entries))
		report(*done)
	}
	if err := m.copyKeys(ctx, from, s.Set); err != nil {
		return err
	}
	return m.step(ctx, "done", s.Set)
}

// Sizes of the steps.
const (
	readLimit   = 10_000  // entries in one read
	addBytes    = 1 << 20 // approximate bytes of blocks in one step
	keysPerStep = 1_000   // keys in one step
	stepsPerRun = 1e9     // maximum number of steps; a step's number is run*stepsPerRun plus the number in the run
)

// step executes a step of import.lua on a set. It can be repeated.
func (m *Import) step(ctx context.Context, step, set string, args ...any) error {
	m.steps++
	number := m.run*stepsPerRun + m.steps
	err := m.log.write(ctx, func(t *redisconn.Try) error {
		a, err := m.log.runWait(t, m.log.scripts.imports, m.log.allKeys(set), append([]any{number, step}, args...)...)
		if err != nil {
			return err
		}
		if a.Word() != "ok" {
			return refuse("%w", errBusy)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s set %q of a copy: %w", step, set, err)
	}
	return nil
}

var errBusy = errors.New("another program writes to the copy, perhaps another rshub copy")

// beginSet creates a set without entries and keys, and removes data of an earlier run.
func (m *Import) beginSet(ctx context.Context, s feed.State) error {
	if err := m.addName(ctx, s.Set); err != nil {
		return err
	}
	return m.step(ctx, "begin", s.Set, s.ListSize, s.Title, s.DescribedBy, s.ChangeList, s.Begin, s.Floor.String(), s.BeforeLatest.String(), s.PriorMicros, encodeMore(s.Description))
}

// addName adds the name of a set to the names of all sets. It must precede the creation of the set,
// so that every set has its name there.
func (m *Import) addName(ctx context.Context, set string) error {
	err := m.log.write(ctx, func(t *redisconn.Try) error {
		_, err := m.log.run(t, m.log.scripts.name, []string{m.log.setsKey()}, set)
		return err
	})
	if err != nil {
		return fmt.Errorf("add name of set %q: %w", set, err)
	}
	return nil
}

// addEntries adds entries after the head of a set, which must be equal to after.
func (m *Import) addEntries(ctx context.Context, s feed.State, after feed.Cursor, entries []feed.Entry) error {
	for len(entries) > 0 {
		var blocks []any
		size, last := 0, after
		for len(entries) > 0 && size < addBytes {
			block, n := changelog.FillBlock(entries, s.ListSize)
			last = entries[n-1].Cursor
			blocks = append(blocks, append(append(last.Append(nil), ' '), block...))
			size += len(block)
			entries = entries[n:]
		}
		if err := m.step(ctx, "add", s.Set, append([]any{after.String(), last.String()}, blocks...)...); err != nil {
			return err
		}
		after = last
	}
	return nil
}

// copyKeys copies the records of the idempotency keys of a set.
func (m *Import) copyKeys(ctx context.Context, from Source, set string) error {
	var args []any
	for k, err := range from.Keys(ctx, set) {
		if err != nil {
			return err
		}
		if args = append(args, k.Number, k.Key, encodeKeyRecord(k)); len(args) == 3*keysPerStep {
			if err := m.step(ctx, "keys", set, args...); err != nil {
				return err
			}
			args = args[:0]
		}
	}
	if len(args) == 0 {
		return nil
	}
	return m.step(ctx, "keys", set, args...)
}

// encodeKeyRecord encodes a KeyRecord without its number; see known in lib.lua.
func encodeKeyRecord(k changelog.KeyRecord) []byte {
	b := append(make([]byte, 0, 100+len(k.Key)), k.Hash[:]...)
	b = append(k.After.Append(b), ' ')
	b = append(k.Cursor.Append(b), ' ')
	return append(b, k.Key...)
}

// copyTombstone removes the data of an earlier run from a set, and stores the tombstone of the
// deleted set.
func (m *Import) copyTombstone(ctx context.Context, set string, left changelog.Tombstone) error {
	if err := m.addName(ctx, set); err != nil {
		return err
	}
	if err := m.step(ctx, "delete", set, left.End, left.Latest); err != nil {
		return err
	}
	return m.step(ctx, "done", set)
}

// Inventories returns the store of the inventories of the copied sets.
func (m *Import) Inventories() inventory.Store { return m.log.Inventories() }

// Finish turns the copy into a memory that hubs can use. Only Close may be called after it.
func (m *Import) Finish(ctx context.Context) error {
	a, err := m.log.runAdopt(ctx, formatVersion, m.run)
	switch {
	case err != nil:
	case a.Text(2) == "":
		err = errors.New("data lost: Redis was emptied or restarted without its data during the copy")
	case a.Text(2) != m.log.ID():
		err = fmt.Errorf("another memory (%s) has replaced it during the copy", a.Text(2))
	case a.Text(1) != formatVersion || a.Number(3) != m.run:
		err = errBusy
	}
	if err != nil {
		return fmt.Errorf("finish the copy: %w", err)
	}
	return nil
}
