package callback_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A callback that fell behind retention receives what is left of the log. Deliveries name the gap, and the
// baseline, until one succeeds.
func TestGap(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.makeSet()
		c, id := w.subscriber()
		w.publish("a", 5)
		c.wantChanges(0, 5)
		c.respond(fail)
		w.publish("b", 60)
		w.pass(time.Minute)
		floor := w.trim(20)
		w.inventory = true
		retry := func() {
			w.do(subscription.Retry, c)
			w.pass(saveEvery)
		}
		links := func() (all []string) {
			for _, l := range feed.ParseLinks(c.last().header.Values("Link")) {
				all = append(all, l.URI)
			}
			return all
		}
		w.recover() // the window of the hub still has all changes
		retry()
		if n := w.metric("gaps_total"); n != 1 {
			t.Errorf("gaps_total = %d, want 1", n)
		}
		for range 2 {
			if got, want := c.last().interval(), fmt.Sprintf("%d-65 gap 6-%d", floor, floor); got != want {
				t.Errorf("interval = %s, want %s", got, want)
			}
			all := feed.ParseLinks(c.last().header.Values("Link"))
			if len(all) != 6 || !all[0].HasRel("self") || !all[1].HasRel("hub") || !all[2].HasRel("resourcesync") || !all[3].HasRel(feed.RelBaseline) || all[3].URI != base+"/sets/demo/changes?since=baseline" {
				t.Errorf("links = %v, want six, and the baseline fourth", all)
			}
			if r := w.record(id); r.Gaps != 1 || r.Gap.Position != 5 {
				t.Errorf("progress = %+v, want one gap after position 5", r.Progress)
			}
			w.restart()
			retry()
		}
		c.respond(accept)
		retry()
		w.publish("c", 1)
		if got := c.last().interval(); got != "65-66" || len(links()) != 3 {
			t.Errorf("interval after a success = %s with links %v, want 65-66 with three", got, links())
		}
		if got, want := strings.Count(c.names(), "/"), 5+65-int(floor)+1; got != want {
			t.Errorf("received %d changes, want %d", got, want)
		}
	})
}

// A gap starts at the end of the last delivery, even if a filter skipped what follows it. What the filter
// skips after the gap is not part of it.
func TestGapWithFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.makeSet()
		c := w.receiver("a.example")
		w.request(c, subscription.Request{Terms: prefix("x")})
		w.publish("x", 5)
		w.publish("y", 3)
		c.respond(fail)
		w.publish("x", 15)
		for range 3 {
			w.publish("y", 1000)
		}
		w.publish("x", 1)
		w.pass(time.Minute)
		floor := w.trim(2500)
		w.recover()
		c.respond(accept)
		w.do(subscription.Retry, c)
		if got, want := c.last().interval(), fmt.Sprintf("%d-3024 gap 6-%d", floor, floor); got != want {
			t.Errorf("interval = %s, want %s", got, want)
		}
	})
}

// If a set was made again and retention has removed its start, the end of the gap is unknown in positions of
// the deleted set.
func TestGapOfAnotherSet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.publish("a", 5)
		c.respond(fail)
		w.pass(time.Minute)
		w.deleteSet()
		w.crash()
		w.makeSet()
		w.publish("b", 60)
		w.pass(time.Minute)
		w.trim(20)
		w.start()
		w.pass(time.Minute)
		if got := c.last().interval(); got != "40-60 gap 6-" {
			t.Errorf("interval = %s, want 40-60 gap 6-", got)
		}
	})
}

// A subscription may be older than its set, and outlive it. Then it follows the next set of that name.
func TestDeletedSet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.do(subscription.Subscribe, c)
		w.publish("a", 3)
		c.wantChanges(0, 3)
		w.deleteSet()
		w.pass(time.Minute)
		c.wantRequests(1, 1)
		w.publish("b", 2)
		w.pass(time.Minute)
		if got := c.names(); got != "a/0 a/1 a/2 b/0 b/1" {
			t.Errorf("received %s, want a/0 a/1 a/2 b/0 b/1", got)
		}
		if got := c.last().interval(); got != "0-2 gap 4-" {
			t.Errorf("interval = %s, want 0-2 gap 4-", got)
		}
	})
}

// After the log has lost its tail, deliveries repeat rather than skip, and report that until one succeeds.
func TestDiverged(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		start := w.publish("a", 3)
		start.Micros += 5 // of another third entry
		c := w.receiver("a.example")
		c.respond(fail)
		w.request(c, subscription.Request{Start: start})
		w.pass(time.Minute)
		c.respond(accept)
		w.pass(2 * time.Minute)
		for _, p := range c.posts.all() {
			if got := p.interval(); got != "0-3 diverged" {
				t.Errorf("interval = %s, want 0-3 diverged", got)
			}
		}
		c.wantChanges(0, 3)
		w.publish("b", 1)
		if got := c.last().interval(); got != "3-4" {
			t.Errorf("interval after a success = %s, want 3-4", got)
		}
		c.wantChanges(0, 4)
	})
}
