package callback

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// TestIdleMemory holds what a subscription costs while nothing happens: memory
// for itself, no goroutine and no timer. Its last attempts, of which each has all that are kept,
// take nearly half of that.
func TestIdleMemory(t *testing.T) {
	long(t)
	const n, sets, most = 100_000, 10, 2048
	log := memorytest.Open(t)
	h := hub.New(log, hub.Options{})
	defer h.Close()
	e := New(nil, nil, log, h, nil, Options{})
	s := e.newShard(nil)
	before, goroutines := heapBytes(), runtime.NumGoroutine()
	st := e.lock()
	for i := range n {
		r := subscription.Record{
			Subscription: subscription.Subscription{
				Set: fmt.Sprint("set", i%sets), Callback: fmt.Sprintf("https://subscriber-%d.example.org/callbacks/resourcesync?key=%032x", i%1000, i),
				Terms: subscription.Terms{Secret: fmt.Sprintf("%032x", i)}, LeaseEnd: time.Now().Add(time.Hour), Token: fmt.Sprintf("%026d", i), Made: time.Now(), Renewed: time.Now(),
			},
			Progress: subscription.Progress{Last: make([]subscription.Attempt, subscription.MaxAttempts)},
		}
		for k := range r.Last {
			r.Last[k] = subscription.Attempt{At: time.Now(), Kind: "deliver", Status: 200, Took: time.Second, Changes: 1}
		}
		st.rest(st.addSub(s, &r))
	}
	st.unlock()
	per := float64(heapBytes()-before) / n
	if extra := runtime.NumGoroutine() - goroutines; extra > sets {
		t.Errorf("%d goroutines more", extra)
	}
	t.Logf("%.0f bytes for each idle subscription", per)
	if per > most {
		t.Errorf("%.0f bytes for each idle subscription, want at most %d", per, most)
	}
	e.cancel()
	e.wg.Wait()
	runtime.KeepAlive(s)
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
