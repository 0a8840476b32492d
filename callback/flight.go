package callback

import (
	"context"
	"errors"
	"sync"

	"github.com/rshub/rshub/changelog"
)

// flights are the reads of one set that are under way. Who wants what is being
// read already waits for it.
type flights struct {
	mu    sync.Mutex
	under map[changelog.Cursor]*flight
}

type flight struct {
	done chan struct{} // closed when page and err are there
	page *page
	err  error
}

// do returns what read returns, or what the same read by somebody else does.
// When the reader was cancelled, a waiting one reads for itself.
func (f *flights) do(ctx context.Context, after changelog.Cursor, read func() (*page, error)) (*page, error) {
	for {
		f.mu.Lock()
		other := f.under[after]
		if other == nil {
			break
		}
		f.mu.Unlock()
		select {
		case <-other.done:
			if !errors.Is(other.err, context.Canceled) {
				return other.page, other.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if f.under == nil {
		f.under = map[changelog.Cursor]*flight{}
	}
	own := &flight{done: make(chan struct{})}
	f.under[after] = own
	f.mu.Unlock()

	own.page, own.err = read()
	f.mu.Lock()
	delete(f.under, after)
	f.mu.Unlock()
	close(own.done)
	return own.page, own.err
}
