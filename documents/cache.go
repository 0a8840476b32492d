package documents

import (
	"container/list"
	"context"
	"sync"

	"github.com/rshub/rshub/internal/flight"
)

// A cache keeps values by key. When their total size is larger than max, it
// drops those that were not used for the longest time. Values are shared, so
// nobody may change them.
type cache[V any] struct {
	max    int64
	making flight.Group[string, V]

	mu    sync.Mutex
	size  int64
	items map[string]*list.Element // elements of order
	order list.List                // of *cached[V], the last used first
}

type cached[V any] struct {
	key  string
	v    V
	size int64
}

func newCache[V any](max int64) *cache[V] {
	return &cache[V]{max: max, items: make(map[string]*list.Element)}
}

// do returns the value of key. If the cache does not have it, build makes it.
// Only one call at a time builds the value of a key; the other calls wait for
// it, each until its ctx is done.
func (c *cache[V]) do(ctx context.Context, key string, build func() (v V, size int64, err error)) (V, error) {
	if v, ok := c.get(key); ok {
		return v, nil
	}
	return c.making.Do(ctx, key, func() (V, error) {
		if v, ok := c.get(key); ok { // another call has built it meanwhile
			return v, nil
		}
		v, size, err := build()
		if err == nil {
			c.add(key, v, size)
		}
		return v, err
	})
}

// get returns the value of key, and marks it as used.
func (c *cache[V]) get(key string) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached[V]).v, true
}

// add keeps v, unless v alone is larger than max.
func (c *cache[V]) add(key string, v V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.dropLocked(e)
	}
	if size > c.max {
		return
	}
	c.items[key] = c.order.PushFront(&cached[V]{key, v, size})
	c.size += size
	for c.size > c.max {
		c.dropLocked(c.order.Back())
	}
}

// dropLocked drops a value while mu is held.
func (c *cache[V]) dropLocked(e *list.Element) {
	item := c.order.Remove(e).(*cached[V])
	delete(c.items, item.key)
	c.size -= item.size
}
