package callback_test

import (
	"net/http"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
)

// stranger is a caller without a token.
var stranger = subscription.ByAddress(netip.MustParseAddr("192.0.2.66"))

// A callback confirms everything. A stranger's request changes nothing of the
// subscription but the end of its lease, also when it was accepted before there was one.
func TestStrangersRenewal(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		c.agrees(status(http.StatusServiceUnavailable)) // so that both requests wait
		own := subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "own"}, Lease: time.Hour}
		id := w.sent(own)
		theirs := subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "theirs"}, Lease: 2 * time.Hour, By: stranger}
		w.sent(theirs)
		c.agrees(nil)
		w.pass(time.Minute)
		check := func(what string, left time.Duration) {
			t.Helper()
			r := w.saved(id)
			if got := time.Until(r.LeaseEnd); r.Secret != "own" || r.By != subscription.ByToken("alice") || got > left || got < left-time.Minute {
				t.Errorf("%s: saved is %+v, which ends in %v", what, r.Subscription, got)
			}
			w.published("a", 1)
			if d := c.last(); d.header.Get("X-Hub-Signature") != signed("own", d.body) {
				t.Errorf("%s: the signature is %q", what, d.header.Get("X-Hub-Signature"))
			}
			w.pass(saveEvery)
			w.noRequests(id)
		}
		check("both waited", time.Hour)
		asked := c.questions()
		for _, secret := range []string{"", "theirs"} {
			theirs.Secret = secret
			w.sent(theirs)
			check("with the secret "+secret, time.Hour)
		}
		if n := c.questions() - asked; n != 0 {
			t.Errorf("the callback was asked %d times", n)
		}
		// Who knows the secret may also shorten the lease.
		for _, lease := range []time.Duration{3 * time.Hour, 2 * time.Hour} {
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "own"}, Lease: lease, By: stranger, Token: "wrong"})
			granted := c.question().Get("hub.lease_seconds")
			if want := map[time.Duration]string{3 * time.Hour: "10800", 2 * time.Hour: "7200"}[lease]; granted != want {
				t.Errorf("for %v, %s s are granted", lease, granted)
			}
		}
	})
}

// A stranger's request replaces none that waits and has other terms.
func TestStrangersRequest(t *testing.T) {
	for name, terms := range registrytest.Terms(t) {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c := w.listen("a.example")
				c.agrees(status(http.StatusServiceUnavailable)) // so that both requests wait
				id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: time.Hour})
				w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: time.Hour, Terms: terms, By: stranger})
				c.agrees(nil)
				w.pass(time.Minute)
				if r := w.saved(id); !reflect.DeepEqual(r.Terms, subscription.Terms{}) || r.By != subscription.ByToken("alice") {
					t.Errorf("got terms %+v by %s, want none by alice", r.Terms, r.By)
				}
			})
		})
	}
}

// Without a secret a stranger can prolong a lease, but not shorten it, and the callback is
// told the lease that it has.
func TestStrangersLease(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: time.Hour})
		for _, lease := range []time.Duration{5 * time.Minute, 2 * time.Hour} {
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: lease, By: stranger})
			want := max(lease, time.Hour)
			if r := w.saved(id); time.Until(r.LeaseEnd) != want || r.By != subscription.ByToken("alice") {
				t.Errorf("saved is %+v", r.Subscription)
			}
			granted := c.question().Get("hub.lease_seconds")
			if want := map[time.Duration]string{time.Hour: "3600", 2 * time.Hour: "7200"}[want]; granted != want {
				t.Errorf("granted are %s s", granted)
			}
		}
	})
}
