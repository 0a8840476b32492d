package callback

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/outbound"
)

// TestIdleMemory holds what a subscription costs while nothing happens: memory
// for itself, no goroutine and no timer.
func TestIdleMemory(t *testing.T) {
	long(t)
	const n, sets, most = 100_000, 10, 1536
	log := memorytest.Open(t)
	h := hub.New(log, hub.Options{})
	defer h.Close()
	e := New(nil, nil, log, h, nil, nil, Options{})
	s := &shard{engine: e, subs: map[subscription.ID]*sub{}, errands: map[subscription.ID]*errand{}, loaded: true, rested: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	before, goroutines := heapBytes(), runtime.NumGoroutine()
	e.mu.Lock()
	for i := range n {
		r := subscription.Record{
			Subscription: subscription.Subscription{
				Set: fmt.Sprint("set", i%sets), Callback: fmt.Sprintf("https://subscriber-%d.example.org/callbacks/resourcesync?key=%032x", i%1000, i),
				Secret: fmt.Sprintf("%032x", i), LeaseEnd: time.Now().Add(time.Hour), Token: fmt.Sprintf("%026d", i), Made: time.Now(), Renewed: time.Now(),
			},
			Progress: subscription.Progress{Last: make([]subscription.Attempt, subscription.MaxAttempts)},
		}
		for k := range r.Last {
			r.Last[k] = subscription.Attempt{At: time.Now(), Kind: "deliver", Status: 200, Took: time.Second, Changes: 1}
		}
		s.addLocked(&r).restLocked()
	}
	e.mu.Unlock()
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

// A sink counts deliveries over real sockets.
type sink struct {
	*httptest.Server
	got atomic.Int64
}

func newSink(b *testing.B) *sink {
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
		s.got.Add(1)
	}))
	b.Cleanup(s.Close)
	return s
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDeliver compares deliveries with a bare loop of net/http that sends
// the same bodies with the same client. The sink runs in the same process and
// counts in both.
func BenchmarkDeliver(b *testing.B) {
	const subs = 20
	for _, size := range []int{1, 100} {
		out := outbound.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PerHost: subs}
		b.Run(fmt.Sprintf("floor/%d", size), func(b *testing.B) {
			sink := newSink(b)
			client := outbound.New(out).HTTP()
			a := changelog.Appended{After: feed.Cursor{Micros: 1}, Cursor: feed.Cursor{Position: uint64(size), Micros: time.Now().UnixMicro()}}
			body := feed.NewBatch("demo", a.After, a.Cursor, memorytest.Changes("a", size)).XML()
			before := ownCPU()
			for b.Loop() {
				var wg sync.WaitGroup
				for range subs {
					wg.Go(func() {
						resp, err := client.Post(sink.URL, "application/xml", bytes.NewReader(body))
						if err != nil {
							b.Error(err)
							return
						}
						resp.Body.Close()
					})
				}
				wg.Wait()
			}
			report(b, before, b.N*subs, size)
			client.CloseIdleConnections()
		})
		b.Run(fmt.Sprintf("engine/%d", size), func(b *testing.B) {
			sink := newSink(b)
			log := memorytest.Open(b)
			h := hub.New(log, hub.Options{Base: base})
			defer h.Close()
			registry := registrytest.OpenDisk(b, log.Keep("callback"))
			client := outbound.New(out)
			defer client.Close()
			caller := websub.NewCaller(client, base, websub.CallerOptions{})
			e := New(registry, registry, log, h, caller, caller, Options{PerHost: subs, MaxChanges: size})
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = e.Run(ctx) })
			defer wg.Wait()
			defer cancel()
			memorytest.Fill(b, log, "demo")
			for i := range subs {
				if err := e.Send(ctx, subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: fmt.Sprint(sink.URL, "/", i), Lease: time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			n := int64(0)
			publish := func() {
				n++
				if _, err := h.Publish(ctx, "demo", changelog.Publish{Changes: memorytest.Changes("a", size)}); err != nil {
					b.Fatal(err)
				}
				for sink.got.Load() < n*subs {
					runtime.Gosched()
					time.Sleep(20 * time.Microsecond)
				}
			}
			for e.present().subscriptions < subs {
				time.Sleep(time.Millisecond)
			}
			publish()
			before, began := ownCPU(), n
			for b.Loop() {
				publish()
			}
			report(b, before, int(n-began)*subs, size)
		})
	}
}

func report(b *testing.B, before time.Duration, deliveries, size int) {
	each := float64(ownCPU()-before) / float64(deliveries) / 1e3
	b.ReportMetric(each, "cpu-µs/delivery")
	b.ReportMetric(each/float64(size), "cpu-µs/change")
	b.ReportMetric(float64(deliveries)/b.Elapsed().Seconds(), "deliveries/s")
}
