// Package lru caches values by key, bounded by their total size. If they exceed it, the least
// recently used values are evicted.
//
// It does not compute values: package internal/flight does so once for concurrent callers.
package lru

import (
	"container/list"
	"sync"
)

// A Cache holds values of bounded total size. Values are shared and must not be modified. It is
// safe for concurrent use.
type Cache[K comparable, V any] struct {
	max int64

	mu    sync.Mutex
	size  int64
	items map[K]*list.Element // elements of order
	order list.List           // values of type *item[K, V], most recently used first
}

type item[K comparable, V any] struct {
	key  K
	v    V
	size int64
}

// New returns a Cache of values with a total size of at most max bytes.
func New[K comparable, V any](max int64) *Cache[K, V] {
	return &Cache[K, V]{max: max, items: map[K]*list.Element{}}
}

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*item[K, V]).v, true
}

// Add adds a value, and replaces an earlier value of the key. A value larger than the whole cache
// is not cached.
func (c *Cache[K, V]) Add(key K, v V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.dropLocked(e)
	}
	if size > c.max {
		return
	}
	c.items[key] = c.order.PushFront(&item[K, V]{key, v, size})
	c.size += size
	for c.size > c.max {
		c.dropLocked(c.order.Back())
	}
}

// Remove removes the value of a key, if there is one.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.dropLocked(e)
	}
}

// Clear removes all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.items)
	c.order.Init()
	c.size = 0
}

func (c *Cache[K, V]) dropLocked(e *list.Element) {
	i := c.order.Remove(e).(*item[K, V])
	delete(c.items, i.key)
	c.size -= i.size
}
