package callback_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
)

// A callback confirms everything. A stranger's request changes nothing of the subscription but the end of its
// lease, even if it was accepted before the subscription was made.
func TestStrangersRenewal(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		c.verify(status(503)) // so that both requests wait
		own := subscription.Request{Terms: secret("own"), Lease: time.Hour}
		id := w.request(c, own)
		theirs := subscription.Request{Terms: secret("theirs"), Lease: 2 * time.Hour, By: stranger}
		w.request(c, theirs)
		c.verify(confirm)
		w.pass(time.Minute)
		check := func(step string) {
			t.Helper()
			r := w.record(id)
			if left := time.Until(r.LeaseEnd); r.Secret != "own" || r.By != alice || left > time.Hour || left < 59*time.Minute {
				t.Errorf("%s: subscription = %+v, want that of alice, for an hour", step, r.Subscription)
			}
			w.publish("a", 1)
			c.last().wantSignature(t, "own")
			w.pass(saveEvery)
			w.wantEmptyInbox(id)
		}
		check("both waited")
		gets := c.gets.len()
		for _, s := range []string{"", "theirs"} {
			theirs.Terms = secret(s)
			w.request(c, theirs)
			check("renewal with secret " + s)
		}
		if n := c.gets.len() - gets; n != 0 {
			t.Errorf("got %d verifications, want 0", n)
		}
		// A stranger who knows the secret may also shorten the lease.
		for lease, want := range map[time.Duration]string{3 * time.Hour: "10800", 2 * time.Hour: "7200"} {
			w.request(c, subscription.Request{Terms: secret("own"), Lease: lease, By: stranger, Token: "wrong"})
			if got := c.query().Get("hub.lease_seconds"); got != want {
				t.Errorf("hub.lease_seconds = %s, want %s", got, want)
			}
		}
	})
}

// A stranger's request replaces none that waits and has other terms.
func TestStrangersRequest(t *testing.T) {
	for name, terms := range registrytest.Terms(t) {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c := w.receiver("a.example")
				c.verify(status(503)) // so that both requests wait
				id := w.request(c, subscription.Request{Lease: time.Hour})
				w.request(c, subscription.Request{Lease: time.Hour, Terms: terms, By: stranger})
				c.verify(confirm)
				w.pass(time.Minute)
				if r := w.record(id); !reflect.DeepEqual(r.Terms, subscription.Terms{}) || r.By != alice {
					t.Errorf("got terms %+v by %s, want none by alice", r.Terms, r.By)
				}
			})
		})
	}
}

// Without a secret a stranger can prolong a lease, but not shorten it, and the callback is told its lease.
func TestStrangersLease(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Lease: time.Hour})
		for _, tt := range []struct {
			lease, want time.Duration
			seconds     string
		}{
			{5 * time.Minute, time.Hour, "3600"},
			{2 * time.Hour, 2 * time.Hour, "7200"},
		} {
			w.request(c, subscription.Request{Lease: tt.lease, By: stranger})
			if r := w.record(id); time.Until(r.LeaseEnd) != tt.want || r.By != alice {
				t.Errorf("subscription after a renewal for %v = %+v, want that of alice for %v", tt.lease, r.Subscription, tt.want)
			}
			if got := c.query().Get("hub.lease_seconds"); got != tt.seconds {
				t.Errorf("hub.lease_seconds = %s, want %s", got, tt.seconds)
			}
		}
	})
}
