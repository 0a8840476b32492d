package callback_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// What a request has replaced leaves the inbox with it: after a crash it does not come back, and
// undo what came later.
func TestReplacedStaysReplaced(t *testing.T) {
	t.Parallel()
	restart := func(w *world) {
		w.crash()
		w.start(callback.Options{})
		w.pass(time.Minute)
	}
	t.Run("renewals", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscribed()
			c.agrees(status(http.StatusInternalServerError))
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "first"}}) // is tried again soon
			c.agrees(nil)
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "second"}})
			if got := w.saved(id).Secret; got != "second" {
				t.Fatalf("the secret is %q", got)
			}
			restart(w)
			if got := w.saved(id).Secret; got != "second" {
				t.Errorf("after a crash the secret is %q", got)
			}
		})
	})
	t.Run("removal", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, id := w.subscribed()
			c.agrees(status(http.StatusInternalServerError))
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
			c.agrees(nil)
			w.sent(subscription.Request{Mode: subscription.Remove, Callback: c.url})
			if !w.gone(id) {
				t.Fatal("it was not removed")
			}
			if restart(w); !w.gone(id) {
				t.Error("after a crash it is there again")
			}
		})
	})
	t.Run("moves", func(t *testing.T) {
		inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
			c, _ := w.subscribed()
			w.published("a", 3)
			w.pass(time.Second)
			w.store.tight.Store(true)
			w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url})
			w.store.tight.Store(false)
			w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url, Start: w.head()})
			restart(w)
			c.check(0, 3)
		})
	})
}

// A removal removes also what is in the store without the hub's knowledge: the store was asked
// to keep it, and its answer was lost.
func TestRemoveWhatIsKeptUnknown(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		w.store.commits(func(_ subscription.Changes, commit func() error) error { return errors.Join(feed.ErrUnknown, commit()) })
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		w.store.hook.Store(nil)
		w.saved(id) // operators see it
		w.sent(subscription.Request{Mode: subscription.Remove, Callback: c.url})
		if w.pass(time.Minute); !w.gone(id) {
			t.Error("it is still there")
		}
	})
}

// operates sends a request of an operator, and waits until all that follows from it has happened.
func (w *world) operates(mode subscription.Mode, callback string) {
	w.t.Helper()
	ok(w.t, w.engine.Send(w.t.Context(), subscription.Request{Mode: mode, Set: "demo", Callback: callback, At: time.Now()}))
	w.settled()
}

// An operator's request does not wait behind a subscriber's request about the same subscription,
// which waits for a slot.
func TestOperatorWaitsInNoLine(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		var id subscription.ID
		var last string
		for range 2 {
			for i := range 30 {
				last = fmt.Sprint(c.url, "?n=", i)
				id = w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: last})
			}
			c.agrees(hang)
		}
		w.operates(subscription.Remove, last)
		if !w.gone(id) {
			t.Error("the operator waits for a callback that hangs")
		}
	})
}

// A shard's inbox that subscribers have filled does not keep operators out.
func TestOperatorInAFullInbox(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		c.agrees(hang)
		for i, n := 0, 0; n < subscription.InboxMax; i++ {
			if callback := fmt.Sprint(c.url, "?n=", i); subscription.NewID("demo", "", callback).Shard() == id.Shard() {
				w.send(subscription.Request{Mode: subscription.Subscribe, Callback: callback})
				n++
			}
		}
		w.pass(time.Second)
		w.operates(subscription.Remove, c.url)
		if w.pass(time.Second); !w.gone(id) {
			t.Error("the operator's request is not carried out")
		}
	})
}

// A renewal that is kept after an operator's move counts as failing what has failed by then.
func TestFailingAfterAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/a"}}})
		w.published("a", 3)
		w.store.commits(func(changes subscription.Changes, commit func() error) error {
			if len(changes.Put) > 0 && changes.Put[0].Filter.IsZero() {
				return feed.ErrFull
			}
			return commit()
		})
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		c.says(status(http.StatusInternalServerError))
		w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url})
		w.pass(10 * time.Second)
		w.store.hook.Store(nil)
		w.pass(10 * time.Second)
		if n := w.gauge("failing"); n != 1 {
			t.Errorf("while it fails, %d are failing", n)
		}
		c.says(nil)
		w.pass(10 * time.Minute)
		if n := w.gauge("failing"); n != 0 {
			t.Errorf("at the end, %d are failing", n)
		}
	})
}

// A burst that was under way when its set was deleted does not go on in the set that is made anew.
func TestEveryAfterADeletedSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Every: 12 * time.Minute}})
		c.says(status(http.StatusInternalServerError))
		w.published("a", 9)
		ok(t, w.hub.Delete(t.Context(), "demo"))
		c.says(nil)
		w.pass(2 * time.Minute)
		for _, name := range []string{"b", "c", "d"} {
			w.published(name, 1)
			w.pass(2 * time.Minute)
		}
		if got := fmt.Sprint(c.locs()); got != "[b/0?a&b]" {
			t.Errorf("within one interval it got %v", got)
		}
	})
}

// A failure that was noted while the clock was ahead does not hold a subscription up until then.
func TestNextByAWrongClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, id := w.subscribed()
		c.says(status(http.StatusInternalServerError))
		w.published("a", 3)
		w.pass(time.Second)
		r := w.saved(id)
		w.crash()
		claims, err := w.registry.Acquire(t.Context(), []int{id.Shard()})
		ok(t, err)
		r.Next = time.Now().Add(9 * 24 * time.Hour)
		ok(t, w.registry.Commit(t.Context(), claims[0], subscription.Changes{Put: []subscription.Record{r}}))
		ok(t, w.registry.Release(t.Context(), claims))
		c.says(nil)
		w.lose(func(i int) bool { return i != id.Shard() }) // the inboxes of all shards are looked at twice a second
		w.start(callback.Options{})
		w.pass(longestWait + time.Second)
		c.check(0, 3)
	})
}

// In a set that was made anew, and has lost its beginning, nobody knows where the gap ends in the
// positions of the deleted one.
func TestGapOfAnotherSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c, _ := w.subscribed()
		w.published("a", 5)
		c.says(status(http.StatusInternalServerError))
		w.pass(time.Minute)
		ok(t, w.hub.Delete(t.Context(), "demo"))
		w.crash()
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		w.publish("b", 60)
		w.pass(time.Minute)
		if _, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 20}); err != nil {
			t.Fatal(err)
		}
		w.start(callback.Options{})
		w.pass(time.Minute)
		if h := c.last().header; h.Get("RS-Gap") != "6-" || h.Get("RS-Previous") != "40" {
			t.Errorf("RS-Gap %q, RS-Previous %q", h.Get("RS-Gap"), h.Get("RS-Previous"))
		}
	})
}
