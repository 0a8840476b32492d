// Package flight computes a value once if several callers request it at the same time.
//
// It caches nothing: a later call computes the value again. Package internal/lru is the cache.
package flight

import (
	"context"
	"sync"
)

// A Group computes values by key. Its zero value is ready to use. It must not be copied after first
// use.
type Group[K comparable, V any] struct {
	mu      sync.Mutex
	flights map[K]*flight[V] // values being computed
}

// A flight is a value that one caller computes while others wait for it. The computing caller sets
// v, err and shared before it closes done; the others read them afterwards.
type flight[V any] struct {
	done   chan struct{}
	v      V
	err    error
	shared bool // whether v and err are valid for all callers, not only for the one that computed them
}

// Do returns the result of build. If a call for the same key is in progress, Do waits for its
// result instead of calling build. If ctx is done first, it returns the cause of ctx.
//
// If build panics, or fails after its own call's ctx is done, only that call gets the result, and
// one of the waiting calls calls its own build. Do does not recover the panic.
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

// join returns the flight of a key. If there is none, join creates one and returns true: the caller
// must call run.
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

// run computes the value of a flight, and wakes the waiting callers.
func (g *Group[K, V]) run(ctx context.Context, key K, f *flight[V], build func() (V, error)) (V, error) {
	defer func() { // even if build panics
		g.mu.Lock()
		delete(g.flights, key)
		g.mu.Unlock()
		close(f.done)
	}()
	f.v, f.err = build()
	f.shared = f.err == nil || ctx.Err() == nil
	return f.v, f.err
}
