package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A State is the part of a log that Beside needs.
type State interface {
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Beside adds the conditions on a log to a store without one, such as inventory.Memory. In that store, each log
// of a set has its own name. The log and the store are read in two steps.
func Beside(s inventory.Store, log State) inventory.Store { return &beside{s, log} }

type beside struct {
	store inventory.Store
	log   State
}

func name(set string, begin int64) string { return fmt.Sprintf("%s@%d", set, begin) }

// check returns inventory.ErrLog unless the log of a set began at begin.
func (b *beside) check(ctx context.Context, set string, begin int64) error {
	state, err := b.log.State(ctx, set)
	if err == nil && state.Begin != begin {
		err = inventory.ErrLog
	}
	return err
}

func (b *beside) Load(ctx context.Context, set string) (inventory.Record, error) {
	state, err := b.log.State(ctx, set)
	if err != nil {
		return inventory.Record{}, err
	}
	r, err := b.store.Load(ctx, name(set, state.Begin))
	r.Log = state
	return r, err
}

func (b *beside) Update(ctx context.Context, set string, u inventory.Update) error {
	state, err := b.log.State(ctx, set)
	if err != nil {
		return err
	}
	change := u.Change
	u.Change = func(r *inventory.Record) error {
		r.Log = state
		if err := change(r); err != nil || u.At.IsZero() {
			return err
		}
		held, err := b.log.At(ctx, set, u.At.Position)
		if errors.Is(err, feed.ErrGone) || errors.Is(err, resourcesync.ErrInvalid) || err == nil && held != u.At {
			err = inventory.ErrLog
		}
		return err
	}
	return b.store.Update(ctx, name(set, state.Begin), u)
}

func (b *beside) Put(ctx context.Context, set string, begin int64, term uint64, pages []inventory.Page) error {
	if err := b.check(ctx, set, begin); err != nil {
		return err
	}
	return b.store.Put(ctx, name(set, begin), 0, term, pages)
}

func (b *beside) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	if b.check(ctx, set, begin) != nil {
		return make([][]byte, len(numbers)), nil
	}
	return b.store.Get(ctx, name(set, begin), 0, numbers)
}

func (b *beside) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	if b.check(ctx, set, begin) != nil {
		return nil
	}
	return b.store.Remove(ctx, name(set, begin), 0, term, numbers)
}

func (b *beside) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	if b.check(ctx, set, begin) != nil {
		return func(func(uint64, error) bool) {}
	}
	return b.store.Numbers(ctx, name(set, begin), 0)
}
