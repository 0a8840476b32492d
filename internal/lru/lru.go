// Package lru caches values by key, bounded by their total size. If they exceed it, the least
// recently used are dropped.
//
// It does not compute values: package internal/flight does so once for concurrent callers.
package lru

import (
	"container/list"
	"sync"
)

// A Cache is a bounded number of values. Values are shared, so nobody may change them. Its
// methods may be called concurrently.
type Cache[K comparable, V any] struct {
	max int64

	mu    sync.Mutex
	size  int64
	items map[K]*list.Element // of order
	order list.List           // of *item[K, V], the last used first
}

type item[K comparable, V any] struct {
	key  K
	v    V
	size int64
}

// New returns a Cache of values with at most max bytes together.
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

// Add keeps the value of a key, and replaces an earlier value. A value that is larger
// than the whole cache is not kept.
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

// Remove drops the value of a key, if there is one.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.dropLocked(e)
	}
}

// Clear drops all values.
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
