package linear

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
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
// are cut, and requests and answers are held until nobody waits for them any more.
// RSHUB_E2E_FULL makes it 1,000 histories with a seed of their own; RSHUB_E2E_SEED repeats
// the choices of a run.
func TestLinearizable(t *testing.T) {
	histories, seed := 30, uint64(1)
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		histories, seed = 1000, rand.Uint64()
	}
	seed = hubtest.Seed(t, seed)
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	var proxies []*hubtest.Proxy
	var urls []string
	for range 2 {
		p := hubtest.StartProxy(t, redis.Addr)
		base := append(urls, "")[0]
		h := hubtest.JoinCluster(t, base, p.Addr(), nats.Addr, "RSHUB_REDIS_TIMEOUT=100ms")
		proxies, urls = append(proxies, p), append(urls, h.URL)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	for i, p := range proxies {
		faults.Go(func() { disturb(ctx, p, redis.Addr, rand.New(rand.NewPCG(seed, uint64(1e6+i)))) })
	}
	defer faults.Wait()
	defer cancel()

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers * lanes}, Timeout: hubtest.Patience}
	begun := time.Now()
	numbers := make(chan int)
	var mu sync.Mutex
	counts, refused, slowest := map[string]int{}, 0, time.Duration(0)
	var work sync.WaitGroup
	for range lanes {
		work.Go(func() {
			for n := range numbers {
				r := &recorder{set: "set-" + strconv.Itoa(n), hubs: urls, http: client, begun: begun, cursors: map[string]string{}, counts: map[string]int{}}
				r.run(rand.New(rand.NewPCG(seed, uint64(n))), callers, things)
				began := time.Now()
				result := r.history.check()
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				for what, n := range r.counts {
					counts[what] += n
				}
				if result != porcupine.Ok || len(r.odd) > 0 {
					refused++
					t.Errorf("history %d: %s\n%s\n%s", n, result, strings.Join(r.odd, "\n"), r.history)
				}
				mu.Unlock()
			}
		})
	}
	for n := range histories {
		numbers <- n
	}
	close(numbers)
	work.Wait()
	t.Logf("%d histories in %v, %d refused; the slowest check took %v", histories, time.Since(begun), refused, slowest)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[what], what)
	}
	for _, what := range []string{"publish 503 unknown", "delete 503 unknown", "describe 503 unknown", "read 410 gone"} {
		if histories >= 1000 && counts[what] == 0 {
			t.Errorf("%d histories, and not once %s: they say nothing of it", histories, what)
		}
	}
}

// disturb does one thing after the other to the connections through a proxy, until ctx
// is done. Mostly it does nothing.
func disturb(ctx context.Context, p *hubtest.Proxy, server string, rng *rand.Rand) {
	pause := func(least, most int) {
		timer := time.NewTimer(time.Duration(least+rng.IntN(most-least)) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(20, 200)
		switch rng.IntN(4) {
		case 0: // cut
			p.Point("")
			pause(1, 30)
			p.Point(server)
		case 1: // shortly slow
			p.Hold()
			pause(5, 80)
			p.Release()
		case 2: // so slow that the hub gives up, and what it sent arrives late
			p.Hold()
			pause(150, 500)
			p.Release()
		case 3: // cut in the middle of what is under way, so that answers are lost
			p.HoldAfter(1 + rng.IntN(4000))
			pause(10, 100)
			p.Point("")
			p.HoldAfter(0)
			p.Release()
			p.Point(server)
		}
	}
	p.Point(server)
	p.Release()
}
