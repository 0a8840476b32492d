package inventory

import "github.com/rshub/rshub/internal/lru"

// A Cache has pages that were read, bounded in bytes: inner pages, and leaves in which single resources were
// looked up. Its methods may be called concurrently.
//
// A page never changes and a number is never used twice, so a Cache is never out of date.
type Cache struct {
	pages *lru.Cache[cacheKey, any] // *inner or page.Leaf
}

// A cacheKey identifies a page of any set and store.
type cacheKey struct {
	store  Store
	set    string
	begin  int64
	number uint64
}

// NewCache returns a cache of a maximum size in bytes.
func NewCache(bytes int) *Cache { return &Cache{lru.New[cacheKey, any](int64(bytes))} }

// get returns a page, or nil.
func (c *Cache) get(k cacheKey) any {
	page, _ := c.pages.Get(k)
	return page
}

// put adds a page of a size in bytes.
func (c *Cache) put(k cacheKey, page any, size int) {
	c.pages.Add(k, page, int64(size)+200) // the key, and the cache's own
}
