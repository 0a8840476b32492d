// Package flight computes a value once if several callers request it at the same time.
//
// It caches nothing: a later call computes the value again. Package internal/lru is the cache.
package flight

import (
	"context"
	"sync"
)

// A Group makes values by key. Its zero value is ready, and must not be copied
// after its first use.
type Group[K comparable, V any] struct {
	mu    sync.Mutex
	flights map[K]*flight[V] // the values that are being made
}

// A flight is a value that one caller makes and others wait for. Its maker sets v,
// err and landed before it closes done; the others read them after that.
type flight[V any] struct {
	done   chan struct{}
	v      V
	err    error
	shared bool // v and err count for all callers, not only for the maker
}

// Do returns what build returns. It calls build, unless another call for the same key is
// under way. Then it waits for the result of that call. If ctx is done first, it returns
// the cause of ctx.
//
// If build panics, or fails after its own call's ctx is done, the result counts only for
// that call. One of the waiting calls then calls its own build. Do does not catch the
// panic.
func (g *Group[K, V]) Do(ctx context.Context, key K, build func() (V, error)) (V, error) {
	for {
		f, mine := g.join(key)
		if mine {
			return g.run(ctx, key, f, build)
		}
		select {
		case <-f.done:
			if f.shared {
				return f.v, f.err
			}
		case <-ctx.Done():
			var zero V
			return zero, context.Cause(ctx)
		}
	}
}

// join returns the flight of a key. If there is none, join makes one, and mine is true:
// the caller must call fly.
func (g *Group[K, V]) join(key K) (f *flight[V], mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f, ok := g.flights[key]; ok {
		return f, false
	}
	if g.flights == nil {
		g.flights = map[K]*flight[V]{}
	}
	f = &flight[V]{done: make(chan struct{})}
	g.flights[key] = f
	return f, true
}

// run makes the value of a flight, and wakes those who wait for it.
func (g *Group[K, V]) run(ctx context.Context, key K, f *flight[V], build func() (V, error)) (V, error) {
	defer func() { // also when build panics
		g.mu.Lock()
		delete(g.flights, key)
		g.mu.Unlock()
		close(f.done)
	}()
	f.v, f.err = build()
	f.shared = f.err == nil || ctx.Err() == nil
	return f.v, f.err
}
