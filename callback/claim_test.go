package callback_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// Two hubs share the subscriptions in Redis. If one shuts down, the other continues where it was: every
// change is delivered once and in order.
func TestHandOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	log := memorytest.Open(t)
	h := hub.New(log, hub.Options{})
	defer h.Close()

	var mu sync.Mutex
	intervals := map[string][]string{} // by callback
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			confirm(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		intervals[r.URL.Path] = append(intervals[r.URL.Path], r.Header.Get("RS-Previous")+"-"+r.Header.Get("RS-Position"))
	}))
	defer sink.Close()

	var ran sync.WaitGroup
	defer ran.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var engines [2]*callback.Engine
	var metrics [2]*prometheus.Registry
	for i := range engines {
		metrics[i] = prometheus.NewRegistry()
		conn := conntest.Open(t, server.Addr, redisconn.Options{})
		registry, err := subscription.NewRedis(conn, "p", subscription.RedisOptions{})
		ok(t, err)
		claims := claim.NewRedis(conn, "p", subscription.ClaimKind, claim.RedisOptions{ClaimFor: 5 * time.Second, LiveFor: 15 * time.Second})
		client := outbound.New(outbound.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		defer client.Close()
		caller := websub.NewCaller(client, base, websub.CallerOptions{})
		engines[i] = callback.New(registry, claims, log, h, caller, callback.Options{Metrics: metrics[i]})
		ran.Go(func() { engines[i].Run(ctx) })
	}
	get := func(i int, name string) float64 {
		return metricstest.Values(t, metrics[i])["rshub_callback_"+name]
	}
	testutil.Until(t, "both have shards, all are claimed", func() bool {
		a, b := get(0, "claims"), get(1, "claims")
		return a > 80 && b > 80 && a+b == subscription.Shards
	})
	const n = 20
	for i := range n {
		ok(t, engines[i%2].Send(ctx, subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: fmt.Sprint(sink.URL, "/", i), Lease: time.Hour}))
	}
	testutil.Until(t, "all are verified", func() bool { return get(0, "subscriptions")+get(1, "subscriptions") == n })
	var want []string
	for i := range 10 {
		if i == 5 {
			engines[0].Shutdown(ctx)
		}
		_, err := h.Publish(ctx, "demo", changelog.Publish{Changes: memorytest.Changes("a", 1)})
		ok(t, err)
		want = append(want, fmt.Sprintf("%d-%d", i, i+1))
		testutil.Until(t, "a change is delivered to all", func() bool {
			mu.Lock()
			defer mu.Unlock()
			arrived := 0
			for _, got := range intervals {
				if got[len(got)-1] == want[i] {
					arrived++
				}
			}
			return arrived == n
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for path, got := range intervals {
		if !slices.Equal(got, want) {
			t.Errorf("%s received intervals %v, want %v", path, got, want)
		}
	}
	if claims, subs := get(1, "claims"), get(1, "subscriptions"); claims != subscription.Shards || subs != n {
		t.Errorf("the second hub has %v claims and %v subscriptions, want %d and %d", claims, subs, subscription.Shards, n)
	}
}

// A shard is handed over while its subscriptions are loaded.
func TestHandOverDuringLoad(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		id := w.subscribe(w.receiver("a.example"))
		w.crash()
		r, loaded := w.record(id), make(chan struct{})
		w.store.onLoad(func(shard int) recordsFunc {
			return func(yield func(subscription.Record, error) bool) {
				if shard == id.Shard() && yield(r, nil) {
					close(loaded)
					time.Sleep(time.Minute) // fake time
				}
			}
		})
		go func() {
			<-loaded
			w.engine.Shutdown(t.Context())
		}()
		w.start()
		<-w.ran
	})
}

// A shard is handed over when a delivery has read its changes, and not sent them. The next hub sends them.
func TestHandOverBeforeSend(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.startGated()
		c, _ := w.subscriber()
		g.shut.Store(true)
		w.publish("a", 3)
		g.wantRead(t)
		time.AfterFunc(2*handOverTime, func() { close(g.open) })
		w.shutdown()
		c.wantRequests(0, 1)
		w.start()
		c.wantChanges(0, 3)
	})
}

// Shutdown waits for calls in flight, but not long, and starts none. Calls that it cancels are not failures
// of the callback.
func TestShutdown(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.respond(after(handOverTime-100*time.Millisecond, accept))
		w.publish("a", 1)
		w.publish("b", 1)
		if took := w.shutdown(); took < handOverTime/2 || took > handOverTime {
			t.Errorf("shutdown took %v, want %v to %v", took, handOverTime/2, handOverTime)
		}
		c.wantRequests(1, 1)
		if got := w.record(id).Cursor.Position; got != 1 {
			t.Errorf("stored position = %d, want 1", got)
		}
		c.respond(hang)
		w.start()
		w.wantShutdown(time.Second)
		if r := w.record(id); r.Cursor.Position != 1 || r.Failed != 0 {
			t.Errorf("progress = %+v, want position 1 without failures", r.Progress)
		}
		w.start()
		ctx, cancel := context.WithTimeout(t.Context(), handOverTime/4)
		defer cancel()
		start := time.Now()
		w.engine.Shutdown(ctx)
		<-w.ran
		if took := time.Since(start); took > handOverTime/2 {
			t.Errorf("shutdown with a deadline of %v took %v", handOverTime/4, took)
		}
		c.respond(accept)
		w.start()
		c.wantChanges(0, 2)
	})
}

// A hub that has lost a claim cancels its calls and stores nothing. Here it claims the shard again.
func TestClaimLost(t *testing.T) {
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		canceled := make(chan struct{}, 10)
		c.respond(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			canceled <- struct{}{}
		})
		w.publish("a", 1)
		claims := w.takeClaim(id)
		w.publish("b", 1)
		w.pass(time.Second) // a renewal of the claim fails
		if len(canceled) == 0 {
			t.Error("the call was not canceled")
		}
		w.wantMetrics(map[string]float64{
			"rshub_callback_claims_lost_total": 1, "rshub_callback_claims_gained_total": subscription.Shards + 1,
			"rshub_callback_claims": subscription.Shards, "rshub_callback_subscriptions": 1,
		})
		if err := w.registry.Release(t.Context(), claims); err != nil && !errors.Is(err, claim.ErrLost) {
			t.Fatal(err)
		}
		c.respond(accept)
		w.pass(20 * time.Second)
		c.wantChanges(0, 2)
		w.shutdown()
		w.wantMetrics(map[string]float64{
			"rshub_callback_claims_lost_total": 1, "rshub_callback_claims": 0, "rshub_callback_subscriptions": 0,
		})
	})
}

// A machine is suspended, and another hub gets the shard. When the machine resumes, it calls no callback
// under the old claim, although Go's clock has not advanced.
func TestSuspended(t *testing.T) {
	for _, tt := range []struct {
		name string
		call func(w *world, c *receiver)
	}{
		{"delivery", func(w *world, _ *receiver) { w.publish("a", 1) }},
		{"verification", func(w *world, c *receiver) { w.do(subscription.Subscribe, c) }},
		{"denial", func(w *world, c *receiver) { w.do(subscription.Remove, c) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
				c, id := w.subscriber()
				w.takeClaim(id)
				w.clock.Add(int64(time.Minute))
				tt.call(w, c)
				c.wantRequests(0, 1)
			})
		})
	}
}

// The only hub continues when its machine resumes.
func TestResume(t *testing.T) {
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		for i := range 3 {
			w.clock.Add(int64(time.Hour))
			w.publish("a", 1)
			w.pass(2 * time.Second)
			c.wantChanges(0, i+1)
		}
	})
}
