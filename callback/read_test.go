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
	"github.com/rshub/rshub/resourcesync"
)

// A gate is a Follower that delays the result of one read.
type gate struct {
	callback.Follower
	shut  atomic.Bool   // whether the next read is delayed
	open  chan struct{} // closed when the read may return
	empty bool          // whether the read finds nothing; set before shut
}

func (g *gate) Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error) {
	b, err := g.Follower.Next(ctx, set, after, limit)
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
		if g.empty {
			return nil, nil
		}
	}
	return b, err
}

// wantRead fails the test unless a read waits at the gate.
func (g *gate) wantRead(t *testing.T) {
	t.Helper()
	if g.shut.Load() {
		t.Fatal("got no read, want one")
	}
}

// startGated restarts the engine with a follower that has a gate.
func (w *world) startGated() *gate {
	w.t.Helper()
	w.shutdown()
	g := &gate{Follower: w.hub, open: make(chan struct{})}
	w.startWith(g)
	return g
}

// A follower is late: it reads nothing, although the log has entries. The subscription reads again, even if
// nothing is published.
func TestLateFollower(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.crash()
		w.publish("a", 3)
		g := &gate{Follower: w.hub, open: make(chan struct{}), empty: true}
		g.shut.Store(true)
		close(g.open)
		w.startWith(g)
		g.wantRead(t)
		w.pass(3 * time.Second)
		c.wantChanges(0, 3)
	})
}

// A read that started before a publish may find nothing. It does not count for a subscription that knows of
// the publish, which would wait.
func TestReadBeforePublish(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		g := w.startGated()
		a, b := w.receiver("a.example"), w.receiver("b.example")
		w.subscribe(a)
		w.subscribe(b)
		w.pass(time.Minute)
		g.empty = true
		g.shut.Store(true)
		w.publish("first", 1)
		g.wantRead(t)
		var all []resourcesync.Change // more than the window holds
		for i := range 1700 {
			all = append(all, resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s%d", strings.Repeat("x", 1500), i), Change: resourcesync.Created})
		}
		_, err := w.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: all})
		ok(t, err)
		w.settle()
		close(g.open)
		w.settle()
		for _, c := range []*receiver{a, b} {
			c.wantChanges(0, len(all)+1)
		}
	})
}
