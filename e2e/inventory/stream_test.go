package inventory

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// A stream publishes changes and deletions of its own resources through several hubs
// concurrently. It updates truth before it publishes.
type stream struct {
	*source

	mu      sync.Mutex
	truth   sourcetest.Set // state of the source
	stopped bool           // whether publishing has stopped
}

func newStream(set string) *stream {
	return &stream{source: newSource(set), truth: sourcetest.Set{}}
}

// stop stops publishing after the batches in progress.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// batch returns at most most random changes of the resources with a number, and applies them to truth.
func (s *stream) batch(r *rand.Rand, number, most int) (changes []resourcesync.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	for range min(most, 1+r.IntN(60)) {
		c := resource(fmt.Sprintf("https://example.org/busy/%d/%d", number, r.IntN(2_000)), r.Uint64())
		if r.IntN(4) == 0 {
			c = deleted(c.Loc)
		}
		changes = append(changes, c)
		s.truth.Add(feed.Entry{Change: c})
	}
	return changes
}

// run publishes n changes, and closes done when all were accepted. Each resource is published at
// one hub only. It stops with the test.
func (s *stream) run(t *testing.T, seed uint64, n int, hubs []*hubtest.Hub) (done chan struct{}) {
	done = make(chan struct{})
	var wg sync.WaitGroup
	for i, h := range hubs {
		c := newClient(t, h)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for left := n / len(hubs); left > 0; {
				changes := s.batch(r, i, left)
				if len(changes) == 0 {
					return
				}
				if err := s.send(c, changes); err != nil {
					t.Error(err)
					return
				}
				left -= len(changes)
			}
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		s.stop()
		<-done
	})
	return done
}
