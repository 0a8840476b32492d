package callback

import (
	"context"
	"errors"
	"sync"
)

// flights are what is being made, by what it is made for. Who wants the same
// waits for it.
type flights[K comparable, V any] struct {
	mu    sync.Mutex
	under map[K]*flight[V]
}

type flight[V any] struct {
	done chan struct{} // closed when made and err are there
	made V
	err  error
}

// do returns what doing returns, or what somebody else's that is under way does.
// When that one was cancelled, a waiting one does it himself.
func (f *flights[K, V]) do(ctx context.Context, key K, doing func() (V, error)) (made V, err error) {
	for {
		f.mu.Lock()
		other := f.under[key]
		if other == nil {
			break
		}
		f.mu.Unlock()
		select {
		case <-other.done:
			if !errors.Is(other.err, context.Canceled) {
				return other.made, other.err
			}
		case <-ctx.Done():
			return made, context.Cause(ctx)
		}
	}
	if f.under == nil {
		f.under = map[K]*flight[V]{}
	}
	own := &flight[V]{done: make(chan struct{})}
	f.under[key] = own
	f.mu.Unlock()

	own.made, own.err = doing()
	f.mu.Lock()
	delete(f.under, key)
	f.mu.Unlock()
	close(own.done)
	return own.made, own.err
}
