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

// Beside puts a store that knows no log beside one, as the stores of the change memories
// are. Each log of a set has a name of its own in the store. A look at the log and what
// follows in the store are two steps.
func Beside(s inventory.Store, log State) inventory.Store { return &beside{s, log} }

type beside struct {
	store inventory.Store
	log   State
}

func name(set string, begin int64) string { return fmt.Sprintf("%s@%d", set, begin) }

// is reports whether the log of a set began at begin.
func (b *beside) is(ctx context.Context, set string, begin int64) bool {
	state, err := b.log.State(ctx, set)
	return err == nil && state.Begin == begin
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

func (b *beside) Swap(ctx context.Context, set string, w inventory.Swap) error {
	if state, err := b.log.State(ctx, set); err != nil || state.Begin != w.Begin {
		return errors.Join(err, inventory.ErrLog)
	}
	if !w.At.IsZero() {
		held, err := b.log.At(ctx, set, w.At.Position)
		if errors.Is(err, feed.ErrGone) || errors.Is(err, resourcesync.ErrInvalid) || err == nil && held != w.At {
			return inventory.ErrLog
		}
		if err != nil {
			return err
		}
	}
	stored := name(set, w.Begin)
	w.Begin = 0
	return b.store.Swap(ctx, stored, w)
}

func (b *beside) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	if !b.is(ctx, set, begin) {
		return inventory.ErrRaced
	}
	return b.store.Put(ctx, name(set, begin), 0, attempt, pages)
}

func (b *beside) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	if !b.is(ctx, set, begin) {
		return make([][]byte, len(numbers)), nil
	}
	return b.store.Get(ctx, name(set, begin), 0, numbers)
}

func (b *beside) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	if !b.is(ctx, set, begin) {
		return nil
	}
	return b.store.Remove(ctx, name(set, begin), 0, numbers)
}

func (b *beside) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	if !b.is(ctx, set, begin) {
		return func(func(uint64, error) bool) {}
	}
	return b.store.Numbers(ctx, name(set, begin), 0)
}
