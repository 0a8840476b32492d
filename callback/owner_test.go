package callback

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// stranger is a caller without a token.
var stranger = subscription.ByAddress(netip.MustParseAddr("192.0.2.66"))

// A callback confirms everything. A stranger's request changes nothing of the
// subscription but the end of its lease, also when it was accepted before there was one.
func TestStrangersRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		c.agrees(status(http.StatusServiceUnavailable)) // so that both requests wait
		own := subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Secret: "own", Lease: time.Hour}
		id := w.send(own)
		w.settled()
		theirs := subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Secret: "theirs", Lease: 2 * time.Hour, By: stranger}
		w.send(theirs)
		w.settled()
		c.agrees(nil)
		time.Sleep(time.Minute)
		w.settled()
		check := func(what string, left time.Duration) {
			t.Helper()
			r := w.saved(id)
			if got := time.Until(r.LeaseEnd); r.Secret != "own" || r.By != subscription.ByToken("alice") || got > left || got < left-time.Minute {
				t.Errorf("%s: saved is %+v, which ends in %v", what, r.Subscription, got)
			}
			w.publish("a", 1)
			w.settled()
			if d := c.last(); d.header.Get("X-Hub-Signature") != signed("own", d.body) {
				t.Errorf("%s: the signature is %q", what, d.header.Get("X-Hub-Signature"))
			}
			time.Sleep(saveEvery)
			w.settled()
			if left, err := w.registry.Inbox(t.Context(), id.Shard(), 0, 10); err != nil || len(left) != 0 {
				t.Errorf("%s: in the inbox are %v, %v", what, left, err)
			}
		}
		check("both waited", time.Hour)
		asked := c.questions()
		for _, secret := range []string{"", "theirs"} {
			theirs.Secret = secret
			w.send(theirs)
			w.settled()
			check("with the secret "+secret, time.Hour)
		}
		if n := c.questions() - asked; n != 0 {
			t.Errorf("the callback was asked %d times", n)
		}
		// Who knows the secret may also shorten the lease.
		for _, lease := range []time.Duration{3 * time.Hour, 2 * time.Hour} {
			w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Secret: "own", Lease: lease, By: stranger, Token: "wrong"})
			w.settled()
			c.mu.Lock()
			granted := c.asked[len(c.asked)-1].URL.Query().Get("hub.lease_seconds")
			c.mu.Unlock()
			if want := map[time.Duration]string{3 * time.Hour: "10800", 2 * time.Hour: "7200"}[lease]; granted != want {
				t.Errorf("for %v, %s s are granted", lease, granted)
			}
		}
	})
}

// Without a secret a stranger can prolong a lease, but not shorten it, and the callback is
// told the lease that it has.
func TestStrangersLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		id := w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: time.Hour})
		w.settled()
		for _, lease := range []time.Duration{5 * time.Minute, 2 * time.Hour} {
			w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: lease, By: stranger})
			w.settled()
			want := max(lease, time.Hour)
			if r := w.saved(id); time.Until(r.LeaseEnd) != want || r.By != subscription.ByToken("alice") {
				t.Errorf("saved is %+v", r.Subscription)
			}
			c.mu.Lock()
			granted := c.asked[len(c.asked)-1].URL.Query().Get("hub.lease_seconds")
			c.mu.Unlock()
			if want := map[time.Duration]string{time.Hour: "3600", 2 * time.Hour: "7200"}[want]; granted != want {
				t.Errorf("granted are %s s", granted)
			}
		}
	})
}
