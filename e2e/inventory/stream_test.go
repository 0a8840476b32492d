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

// A stream publishes changes of its own resources through several hubs at once,
// deletions among them. What it changes is true before the hub knows it.
type stream struct {
	*source

	mu    sync.Mutex
	truth sourcetest.Set // what the source itself holds
	over  bool           // nothing more is to be published
}

func newStream(set string) *stream {
	return &stream{source: newSource(set), truth: sourcetest.Set{}}
}

// end lets what is under way be answered, and publishes nothing more.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// batch makes changes of resources that have a number, and so they come to be true.
func (s *stream) batch(r *rand.Rand, number, most int) (changes []resourcesync.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
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

// run publishes n changes, and closes done when all were accepted. No two hubs get
// changes of one resource at a time. It ends with the test.
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
		s.end()
		<-done
	})
	return done
}
