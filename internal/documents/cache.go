package documents

import (
	"context"

	"github.com/rshub/rshub/internal/flight"
	"github.com/rshub/rshub/internal/lru"
)

// A cache is an LRU cache that computes the value of a key only once at a time.
type cache[V any] struct {
	*lru.Cache[string, V]
	flights flight.Group[string, V]
}

func newCache[V any](max int64) *cache[V] { return &cache[V]{Cache: lru.New[string, V](max)} }

// do returns the value of key, which build computes if the cache does not have it. Concurrent calls for
// the same key wait for the result, each until its ctx is done.
func (c *cache[V]) do(ctx context.Context, key string, build func() (v V, size int64, err error)) (V, error) {
	if v, ok := c.Get(key); ok {
		return v, nil
	}
	return c.flights.Do(ctx, key, func() (V, error) {
		if v, ok := c.Get(key); ok { // another call has just computed it
			return v, nil
		}
		v, size, err := build()
		if err == nil {
			c.Add(key, v, size)
		}
		return v, err
	})
}
