package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/inventory"
)

// An Import is a changelog.Importer into a Redis. If two Imports work on the same
// copy, only the one that was opened last can go on: the steps of the other fail.
type Import struct {
	log   *Log
	run   int64 // each Import of a copy has a higher number than the one before
	steps int64 // how many steps this one has begun
}

var _ changelog.Importer = (*Import)(nil)

// OpenImport opens a Redis that is to hold a copy of the memory with the identity id
// behind the prefix. It goes on with an unfinished copy of that memory. It returns
// changelog.ErrCopied for a finished copy, and another error for anything else, which
// it does not change. It refuses the same servers as Open. The caller closes conn,
// after the last call of the Import.
func OpenImport(ctx context.Context, conn *redisconn.Conn, id string, opts Options) (*Import, error) {
	m := &Import{}
	l, err := open(ctx, conn, opts, func(l *Log) error {
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

// adopt makes an empty store an unfinished copy of the memory of l, or goes on with
// such a copy.
func (m *Import) adopt(ctx context.Context, l *Log) error {
	a, err := l.runAdopt(ctx)
	if err != nil {
		return err
	}
	format, held := a.Text(1), a.Text(2)
	switch {
	case held != l.ID() && format == formatUnfinished:
		return fmt.Errorf("it has an unfinished copy of another memory (%s), and nothing was changed: choose another prefix, or remove that one first", held)
	case held != l.ID():
		return fmt.Errorf("it has another memory (%s), and nothing was changed: choose another prefix, or remove that one first", held)
	case format == formatVersion:
		return changelog.ErrCopied
	case format != formatUnfinished:
		return unknownFormat(format)
	}
	m.run = a.Number(3)
	return nil
}

// runAdopt runs adopt.lua.
func (l *Log) runAdopt(ctx context.Context, finish ...any) (a redisconn.Answer, err error) {
	err = l.write(ctx, func(t *redisconn.Try) error {
		a, err = l.tell(t, l.scripts.adopt, []string{l.memoryKey()}, append([]any{formatUnfinished}, finish...)...)
		return err
	})
	return a, err
}

// Sets returns what the store holds so far.
func (m *Import) Sets(ctx context.Context) ([]feed.State, error) {
	states, err := m.log.states(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the sets of an unfinished copy: %w", err)
	}
	slices.SortFunc(states, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	return states, nil
}

// stepsOfRun is how many steps a run may have: a step's number is the run's times this,
// and its own.
const stepsOfRun = 1e9

// step runs one step of import.lua on a set.
func (m *Import) step(ctx context.Context, step, set string, args ...any) error {
	m.steps++
	number := m.run*stepsOfRun + m.steps
	err := m.log.write(ctx, func(t *redisconn.Try) error {
		a, err := m.log.tell(t, m.log.scripts.imports, m.log.allKeys(set), append([]any{number, step}, args...)...)
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

var errBusy = errors.New("another process is writing to it, perhaps another rshub copy")

// Begin makes a set, see changelog.Importer.
func (m *Import) Begin(ctx context.Context, s feed.State, after feed.Cursor) error {
	if err := feed.CheckLog(s.Set); err != nil {
		return err
	}
	if after == s.Floor {
		held, err := m.log.state(ctx, s.Set)
		if err == nil {
			err = m.Deleted(ctx, s.Set, changelog.Left{Upto: held.Head.Micros, Ever: held.Head.Micros})
		}
		if err != nil && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
	}
	if err := m.name(ctx, s.Set); err != nil {
		return err
	}
	return m.step(ctx, "begin", s.Set, s.ListSize, s.Title, s.DescribedBy, s.ChangeList, s.Begin, s.Floor.String(), s.Latest.String(), after.String(), s.Was, string(s.Epochs), moreOf(s.Description))
}

// name adds the name of a set to the names of all sets. It comes before the set is
// made, so that no set is without a name.
func (m *Import) name(ctx context.Context, set string) error {
	err := m.log.write(ctx, func(t *redisconn.Try) error {
		_, err := m.log.ask(t, m.log.scripts.name, []string{m.log.setsKey()}, set)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the name of set %q: %w", set, err)
	}
	return nil
}

// Inventories returns the store of the inventories of the copy.
func (m *Import) Inventories() inventory.Store { return m.log.Inventories() }

// Add adds blocks behind the head of a set, which must be after.
func (m *Import) Add(ctx context.Context, set string, after feed.Cursor, blocks []changelog.PlacedBlock) error {
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

// Deleted removes a set, and notes what it left for a new set of the same name.
func (m *Import) Deleted(ctx context.Context, set string, left changelog.Left) error {
	if err := feed.CheckLog(set); err != nil {
		return err
	}
	if err := m.name(ctx, set); err != nil {
		return err
	}
	begin := ""
	switch held, err := m.log.state(ctx, set); {
	case err == nil:
		begin = strconv.FormatInt(held.Begin, 10)
	case !errors.Is(err, feed.ErrNoSet):
		return err
	}
	if err := m.step(ctx, "delete", set, left.Upto, left.Ever, begin); err != nil {
		return err
	}
	return m.log.write(ctx, func(t *redisconn.Try) error {
		_, err := m.log.tell(t, m.log.scripts.sweep, m.log.allKeys(set))
		return err
	})
}

// Finish makes the store a memory.
func (m *Import) Finish(ctx context.Context) error {
	a, err := m.log.runAdopt(ctx, formatVersion, m.run)
	switch {
	case err != nil:
	case a.Text(2) == "":
		err = errors.New("meanwhile Redis was emptied, or restarted without its data")
	case a.Text(2) != m.log.ID():
		err = fmt.Errorf("meanwhile another memory (%s) has replaced it", a.Text(2))
	case a.Text(1) != formatVersion || a.Number(3) != m.run:
		err = errBusy
	}
	if err != nil {
		return fmt.Errorf("finish the copy: %w", err)
	}
	return nil
}

// Close does nothing: the connections belong to the caller of OpenImport.
func (m *Import) Close() error { return m.log.Close() }
