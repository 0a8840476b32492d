package callback

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// provedAt is a proof at a cursor, made now.
func provedAt(c feed.Cursor) subscription.Request {
	return subscription.Request{Mode: subscription.Prove, Proof: subscription.Proof{At: time.Now().UTC().Truncate(time.Microsecond), Cursor: c, By: "position", Complete: true}}
}

// A proof is kept with its subscription, also over a renewal and the next hub. An older one
// does not replace it. It neither delivers nor calls the callback, also while the callback
// fails or does not answer.
func TestProve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, id := subscribed(t, 2)
		prove := func() (sent subscription.Proof) {
			t.Helper()
			r := provedAt(w.head())
			r.Callback = c.url
			w.send(r)
			w.settled()
			return r.Proof
		}
		is := func(what string, want subscription.Proof) {
			t.Helper()
			if got := w.saved(id).Proved; got != want {
				t.Errorf("%s: the proof is %+v, want %+v", what, got, want)
			}
		}
		is("before", subscription.Proof{})
		first := prove()
		is("proved", first)

		// While the callback fails, the next attempt stays where it was.
		c.says(status(500))
		w.publish("b", 1)
		time.Sleep(time.Minute)
		tries, _, _ := c.counts()
		next := w.saved(id).Next
		failing := prove()
		is("failing", failing)
		if now, _, _ := c.counts(); now != tries || !w.saved(id).Next.Equal(next) {
			t.Errorf("a proof made %d attempts, and the next is at %v instead of %v", now-tries, w.saved(id).Next, next)
		}
		c.says(status(200))
		time.Sleep(10 * time.Minute)
		w.settled()
		if got := len(c.locs()); got != 3 {
			t.Errorf("%d changes arrived, want 3", got)
		}

		// A renewal that is not answered holds up no proof; a renewal keeps it.
		c.agrees(hang)
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		time.Sleep(11 * time.Second)
		newest := prove()
		is("while a renewal waits", newest)
		c.agrees(nil)
		time.Sleep(5 * time.Minute)
		w.settled()
		if w.saved(id).Renewed.IsZero() {
			t.Fatal("it was not renewed")
		}
		is("renewed", newest)
		old := provedAt(w.head())
		old.Callback, old.Proof.At = c.url, first.At
		w.send(old)
		w.settled()
		is("after an older one", newest)

		// The next hub has it, and goes on delivering.
		w.crash()
		w.start(Options{})
		w.settled()
		last := prove()
		is("at the next hub", last)
		w.publish("c", 1)
		w.settled()
		if got := c.locs(); len(got) != 4 {
			t.Errorf("%d changes arrived, want 4", len(got))
		}
		if left, err := w.registry.Inbox(t.Context(), id.Shard(), 0, 10); err != nil || len(left) != 0 {
			t.Errorf("%d requests are left (%v)", len(left), err)
		}

		// A renewal with another prefix begins without a proof, and takes none of the old one.
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Filter: feed.Filter{Prefix: "https://example.org/"}})
		w.settled()
		is("another prefix", subscription.Proof{})
		prove()
		is("a proof of the prefix before", subscription.Proof{})
	})
}

// A store without room for records keeps no proof, and no proof keeps it from anything else.
func TestProveFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, id := subscribed(t, 1)
		w.store.tight.Store(true)
		r := provedAt(w.head())
		r.Callback = c.url
		w.send(r)
		w.publish("b", 1)
		time.Sleep(time.Second)
		w.settled()
		if left, err := w.registry.Inbox(t.Context(), id.Shard(), 0, 10); err != nil || len(left) != 0 || len(c.locs()) != 2 {
			t.Errorf("%d requests are left (%v), %d changes arrived", len(left), err, len(c.locs()))
		}
		if p := w.saved(id).Proved; !p.At.IsZero() {
			t.Errorf("it is proved: %+v", p)
		}
	})
}
