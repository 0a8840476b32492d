package callback_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// TestIdleMemory checks what a subscription costs while nothing happens: memory for itself, and no
// goroutine. Each has the maximum number of attempts, which take nearly half of the memory.
func TestIdleMemory(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		const n, sets, most = 100_000, 10, 2048
		w := newWorld(t, callback.Options{}, 0)
		w.lose(func(int) bool { return true })
		w.pass(time.Second)
		before, goroutines := heapBytes(), runtime.NumGoroutine()
		w.store.onLoad(func(shard int) recordsFunc {
			return func(yield func(subscription.Record, error) bool) {
				for i := range n {
					if i%subscription.Shards == shard && !yield(idleRecord(i, sets), nil) {
						return
					}
				}
			}
		})
		w.lose(func(int) bool { return false })
		w.pass(time.Second)
		if got := w.metric("subscriptions"); got != n {
			t.Fatalf("got %d subscriptions, want %d", got, n)
		}
		per := float64(heapBytes()-before) / n
		if extra := runtime.NumGoroutine() - goroutines; extra > sets {
			t.Errorf("got %d more goroutines, want at most %d", extra, sets)
		}
		t.Logf("%.0f bytes for each idle subscription", per)
		if per > most {
			t.Errorf("got %.0f bytes for each idle subscription, want at most %d", per, most)
		}
	})
}

// idleRecord returns the record of subscription i to one of the sets.
func idleRecord(i, sets int) subscription.Record {
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
	return r
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
