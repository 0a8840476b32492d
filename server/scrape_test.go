package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/servertest"
)

// What a hub says of itself does not grow with its sets and subscriptions: no
// metric has one of them as a label.
func TestLargeScrape(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds to make so many sets")
	}
	const (
		sets          = 10_000
		subscriptions = 100_000
		most          = 1 << 20 // bytes of an answer
	)
	data := t.TempDir()
	fillWithIdle(t, filepath.Join(data, storeDir), sets, subscriptions)
	h := start(t, Config{Data: data})
	for there := fmt.Sprintf("\nrshub_callback_subscriptions %d\n", subscriptions); ; {
		_, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
		if len(body) >= most {
			t.Fatalf("the metrics are %d bytes: %.10000s", len(body), body)
		}
		if strings.Contains(body, there) {
			t.Logf("the metrics are %d bytes", len(body))
			return
		}
	}
}

// fillWithIdle makes a change memory with sets, and with subscriptions that are up
// to date.
func fillWithIdle(t *testing.T, dir string, sets, subscriptions int) {
	t.Helper()
	log, err := disklog.Open(dir, disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range sets {
		if err := log.Make(t.Context(), fmt.Sprint("idle-", i), feed.Description{}, 10); err != nil {
			t.Fatal(err)
		}
	}
	registry, claims, err := (&Config{}).subscriptionsOnDisk(t.Context(), log.Keep(callbackKeep))
	if err != nil {
		t.Fatal(err)
	}
	var shards [subscription.Shards]int
	for i := range shards {
		shards[i] = i
	}
	held, err := claims.Acquire(t.Context(), shards[:])
	if err != nil {
		t.Fatal(err)
	}
	var put [subscription.Shards][]subscription.Record
	now := time.Now()
	for i := range subscriptions {
		r := subscription.Record{Subscription: subscription.Subscription{
			Set: fmt.Sprint("idle-", i%sets), Callback: fmt.Sprintf("https://subscriber-%d.example.org/%d", i%1000, i),
			Token: fmt.Sprintf("%026d", i), LeaseEnd: now.Add(24 * time.Hour), Made: now, Renewed: now,
		}}
		put[r.ID().Shard()] = append(put[r.ID().Shard()], r)
	}
	for _, c := range held {
		if err := registry.Commit(t.Context(), c, subscription.Changes{Put: put[c.Shard]}); err != nil {
			t.Fatal(err)
		}
	}
}
