package inventory

import "github.com/rshub/rshub/internal/lru"

// A Cache keeps pages that were read, bounded in bytes: inner pages, and the leaves that
// single resources were looked up in. Its methods may be called concurrently.
//
// A page never changes and a number is never used twice, so what is in a Cache is never
// out of date.
type Cache struct {
	pages *lru.Cache[cacheKey, any] // *inner or page.Leaf
}

// A cacheKey names a page among those of all sets and stores.
type cacheKey struct {
	store  Store
	set    string
	begin  int64
	number uint64
}

// NewCache returns a cache of at most so many bytes.
func NewCache(bytes int) *Cache { return &Cache{lru.New[cacheKey, any](int64(bytes))} }

// get returns a page, or nil.
func (c *Cache) get(k cacheKey) any {
	page, _ := c.pages.Get(k)
	return page
}

// put keeps a page that takes so many bytes.
func (c *Cache) put(k cacheKey, page any, size int) {
	c.pages.Add(k, page, int64(size)+200) // the key, and the cache's own
}
