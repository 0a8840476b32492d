package callback_test

import (
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
)

// A register is the Rights of callers by name. Tests change it.
type register struct {
	mu      sync.Mutex
	version uint64
	until   map[string]time.Time // by Request.By; other callers have no rights
	calls   int
}

// newRegister returns a register in which alice and bob have rights.
func newRegister() *register {
	return &register{until: map[string]time.Time{alice: {}, bob: {}}}
}

func (r *register) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

func (r *register) May(by, _ string, _ bool, _ string) (until time.Time, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	until, ok := r.until[by]
	if !ok {
		return time.Time{}, "the token is gone"
	}
	return until, ""
}

func (r *register) set(by string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.until[by] = until
}

func (r *register) remove(by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	delete(r.until, by)
}

// popCalls returns the calls of May since popCalls was last called.
func (r *register) popCalls() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, r.calls = r.calls, 0
	return n
}

// inWorldWithRights runs a test in a world with a register.
func inWorldWithRights(t *testing.T, test func(t *testing.T, w *world, r *register)) {
	t.Helper()
	r := newRegister()
	inWorld(t, callback.Options{Rights: r}, func(t *testing.T, w *world) { test(t, w, r) })
}

// ended reports whether a subscription has ended and its record is left.
func (w *world) ended(id subscription.ID) bool {
	w.t.Helper()
	return !w.record(id).Ended.IsZero()
}

// A subscription may be removed before the rights of its maker are checked.
func TestRemovedBeforeRightsAreChecked(t *testing.T) {
	inWorldWithRights(t, func(t *testing.T, w *world, _ *register) {
		c := w.receiver("quick.example")
		w.publish("a", 1)
		for range 3 {
			w.subscribe(c)
			w.do(subscription.Remove, c)
			w.pass(2 * rightsEvery)
		}
		w.subscribe(c)
		w.publish("b", 1)
		if n := c.posts.len(); n != 1 {
			t.Errorf("got %d deliveries to the last subscription, want 1", n)
		}
	})
}

// When the rights of a caller end, its subscriptions end within ten seconds, even those that wait, fail, or have
// a delivery in flight, but no subscriptions of others. The callback is notified, the record stays for operators, and a
// new request makes a new subscription.
func TestRightsEnd(t *testing.T) {
	inWorldWithRights(t, func(t *testing.T, w *world, r *register) {
		idle, failing, slow := w.receiver("idle.example"), w.receiver("failing.example"), w.receiver("slow.example")
		all, other := []*receiver{idle, failing, slow}, w.receiver("other.example")
		failing.respond(fail)
		slow.respond(hang)
		w.publish("a", 1)
		var ids []subscription.ID
		for _, c := range all {
			ids = append(ids, w.request(c, subscription.Request{Terms: secret("own"), Start: w.head(), Lease: 5 * time.Minute}))
		}
		otherID := w.request(other, subscription.Request{By: bob, Start: w.head()})
		w.publish("b", 1)
		w.pass(3 * time.Second)
		deliveries := func() int { return idle.posts.len() + failing.posts.len() + slow.posts.len() }
		before := deliveries()

		r.remove(alice)
		w.publish("c", 1) // a delivery checks rights itself
		w.pass(10 * time.Second)
		w.publish("d", 1)
		w.pass(time.Minute)
		if n := deliveries() - before; n != 0 {
			t.Errorf("got %d deliveries after the rights ended, want 0", n)
		}
		for i, c := range all {
			got := w.record(ids[i]).Subscription
			if age := time.Since(got.Ended); age < 59*time.Second || age > 71*time.Second || got.Why != "the token is gone" || got.Secret != "" || got.By != alice || got.LeaseEnd.After(time.Now().Add(5*time.Minute)) {
				t.Errorf("%s: subscription = %+v, want one of alice that ended", c.url, got)
			}
			c.wantDenials("the token is gone")
		}
		if got := other.names(); got != "b/0 c/0 d/0" || w.ended(otherID) {
			t.Errorf("the subscription of bob received %s, want b/0 c/0 d/0", got)
		}

		// Another hub knows what ended, too. Another caller may subscribe the callback.
		w.restart()
		w.publish("e", 1)
		again := w.request(idle, subscription.Request{By: bob, Start: w.head()})
		if got := w.record(again).Subscription; !got.Ended.IsZero() || got.Why != "" || got.By != bob || again != ids[0] {
			t.Errorf("new subscription = %+v, want the subscription of bob", got)
		}
		w.publish("f", 1)
		idle.wantNames("b/0 f/0")
		w.do(subscription.Remove, failing)
		w.wantGone(ids[1])
		w.pass(5 * time.Minute)
		w.wantGone(ids[2])
		w.record(again)
		slow.wantDenials("the token is gone")
	})
}

