package inventory

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A stream publishes changes of its own resources through several hubs at once,
// deletions among them. What it changes is true before the hub knows it.
type stream struct {
	*source

	mu    sync.Mutex
	truth fold // what the source itself holds
	over  bool // nothing more is to be published
}

// end lets what is under way be answered, and publishes nothing more.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// run publishes n changes, and closes done when all were accepted. No two hubs get
// changes of one resource at a time. It ends with the test.
func (s *stream) run(t *testing.T, seed uint64, n int, hubs []*hubtest.Hub) (done chan struct{}) {
	batches := make([]func() [][]byte, len(hubs))
	for i := range hubs {
		r, left := rand.New(rand.NewPCG(seed, uint64(i))), n/len(hubs)
		batches[i] = func() (lines [][]byte) {
			batch := min(left, 1+r.IntN(60))
			left -= batch
			for range batch {
				loc := fmt.Sprintf("https://example.org/busy/%d/%d", i, r.IntN(1+min(n, 30_000)/10))
				lines = append(lines, resourceLine(loc, []string{"created", "updated", "updated", "deleted"}[r.IntN(4)], r.Uint64()))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, text := range lines {
				s.truth.apply(parseLine(text))
			}
			return lines
		}
	}
	return s.publishing(t, hubs, batches...)
}

// replay publishes lines, one after the other, through several hubs in turn.
func (s *stream) replay(t *testing.T, r *rand.Rand, lines [][]byte, hubs []*hubtest.Hub) (done chan struct{}) {
	mine := rand.New(rand.NewPCG(r.Uint64(), 0))
	return s.publishing(t, hubs, func() [][]byte {
		batch := lines[:min(len(lines), 1+mine.IntN(100))]
		lines = lines[len(batch):]
		return batch
	})
}

// publishing publishes batches until there are no more, those of each function one after
// the other, through the hubs in turn.
func (s *stream) publishing(t *testing.T, hubs []*hubtest.Hub, batches ...func() [][]byte) (done chan struct{}) {
	done = make(chan struct{})
	var wg sync.WaitGroup
	for i, next := range batches {
		wg.Go(func() {
			for n := i; !s.ended(); n++ {
				lines := next()
				if len(lines) == 0 {
					return
				}
				if err := s.send(hubs[n%len(hubs)], lines); err != nil {
					t.Error(err)
					return
				}
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
