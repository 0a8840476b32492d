package faults

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The histories are short: to check one takes time that grows exponentially with what
// is under way at the same time.
const (
	callers = 3
	things  = 7 // that each caller does
	lanes   = 6 // histories at the same time, each of a set of its own
)

// TestLinearizable records histories on two hubs, between which and Redis the connections
// are cut, and requests and answers are held until nobody waits for them any more. Each
// history must be one that a single memory could have given, which does one thing after the
// other. RSHUB_E2E_FULL makes it 1,000 histories with a seed of their own; RSHUB_E2E_SEED
// repeats the choices of a run.
func TestLinearizable(t *testing.T) {
	histories := size(100, 1000)
	s := newStage(t, seed(hubtest.Seed(t, size(1, rand.Uint64()))), 2, 500*time.Millisecond, linkFaults, "RSHUB_REDIS_TIMEOUT=100ms")
	s.pause = 100 * time.Millisecond
	numbers := make(chan int, histories)
	for n := range histories {
		numbers <- n
	}
	close(numbers)
	var work sync.WaitGroup
	for range lanes {
		work.Go(func() {
			for n := range numbers {
				r := s.record(n, false)
				if result := r.history.check(); result != porcupine.Ok || len(r.odd) > 0 {
					t.Errorf("history %d: %s\n%s\n%s", n, result, strings.Join(r.odd, "\n"), r.history)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
			s.round()
		}
	}
	for _, what := range []string{"publish 503 unknown", "delete 503 unknown", "describe 503 unknown", "read 410 gone"} {
		if histories >= 1000 && s.count(what) == 0 {
			t.Errorf("%d histories, and not once %s: they say nothing of it", histories, what)
		}
	}
}
