package live

import (
	"context"
	"sync"

	"github.com/rshub/rshub/inventory"
)

// A breaking is a Store that takes no writes while it has an error.
type breaking struct {
	inventory.Store
	mu  sync.Mutex
	err error
}

func (b *breaking) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *breaking) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *breaking) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	if err := b.broken(); err != nil {
		return err
	}
	return b.Store.Put(ctx, set, begin, attempt, pages)
}

func (b *breaking) Swap(ctx context.Context, set string, s inventory.Swap) error {
	if err := b.broken(); err != nil {
		return err
	}
	return b.Store.Swap(ctx, set, s)
}