// Rights are checked when they change and at deliveries, so idle subscriptions cost nothing.
func TestRightsOfIdle(t *testing.T) {
	inWorldWithRights(t, func(t *testing.T, w *world, r *register) {
		for i := range 20 {
			w.subscribe(w.receiver(string(rune('a'+i)) + ".example"))
		}
		w.pass(2 * rightsEvery)
		r.popCalls()
		w.pass(5 * time.Minute)
		if n := r.popCalls(); n != 0 {
			t.Errorf("got %d checks in five minutes, want 0", n)
		}
		r.set("token carol", time.Time{})
		w.pass(2 * rightsEvery)
		if n := r.popCalls(); n != 20 {
			t.Errorf("got %d checks after a change, want 20", n)
		}
	})
}

// A lease ends when the token expires, even if that is made earlier after the lease was granted. A newer token
// prolongs it.
func TestTokenExpires(t *testing.T) {
	const expired = "lease expired; the set does not exist"
	inWorldWithRights(t, func(t *testing.T, w *world, r *register) {
		c := w.receiver("a.example")
		start := time.Now()
		request := func(by string, until time.Time) subscription.ID {
			return w.request(c, subscription.Request{Start: w.head(), Lease: 10 * time.Hour, By: by, Until: until})
		}
		wantLease := func(id subscription.ID, end time.Time, seconds string) {
			t.Helper()
			if got := w.record(id).LeaseEnd; !got.Equal(end) {
				t.Errorf("lease ends at %v, want %v", got, end)
			}
			c.wantQuery(map[string]string{"hub.lease_seconds": seconds})
		}
		id := request(alice, start.Add(5*time.Minute))
		wantLease(id, start.Add(5*time.Minute), "300")
		request(alice, start.Add(10*time.Minute))
		wantLease(id, start.Add(10*time.Minute), "600")
		request(bob, time.Time{}) // cannot prolong it beyond that
		wantLease(id, start.Add(10*time.Minute), "600")
		r.set(alice, start.Add(3*time.Minute))
		w.pass(3*time.Minute + 2*time.Second)
		w.wantGone(id)
		c.wantDenials(expired)
		// A request that is executed after the end of its token makes nothing.
		c.verify(status(503))
		request(alice, time.Now().Add(time.Second))
		c.verify(confirm)
		w.pass(unsureFor + time.Minute)
		w.wantGone(id)
		c.wantDenials(expired, "the token of the request has expired")
	})
}

// An operator may change the end of a token. The lease that was granted stays as it was, and nothing happens at the
// earlier end: no delivery comes before the end of the interval that the subscriber requested.
func TestTokenEndMoved(t *testing.T) {
	inWorldWithRights(t, func(t *testing.T, w *world, r *register) {
		c := w.receiver("a.example")
		start := time.Now()
		id := w.request(c, subscription.Request{Lease: 10 * time.Hour, Terms: subscription.Terms{Every: 12 * time.Minute}})
		w.publish("a", 1)
		r.set(alice, start.Add(2*time.Minute))
		w.publish("b", 1)
		w.pass(time.Minute)
		r.set(alice, time.Time{})
		w.pass(6 * time.Minute)
		c.wantRequests(1, 1)
		w.pass(6 * time.Minute)
		c.wantRequests(2, 1)
		r.set(alice, start.Add(20*time.Minute))
		w.pass(2 * rightsEvery)
		w.request(c, subscription.Request{Mode: subscription.Move, Start: w.head()}) // stores the record
		if got := w.record(id).LeaseEnd; !got.Equal(start.Add(10 * time.Hour)) {
			t.Errorf("stored lease ends at %v, want %v", got, start.Add(10*time.Hour))
		}
	})
}

