package callback_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// A gate holds up the result of one read.
type gate struct {
	callback.Follower
	shut  atomic.Bool
	empty atomic.Bool // whether that read finds nothing
	open  chan struct{}
}

func (g *gate) Next(ctx context.Context, set string, after feed.Cursor, most int) ([]*feed.Batch, error) {
	b, err := g.Follower.Next(ctx, set, after, most)
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
		if g.empty.Load() {
			return nil, nil
		}
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

// The follower of a hub may be late: it reads nothing, although the state of the log says that entries follow.
// The subscription reads again, even if nothing is published.
func TestLateFollower(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		w.crash()
		w.publish("a", 3)
		g := &gate{Follower: w.hub, open: make(chan struct{})}
		close(g.open)
		g.empty.Store(true)
		g.shut.Store(true)
		w.client = outbound.New(outbound.Options{Dial: w.net.Dial})
		w.run(g, callback.Options{})
		if g.shut.Load() {
			t.Fatal("got no read, want one")
		}
		w.pass(3 * time.Second)
		c.check(0, 3)
	})
}

// A read that started before a publish may find nothing. It does not count for a subscription that knows of
// the publish, which would wait.
func TestReadBeforePublish(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.gated()
		a, b := w.listen("a.example"), w.listen("b.example")
		w.subscribe(a)
		w.subscribe(b)
		time.Sleep(time.Minute)
		g.empty.Store(true)
		g.shut.Store(true)
		w.published("first", 1)
		if g.shut.Load() {
			t.Fatal("got no read, want one")
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
		w.settled()
		for _, c := range []*callee{a, b} {
			if got, want := len(c.locs()), len(all)+1; got != want {
				t.Errorf("%s received %d changes, want %d", c.url, got, want)
			}
		}
	})
}
