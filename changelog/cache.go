package changelog

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// A cache keeps values by key up to a total size, and drops what was not used
// for the longest time. Values are shared and read-only.
type cache[V any] struct {
	max int64

	mu     sync.Mutex
	size   int64
	items  map[string]*list.Element // of order
	order  list.List                // of *cached[V], the last used first
	making map[string]*making[V]
}

type cached[V any] struct {
	key  string
	v    V
	size int64
}

// making is a value that somebody makes and others wait for.
type making[V any] struct {
	done chan struct{} // closed when v and err are there
	v    V
	err  error
}

// errAbandoned means that whoever made a value went away before it was made,
// which is no error of the value's.
var errAbandoned = errors.New("abandoned")

func newCache[V any](max int64) *cache[V] {
	return &cache[V]{max: max, items: make(map[string]*list.Element), making: make(map[string]*making[V])}
}

// do returns the value of key, or makes it. Only one call at a time makes the
// value of a key; the others wait for it, as long as their ctx.
func (c *cache[V]) do(ctx context.Context, key string, build func() (v V, size int64, err error)) (V, error) {
	for {
		c.mu.Lock()
		if v, ok := c.lookup(key); ok {
			c.mu.Unlock()
			return v, nil
		}
		m, ok := c.making[key]
		if !ok {
			m = &making[V]{done: make(chan struct{}), err: errAbandoned}
			c.making[key] = m
			c.mu.Unlock()
			return c.make(ctx, key, m, build)
		}
		c.mu.Unlock()
		select {
		case <-m.done:
			if m.err != errAbandoned {
				return m.v, m.err
			}
		case <-ctx.Done():
			var zero V
			return zero, context.Cause(ctx)
		}
	}
}

// make makes the value that m stands for. When build panics, or fails because
// its own request has ended, m stays abandoned and a waiting call takes over.
func (c *cache[V]) make(ctx context.Context, key string, m *making[V], build func() (V, int64, error)) (V, error) {
	defer func() {
		c.mu.Lock()
		delete(c.making, key)
		c.mu.Unlock()
		close(m.done)
	}()
	v, size, err := build()
	if err == nil {
		c.add(key, v, size)
	}
	if err == nil || ctx.Err() == nil {
		m.v, m.err = v, err
	}
	return v, err
}

func (c *cache[V]) get(key string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(key)
}

// lookup is get for who holds mu.
func (c *cache[V]) lookup(key string) (v V, ok bool) {
	e, ok := c.items[key]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached[V]).v, true
}

// add keeps v, unless it is larger than everything that may be kept.
func (c *cache[V]) add(key string, v V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.drop(e)
	}
	if size > c.max {
		return
	}
	c.items[key] = c.order.PushFront(&cached[V]{key, v, size})
	c.size += size
	for c.size > c.max {
		c.drop(c.order.Back())
	}
}

func (c *cache[V]) drop(e *list.Element) {
	item := c.order.Remove(e).(*cached[V])
	delete(c.items, item.key)
	c.size -= item.size
}
