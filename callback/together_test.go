package callback_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/resourcesync"
)

// Two hubs share the subscriptions in Redis. When one shuts down the other goes
// on where it was: everything comes once and in order.
func TestHandOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	log, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h := hub.New(log, hub.Options{})
	defer h.Close()

	var mu sync.Mutex
	got := map[string][]string{} // RS-Previous and RS-Position by callback
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = append(got[r.URL.Path], r.Header.Get("RS-Previous")+"-"+r.Header.Get("RS-Position"))
	}))
	defer sink.Close()

	var engines []*callback.Engine
	var metrics []*prometheus.Registry
	var ran sync.WaitGroup
	defer ran.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		metrics = append(metrics, prometheus.NewRegistry())
		conn := conntest.Open(t, server.Addr, redisconn.Options{})
		registry, err := subscription.NewRedis(conn, "p", subscription.RedisOptions{})
		if err != nil {
			t.Fatal(err)
		}
		claims := claim.NewRedis(conn, "p", subscription.ClaimKind, claim.RedisOptions{ClaimFor: 5 * time.Second, LiveFor: 15 * time.Second})
		client := outbound.New(outbound.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		defer client.Close()
		caller := websub.NewCaller(client, "https://hub.example.org", websub.CallerOptions{})
		e := callback.New(registry, claims, log, h, caller, callback.Options{Metrics: metrics[len(engines)]})
		engines = append(engines, e)
		ran.Go(func() { e.Run(ctx) })
	}
	get := func(i int, name string) float64 {
		t.Helper()
		return metricstest.Values(t, metrics[i])["rshub_callback_"+name]
	}
	testutil.Until(t, "both have shards, all are claimed", func() bool {
		a, b := get(0, "claims"), get(1, "claims")
		return a > 80 && b > 80 && a+b == subscription.Shards
	})
	const n = 20
	for i := range n {
		if err := engines[i%2].Send(ctx, subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: fmt.Sprint(sink.URL, "/", i), Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Until(t, "all are verified", func() bool { return get(0, "subscriptions")+get(1, "subscriptions") == n })
	publish := func(i int) {
		t.Helper()
		c := []resourcesync.Change{{Loc: fmt.Sprint("https://example.org/", i), Change: resourcesync.Updated}}
		if _, err := h.Publish(ctx, "demo", changelog.Publish{Changes: c}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d-%d", i-1, i)
		testutil.Until(t, "a change is delivered to all", func() bool {
			mu.Lock()
			defer mu.Unlock()
			arrived := 0
			for _, all := range got {
				if all[len(all)-1] == want {
					arrived++
				}
			}
			return arrived == n
		})
	}
	for i := range 5 {
		publish(i + 1)
	}
	engines[0].Shutdown(ctx)
	for i := range 5 {
		publish(i + 6)
	}
	mu.Lock()
	defer mu.Unlock()
	for path, all := range got {
		if len(all) != 10 {
			t.Errorf("%s got %v", path, all)
		}
	}
	if claims, subs := get(1, "claims"), get(1, "subscriptions"); claims != subscription.Shards || subs != n {
		t.Errorf("the hub that is left has %v claims and %v subscriptions", claims, subs)
	}
}
