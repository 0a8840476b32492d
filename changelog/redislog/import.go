package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rshub/rshub/changelog"
)

// An Import is a changelog.Importer into a Redis. That another one is at work on
// the same copy it notices: the one that was opened last goes on.
type Import struct {
	log *Log
	run int64
}

var _ changelog.Importer = (*Import)(nil)

// OpenImport opens a Redis, see Open, where there is no memory behind the prefix,
// to become the copy of the memory with an identity. It goes on with an
// unfinished copy of that memory, says changelog.ErrCopied of a finished one, and
// refuses any other without a change.
func OpenImport(ctx context.Context, url, id string, opts Options) (*Import, error) {
	m := &Import{}
	l, err := openURL(ctx, url, opts, func(l *Log) error {
		l.id.Store(&id)
		l.fixed = true
		return m.adopt(ctx, l)
	})
	if err != nil {
		return nil, err
	}
	m.log = l
	return m, nil
}

// adopt takes an empty store for the copy of a memory, or one that was taken for
// it before.
func (m *Import) adopt(ctx context.Context, l *Log) error {
	a, err := l.runAdopt(ctx)
	if err != nil {
		return err
	}
	format, held := a.text(1), a.text(2)
	switch {
	case held != l.ID() && format == formatUnfinished:
		return fmt.Errorf("it holds an unfinished copy of another memory (%s), and was left as it is: take another prefix, or remove that one first", held)
	case held != l.ID():
		return fmt.Errorf("it holds another memory (%s), and was left as it is: take another prefix, or remove that one first", held)
	case format == formatVersion:
		return changelog.ErrCopied
	case format != formatUnfinished:
		return unknownFormat(format)
	}
	m.run = a.number(3)
	return nil
}

// runAdopt runs adopt.lua.
func (l *Log) runAdopt(ctx context.Context, finish ...any) (a answer, err error) {
	err = l.do(ctx, new(call), func(ctx context.Context) error {
		a, err = l.tell(ctx, l.scripts.adopt, []string{l.memoryKey()}, append([]any{formatUnfinished}, finish...)...)
		return err
	})
	return a, err
}

// Sets returns what the store holds by now.
func (m *Import) Sets(ctx context.Context) ([]changelog.State, error) {
	states, err := m.log.states(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the sets of an unfinished copy: %w", err)
	}
	slices.SortFunc(states, func(a, b changelog.State) int { return strings.Compare(a.Set, b.Set) })
	return states, nil
}

// step runs a step of import.lua.
func (m *Import) step(ctx context.Context, step, set string, args ...any) error {
	err := m.log.do(ctx, new(call), func(ctx context.Context) error {
		a, err := m.log.tell(ctx, m.log.scripts.imports, m.log.keys(set), append([]any{m.run, step}, args...)...)
		if err != nil {
			return err
		}
		if a.word() != "ok" {
			return refuse("%w", errBusy)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s set %q of a copy: %w", step, set, err)
	}
	return nil
}

var errBusy = errors.New("something else writes to it, perhaps another rshub copy")

// Begin makes a set.
func (m *Import) Begin(ctx context.Context, s changelog.State, after changelog.Cursor) error {
	if err := changelog.CheckSet(s.Set); err != nil {
		return err
	}
	if after == s.Floor {
		held, err := m.log.state(ctx, s.Set)
		if err == nil {
			err = m.Deleted(ctx, s.Set, held.Head.Micros)
		}
		if err != nil && !errors.Is(err, changelog.ErrNoSet) {
			return err
		}
	}
	if err := m.name(ctx, s.Set); err != nil {
		return err
	}
	return m.step(ctx, "begin", s.Set, s.ListSize, s.Title, s.DescribedBy, s.ChangeList, s.Begin, s.Floor.String(), s.Latest.String(), after.String())
}

// name keeps the name of a set, before there is one.
func (m *Import) name(ctx context.Context, set string) error {
	err := m.log.do(ctx, new(call), func(ctx context.Context) error {
		_, err := m.log.ask(ctx, m.log.scripts.name, []string{m.log.setsKey()}, set)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the name of set %q: %w", set, err)
	}
	return nil
}

// Add adds blocks to a set.
func (m *Import) Add(ctx context.Context, set string, after changelog.Cursor, blocks []changelog.PlacedBlock) error {
	args := make([]any, 0, 2+len(blocks))
	args = append(args, after.String(), blocks[len(blocks)-1].Last.String())
	for _, b := range blocks {
		value := append(b.Last.Append(make([]byte, 0, 40+len(b.Block))), ' ')
		args = append(args, append(value, b.Block...))
	}
	return m.step(ctx, "add", set, args...)
}

// AddKeys adds known publishes to a set.
func (m *Import) AddKeys(ctx context.Context, set string, keys []changelog.Known) error {
	args := make([]any, 0, 3*len(keys))
	for _, k := range keys {
		args = append(args, k.Number, k.Key, encodeKnown(k))
	}
	return m.step(ctx, "keys", set, args...)
}

// Deleted removes a set and notes what it leaves.
func (m *Import) Deleted(ctx context.Context, set string, micros int64) error {
	if err := changelog.CheckSet(set); err != nil {
		return err
	}
	if err := m.name(ctx, set); err != nil {
		return err
	}
	if err := m.step(ctx, "delete", set, micros); err != nil {
		return err
	}
	return m.log.do(ctx, new(call), func(ctx context.Context) error {
		_, err := m.log.tell(ctx, m.log.scripts.sweep, m.log.keys(set))
		return err
	})
}

// Finish makes the store a memory.
func (m *Import) Finish(ctx context.Context) error {
	a, err := m.log.runAdopt(ctx, formatVersion, m.run)
	switch {
	case err != nil:
	case a.text(2) == "":
		err = errors.New("meanwhile Redis was emptied, or restarted without its data")
	case a.text(2) != m.log.ID():
		err = fmt.Errorf("another memory (%s) has taken its place meanwhile", a.text(2))
	case a.text(1) != formatVersion || a.number(3) != m.run:
		err = errBusy
	}
	if err != nil {
		return fmt.Errorf("finish the copy: %w", err)
	}
	return nil
}

// Close releases the connections.
func (m *Import) Close() error { return m.log.Close() }
