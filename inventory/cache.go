package inventory

import (
	"container/list"
	"sync"
)

// A Cache keeps pages that were read, bounded in bytes: inner pages, and the leaves that
// single resources were looked up in. Its methods may be called concurrently.
//
// A page never changes and a number is never used twice, so what is in a Cache is never
// out of date.
type Cache struct {
	room int

	mu    sync.Mutex
	used  int                        // bytes
	pages map[cacheKey]*list.Element // of *cached
	order *list.List                 // the page that was used last in front
}

// A cacheKey names a page among those of all sets and stores.
type cacheKey struct {
	store  Store
	set    string
	begin  int64
	number uint64
}

type cached struct {
	key  cacheKey
	page any // *inner or page.Leaf
	size int
}

// NewCache returns a cache of at most so many bytes.
func NewCache(bytes int) *Cache {
	return &Cache{room: bytes, pages: map[cacheKey]*list.Element{}, order: list.New()}
}

// get returns a page, or nil.
func (c *Cache) get(k cacheKey) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pages[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).page
}

// put keeps a page that takes so many bytes, and drops those that were not used longest.
func (c *Cache) put(k cacheKey, page any, size int) {
	size += 200 // the key, and the cache's own
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages[k] != nil || size > c.room {
		return
	}
	c.pages[k] = c.order.PushFront(&cached{k, page, size})
	c.used += size
	for c.used > c.room {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.pages, last.key)
		c.used -= last.size
	}
}
