package callback_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A gate holds up the answer of one read.
type gate struct {
	callback.Follower
	shut atomic.Bool
	open chan struct{}
}

func (g *gate) Next(ctx context.Context, set string, after feed.Cursor, most int) ([]*feed.Batch, error) {
	b, err := g.Follower.Next(ctx, set, after, most)
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
	}
	return b, err
}

// gated runs another engine, whose follower has a gate.
func (w *world) gated() *gate {
	w.t.Helper()
	w.shutdown()
	g := &gate{Follower: w.hub, open: make(chan struct{})}
	w.run(g, callback.Options{})
	return g
}

// A shard is handed over while a delivery has its turn, and has not been sent. The next hub
// sends it.
func TestHandedOverBeforeItIsSent(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.gated()
		c, _ := w.subscribed()
		g.shut.Store(true)
		w.published("a", 3)
		if g.shut.Load() {
			t.Fatal("nothing is read")
		}
		go func() {
			time.Sleep(2 * handOverTime)
			close(g.open)
		}()
		w.shutdown()
		if tries := deliveries(c); tries != 0 {
			t.Fatalf("the hub that leaves has delivered %d times", tries)
		}
		w.start(callback.Options{})
		c.check(0, 3)
	})
}

// A read that began before a publish may find nothing. It must not answer a subscription
// that knows of the publish, which would wait for ever.
func TestReadBeforePublish(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.gated()
		w.publish("first", 1)
		a, b := w.listen("a.example"), w.listen("b.example")
		w.subscribe(a)
		w.subscribe(b)
		time.Sleep(time.Minute)
		g.shut.Store(true)
		w.sent(subscription.Request{Mode: subscription.Retry, Callback: a.url})
		if g.shut.Load() {
			t.Fatal("nothing is read")
		}
		var all []resourcesync.Change // more than the window holds
		for i := range 1700 {
			all = append(all, resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s%d", strings.Repeat("x", 1500), i), Change: resourcesync.Created})
		}
		if _, err := w.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: all}); err != nil {
			t.Fatal(err)
		}
		w.settled()
		close(g.open)
		w.pass(time.Minute)
		if len(a.locs()) < len(all) || len(b.locs()) < len(all) {
			t.Errorf("delivered are %d and %d of %d", len(a.locs()), len(b.locs()), len(all))
		}
	})
}
