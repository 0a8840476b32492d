package documents

import (
	"context"

	"github.com/rshub/rshub/internal/flight"
	"github.com/rshub/rshub/internal/lru"
)

// A cache keeps values by key, and lets only one call at a time make the value of a key.
type cache[V any] struct {
	*lru.Cache[string, V]
	making flight.Group[string, V]
}

func newCache[V any](max int64) *cache[V] { return &cache[V]{Cache: lru.New[string, V](max)} }

// do returns the value of key. If the cache does not have it, build makes it. Other calls
// for the same key wait meanwhile, each until its ctx is done.
func (c *cache[V]) do(ctx context.Context, key string, build func() (v V, size int64, err error)) (V, error) {
	if v, ok := c.Get(key); ok {
		return v, nil
	}
	return c.making.Do(ctx, key, func() (V, error) {
		if v, ok := c.Get(key); ok { // another call has built it meanwhile
			return v, nil
		}
		v, size, err := build()
		if err == nil {
			c.Add(key, v, size)
		}
		return v, err
	})
}