// A hub that has never known a token waits, and delivers nothing, because other hubs may have read the new file
// earlier. That holds for new subscriptions, and for subscriptions that it takes over. Then it ends the ones that
// the token made.
func TestUnknownToken(t *testing.T) {
	for _, tt := range []struct {
		name string
		age  time.Duration // of the subscription
	}{{"new", 0}, {"taken over", 2 * unsureFor}} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			late, never := w.receiver("late.example"), w.receiver("never.example")
			lateID := w.request(late, subscription.Request{By: "token late"})
			neverID := w.request(never, subscription.Request{By: "token never"})
			w.pass(tt.age)
			r := newRegister()
			w.opts.Rights = r
			w.restart()
			w.publish("a", 1)
			w.pass(30 * time.Second)
			late.wantRequests(0, 1)
			never.wantRequests(0, 1)
			if w.ended(lateID) {
				t.Fatal("the subscription ended before its token became known")
			}
			r.set("token late", time.Time{})
			w.pass(unsureRetry + 2*time.Second)
			late.wantChanges(0, 1)
			w.pass(unsureFor)
			late.wantRequests(1, 1)
			never.wantRequests(0, 2)
			never.wantDenials("the token is gone")
			if !w.ended(neverID) {
				t.Error("the subscription of an unknown token has not ended")
			}
			r.remove("token late") // it was known, so there is no wait
			if w.pass(2 * time.Second); !w.ended(lateID) {
				t.Error("the subscription continues without its token")
			}
			// A request waits, too.
			never.url += "2"
			id := w.request(never, subscription.Request{By: "token never"})
			w.pass(unsureFor - 2*unsureRetry)
			never.wantRequests(0, 2)
			w.pass(4 * unsureRetry)
			never.wantRequests(0, 3)
			never.wantDenials("the token is gone", "the token is gone")
			w.wantGone(id)
		})
	}
}

// A renewal is confirmed and waits for the store when the rights of its subscriber end, and with them the
// subscription. If the rights return soon, deliveries start where the callback was told.
func TestRightsEndDuringRenewal(t *testing.T) {
	inWorldWithRights(t, func(t *testing.T, w *world, r *register) {
		c, id := w.subscriber()
		w.pass(unsureFor)
		c.respond(fail)
		w.publish("a", 3)
		w.store.onCommit(noRecords)
		w.request(c, subscription.Request{Start: w.head()})
		c.wantQuery(map[string]string{"rs.since": "0-0"})
		r.remove(alice)
		w.pass(3 * time.Second)
		w.store.onCommit(nil)
		w.pass(3 * time.Second)
		c.wantDenials("the token is gone")
		if !w.ended(id) {
			t.Fatal("the subscription has not ended")
		}
		r.set(alice, time.Time{})
		c.respond(accept)
		w.pass(time.Minute)
		c.wantChanges(0, 3)
	})
}

// Denials because of rights name the topic of the form that was requested.
func TestRightsEndInAForm(t *testing.T) {
	r := newRegister()
	o := callback.Options{Rights: r, Formats: map[string]*outlet.Format{"atom.xml": callback.AtomFormat}}
	inWorld(t, o, func(t *testing.T, w *world) {
		made, requested := w.receiver("made.example"), w.receiver("requested.example")
		id := w.request(made, subscription.Request{Form: "atom.xml", Lease: 5 * time.Minute})
		r.remove(alice)
		w.request(requested, subscription.Request{Form: "atom.xml"})
		w.pass(4 * time.Minute)
		for _, c := range []*receiver{made, requested} {
			c.wantQuery(map[string]string{"hub.mode": "denied", "hub.topic": base + "/sets/demo/atom.xml"})
		}
		if !w.ended(id) {
			t.Error("the subscription has not ended")
		}
		w.pass(2 * time.Minute)
		w.wantGone(id)
	})
}

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
				t.Errorf("%s: subscription = %+v, want the subscription of alice, for an hour", step, r.Subscription)
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
			c.wantQuery(map[string]string{"hub.lease_seconds": want})
		}
	})
}
