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

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/resourcesync"
)

// Two hubs share the subscriptions in Redis. When one shuts down the other goes
// on where it was: everything comes once and in order.
func TestHandOver(t *testing.T) {
	server := redistest.Start(t)
	log, err := disklog.Open(t.TempDir(), disklog.Options{})
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

	options := callback.Options{BaseURL: "https://hub.example.org", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	var engines []*callback.Engine
	var ran sync.WaitGroup
	defer ran.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		e := callback.New(newRedis(t, server.Client(), "p", short), log, h, options)
		engines = append(engines, e)
		ran.Go(func() { _ = e.Run(ctx) })
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !done(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, %+v", what, engines[0].Stats(), engines[1].Stats())
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	wait("both have shards, all are claimed", func() bool {
		a, b := engines[0].Stats().Shards, engines[1].Stats().Shards
		return a > 80 && b > 80 && a+b == callback.Shards
	})
	const n = 50
	for i := range n {
		if err := engines[i%2].Send(ctx, callback.Request{Mode: callback.Subscribe, Set: "demo", Callback: fmt.Sprint(sink.URL, "/", i), Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	wait("all are verified", func() bool { return engines[0].Stats().Verified+engines[1].Stats().Verified == n })
	publish := func(i int) {
		t.Helper()
		c := []resourcesync.Change{{Loc: fmt.Sprint("https://example.org/", i), Change: resourcesync.Updated}}
		if _, err := h.Publish(ctx, "demo", changelog.Publish{Changes: c}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d-%d", i-1, i)
		wait("a change is delivered to all", func() bool {
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
	if s := engines[1].Stats(); s.Shards != callback.Shards || s.Subscriptions != n {
		t.Errorf("the hub that is left: %+v", s)
	}
}
