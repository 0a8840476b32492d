package redislog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

// Make makes a set. It notices when Redis was emptied since Open.
func (l *Log) Make(ctx context.Context, set string, d changelog.Description, listSize int) error {
	if err := l.make(ctx, set, d, listSize); err != nil {
		return fmt.Errorf("make set %q: %w", set, err)
	}
	return nil
}

func (l *Log) make(ctx context.Context, set string, d changelog.Description, listSize int) error {
	if err := changelog.CheckSet(set); err != nil {
		return err
	}
	if listSize < 1 || listSize > changelog.MaxListSize {
		return changelog.Invalid("a list size is 1 to %d, not %d", changelog.MaxListSize, listSize)
	}
	for range tries {
		if _, err := l.same(ctx, ""); err != nil {
			return err
		}
		id := l.ID()
		made, err := l.makeHere(ctx, set, d, listSize)
		if err != nil {
			return err
		}
		// Redis may have been emptied between, and another memory begun: then the set
		// that was made there has the wrong identity, and is removed again.
		if _, err := l.same(ctx, ""); err != nil || l.ID() == id {
			return err
		}
		if made {
			if err := l.unmake(ctx, set, id); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: its memory is replaced again and again", changelog.ErrUnavailable)
}

// makeHere makes a set in the memory that is thought to be there, and reports
// whether there was none.
func (l *Log) makeHere(ctx context.Context, set string, d changelog.Description, listSize int) (made bool, err error) {
	// The name comes first, so that there is no set without one. It is never
	// removed: that could meet a new set of the name.
	err = l.do(ctx, new(call), func(ctx context.Context) error {
		if _, err := l.ask(ctx, l.scripts.name, []string{l.setsKey()}, set); err != nil { // replicas are waited for below
			return err
		}
		reply, err := l.tell(ctx, l.scripts.make, l.keys(set), listSize, d.Title, d.DescribedBy, d.ChangeList)
		made = reply.number(1) == 1
		return err
	})
	return made, err
}

// unmake deletes a set that has an identity which is no longer the log's.
func (l *Log) unmake(ctx context.Context, set, id string) error {
	args := l.common()
	args[0] = id
	return l.do(ctx, new(call), func(ctx context.Context) error {
		_, err := l.tellAll(ctx, l.scripts.delete, l.keys(set), args)
		if _, other := errors.AsType[otherError](err); other || errors.Is(err, changelog.ErrNoSet) {
			return nil // it is not there, or is made as it should be
		}
		return err
	})
}

// Describe replaces a set's description.
func (l *Log) Describe(ctx context.Context, set string, d changelog.Description) error {
	err := l.do(ctx, new(call), func(ctx context.Context) error {
		_, err := l.tell(ctx, l.scripts.describe, l.keys(set), d.Title, d.DescribedBy, d.ChangeList)
		return err
	})
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set. Of it remain its name, and the datetime of its head, so
// that a set made again under its name begins later.
func (l *Log) Delete(ctx context.Context, set string) error {
	c := new(call)
	deleted := false
	err := l.do(ctx, c, func(ctx context.Context) error {
		if !deleted {
			_, err := l.tell(ctx, l.scripts.delete, l.keys(set))
			if err != nil && !(errors.Is(err, changelog.ErrNoSet) && c.lost.Load()) { // else an earlier try did it
				return err
			}
			deleted = true
		}
		_, err := l.ask(ctx, l.scripts.sweep, l.keys(set))
		return err
	})
	if err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	l.forget(set)
	return nil
}

// State returns what a set is now.
func (l *Log) State(ctx context.Context, set string) (changelog.State, error) {
	s, err := l.state(ctx, set)
	if err != nil {
		return changelog.State{}, fmt.Errorf("state of set %q: %w", set, err)
	}
	return s, nil
}

func (l *Log) state(ctx context.Context, set string) (s changelog.State, err error) {
	err = l.read(ctx, func(ctx context.Context) error {
		values, err := l.client.HMGet(ctx, l.setKey(set), stateFields...).Result()
		if err != nil {
			return err
		}
		if s, err = l.decodeState(set, values); err != nil {
			return refusal{err}
		}
		return nil
	})
	return s, err
}
