package callback_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
)

// A register is the Rights of callers by name. Tests change it.
type register struct {
	mu      sync.Mutex
	version uint64
	until   map[string]time.Time // by Request.By; callers that are not here have no rights
	asked   int
}

func (r *register) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

func (r *register) May(by, _ string, _ bool, _ string) (until time.Time, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
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

var alice, bob = subscription.ByToken("alice"), subscription.ByToken("bob")

func newRegister() *register {
	return &register{until: map[string]time.Time{alice: {}, bob: {}}}
}

// denied returns the reasons that a callback was told.
func (c *callee) denied() (reasons []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.asked {
		if q := r.URL.Query(); q.Get("hub.mode") == "denied" {
			reasons = append(reasons, q.Get("hub.reason"))
		}
	}
	return reasons
}

func deliveries(c *callee) int { tries, _, _ := c.counts(); return tries }

// A subscription may be removed before the hub has looked at the rights of whoever made it.
func TestRemovedBeforeRightsAreLookedAt(t *testing.T) {
	inWorld(t, callback.Options{Rights: newRegister()}, func(t *testing.T, w *world) {
		c := w.listen("quick.example")
		w.publish("a", 1)
		for range 3 {
			id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
			w.saved(id)
			w.sent(subscription.Request{Mode: subscription.Remove, Callback: c.url})
			time.Sleep(2 * rightsEvery)
		}
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		before := deliveries(c)
		w.published("b", 1)
		if n := deliveries(c) - before; n != 1 {
			t.Errorf("the next subscription gets %d deliveries", n)
		}
	})
}

// When the rights of a caller end, its subscriptions do, within ten seconds, also those that
// wait, fail, or have a delivery under way. Those of others go on. The callback is told, the
// record stays for operators, and a new request makes a new subscription.
func TestRightsEnd(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		idle, failing, slow, other := w.listen("idle.example"), w.listen("failing.example"), w.listen("slow.example"), w.listen("other.example")
		failing.says(status(http.StatusInternalServerError))
		slow.says(hang)
		w.publish("a", 1)
		var ids []subscription.ID
		for _, c := range []*callee{idle, failing, slow} {
			ids = append(ids, w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "own"}, Start: w.head(), Lease: 5 * time.Minute}))
		}
		theirs := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: other.url, By: bob, Start: w.head()})
		w.publish("b", 1)
		time.Sleep(3 * time.Second)
		before := deliveries(idle) + deliveries(failing) + deliveries(slow)

		r.remove(alice)
		w.published("c", 1) // a delivery asks for rights itself
		if n := deliveries(idle) + deliveries(failing) + deliveries(slow) - before; n != 0 {
			t.Errorf("%d deliveries after the rights ended", n)
		}
		time.Sleep(10 * time.Second)
		w.publish("d", 1)
		time.Sleep(time.Minute)
		for i, c := range []*callee{idle, failing, slow} {
			record := w.saved(ids[i])
			if record.Ended.IsZero() || time.Since(record.Ended) < time.Minute-time.Second || record.Why != "the token is gone" || record.Secret != "" || record.By != alice || record.LeaseEnd.After(time.Now().Add(5*time.Minute)) {
				t.Errorf("%s: saved is %+v", c.url, record.Subscription)
			}
			if got := c.denied(); len(got) != 1 || got[0] != "the token is gone" {
				t.Errorf("%s: it was denied %q", c.url, got)
			}
		}
		if n := deliveries(idle) + deliveries(failing) + deliveries(slow) - before; n != 0 {
			t.Errorf("%d deliveries after the rights ended", n)
		}
		if got := other.locs(); len(got) != 3 || !w.saved(theirs).Ended.IsZero() {
			t.Errorf("the other got %v", got)
		}

		// Another hub sees what ended, too. Somebody else may subscribe the callback now.
		w.shutdown()
		w.start(callback.Options{Rights: r})
		w.published("e", 1)
		again := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: idle.url, By: bob, Start: w.head()})
		if record := w.saved(again); !record.Ended.IsZero() || record.Why != "" || record.By != bob || again != ids[0] {
			t.Errorf("made anew is %+v", record.Subscription)
		}
		w.published("f", 1)
		if got := idle.locs(); len(got) != 2 || !strings.HasPrefix(got[1], "f") {
			t.Errorf("it got %v", got)
		}
		w.sent(subscription.Request{Mode: subscription.Remove, Callback: failing.url})
		if !w.gone(ids[1]) {
			t.Error("an operator cannot remove what has ended")
		}
		w.pass(5 * time.Minute)
		if !w.gone(ids[2]) || w.gone(again) || len(slow.denied()) != 1 {
			t.Errorf("after its lease it is gone: %v; denied %v", w.gone(ids[2]), slow.denied())
		}
	})
}

// Subscriptions that nothing happens to cost nothing: rights are asked for when they change,
// and when something is delivered.
func TestRightsOfIdle(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		for i := range 20 {
			w.subscribe(w.listen(string(rune('a'+i)) + ".example"))
		}
		time.Sleep(2 * rightsEvery)
		asked := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.asked }
		before := asked()
		time.Sleep(5 * time.Minute)
		if n := asked() - before; n != 0 {
			t.Errorf("%d questions in five minutes", n)
		}
		r.set("token carol", time.Time{})
		time.Sleep(2 * rightsEvery)
		if n := asked() - before; n != 20 {
			t.Errorf("%d questions after a change", n)
		}
	})
}

// A lease ends when the token expires, also if that is later than when it was granted made
// sooner, and a newer token prolongs it.
func TestTokenExpires(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		c := w.listen("a.example")
		begin := time.Now()
		ask := func(until time.Time) subscription.ID {
			defer w.settled()
			return w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head(), Lease: 10 * time.Hour, Until: until})
		}
		granted := func() string { return c.question().Get("hub.lease_seconds") }
		id := ask(begin.Add(5 * time.Minute))
		if got := w.saved(id); !got.LeaseEnd.Equal(begin.Add(5*time.Minute)) || granted() != "300" {
			t.Errorf("granted is %s s, until %v", granted(), got.LeaseEnd)
		}
		ask(begin.Add(10 * time.Minute))
		if got := w.saved(id); !got.LeaseEnd.Equal(begin.Add(10*time.Minute)) || granted() != "600" {
			t.Errorf("granted is %s s, until %v", granted(), got.LeaseEnd)
		}
		// Somebody else cannot prolong it beyond that.
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 10 * time.Hour, By: bob})
		if got := w.saved(id); !got.LeaseEnd.Equal(begin.Add(10 * time.Minute)) {
			t.Errorf("somebody else has prolonged it to %v", got.LeaseEnd)
		}
		r.set(alice, begin.Add(3*time.Minute))
		w.pass(3*time.Minute + 2*time.Second)
		if got := c.denied(); !w.gone(id) || len(got) != 1 || !strings.HasPrefix(got[0], "lease expired") {
			t.Errorf("after the token has expired, it is gone: %v; it was denied %q", w.gone(id), got)
		}
		// A request that is carried out too late makes nothing.
		c.agrees(status(http.StatusServiceUnavailable))
		ask(time.Now().Add(time.Second))
		c.agrees(nil)
		w.pass(unsureFor + time.Minute)
		if got := c.denied(); !w.gone(id) || len(got) != 2 {
			t.Errorf("it was denied %q", got)
		}
	})
}

// An operator may move the end of a token. What the lease was granted for stays as it was.
func TestTokenExpiresLater(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		c := w.listen("a.example")
		w.publish("a", 1)
		begin := time.Now()
		ask := func(mode subscription.Mode, by string) subscription.ID {
			defer w.settled()
			return w.send(subscription.Request{Mode: mode, Callback: c.url, Start: w.head(), Lease: 10 * time.Hour, By: by})
		}
		id := ask(subscription.Subscribe, alice)
		r.set(alice, begin.Add(5*time.Minute))
		time.Sleep(2 * rightsEvery)
		ask(subscription.Retry, alice)
		if got := w.saved(id).LeaseEnd; !got.Equal(begin.Add(10 * time.Hour)) {
			t.Errorf("what is kept ends at %v", got)
		}
		r.set(alice, time.Time{})
		w.pass(10 * time.Minute)
		if w.gone(id) || len(c.denied()) > 0 {
			t.Fatalf("it has ended: %q", c.denied())
		}
		w.published("b", 1)
		if len(c.locs()) != 1 {
			t.Errorf("it got %v", c.locs())
		}
	})
}

// Where the end of a token was, nothing happens once it is elsewhere: no delivery comes before the
// interval that the subscriber asked for is over.
func TestTokenExpiredHere(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		c := w.listen("a.example")
		w.publish("a", 1)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head(), Terms: subscription.Terms{Every: 12 * time.Minute}})
		w.published("b", 1)
		r.set(alice, time.Now().Add(2*time.Minute))
		w.publish("c", 1)
		time.Sleep(time.Minute)
		r.set(alice, time.Time{})
		for _, test := range []struct {
			after time.Duration
			want  int
		}{{6 * time.Minute, 1}, {6 * time.Minute, 2}} {
			w.pass(test.after)
			if n := deliveries(c); n != test.want {
				t.Errorf("after %v more there are %d deliveries, want %d", test.after, n, test.want)
			}
		}
	})
}

// A hub that has never heard of a token waits a little, and delivers nothing meanwhile: other
// hubs may have read the new file before. Then it ends what the token made.
func TestUnheardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRegister()
		w := newLongWorld(t, callback.Options{})
		heard, never := w.listen("heard.example"), w.listen("never.example")
		first := w.send(subscription.Request{Mode: subscription.Subscribe, Callback: heard.url, By: "token new", Start: w.head()})
		second := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: never.url, By: "token wrong", Start: w.head()})
		w.shutdown()
		w.start(callback.Options{Rights: r})
		w.publish("a", 1)
		time.Sleep(30 * time.Second)
		if deliveries(heard)+deliveries(never) != 0 || !w.saved(first).Ended.IsZero() {
			t.Errorf("before the token is known, %d deliveries", deliveries(heard)+deliveries(never))
		}
		r.set("token new", time.Time{})
		w.pass(unsureFor)
		if len(heard.locs()) != 1 || len(heard.denied()) != 0 {
			t.Errorf("once the token is known, it got %v, and was denied %v", heard.locs(), heard.denied())
		}
		if deliveries(never) != 0 || w.saved(second).Ended.IsZero() || len(never.denied()) != 1 {
			t.Errorf("the one that nobody knows: %d deliveries, denied %v", deliveries(never), never.denied())
		}
		// The same of a request that waits.
		asked := never.questions()
		id := w.send(subscription.Request{Mode: subscription.Subscribe, Callback: never.url + "2", By: "token wrong"})
		w.pass(unsureFor + 2*unsureRetry)
		if !w.gone(id) || never.questions() != asked+1 || len(never.denied()) != 2 {
			t.Errorf("it was asked %d times, denied %v", never.questions()-asked, never.denied())
		}
	})
}

// A hub that takes a subscription over may not have heard of its token yet either, also if the
// subscription is not new: only the hub before may have read the newest keys.
func TestTakenOverUnheardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, By: "token new", Start: w.head()})
		time.Sleep(2 * unsureFor) // it is no longer new
		w.shutdown()
		r := newRegister()
		w.start(callback.Options{Rights: r})
		w.publish("a", 1)
		w.pass(30 * time.Second)
		if record := w.saved(id); deliveries(c) != 0 || !record.Ended.IsZero() {
			t.Fatalf("before the token is known, there are %d deliveries, and it ended at %v", deliveries(c), record.Ended)
		}
		r.set("token new", time.Time{})
		w.pass(unsureRetry + 2*time.Second)
		c.check(0, 1)
		r.remove("token new")
		w.pass(2 * time.Second)
		if w.saved(id).Ended.IsZero() {
			t.Error("it goes on, though the token that was known is gone")
		}
	})
}

// A renewal is confirmed and waits for the store when the rights of its subscriber end, and with them the
// subscription. If the rights return soon, deliveries start where the callback was told.
func TestRightsEndDuringARenewal(t *testing.T) {
	r := newRegister()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{Rights: r})
		c, id := w.subscribed()
		time.Sleep(unsureFor)
		c.says(status(http.StatusInternalServerError))
		w.published("a", 3)
		w.store.tight.Store(true)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		told := c.question().Get("rs.since")
		if told != "0-0" {
			t.Fatalf("told rs.since=%s", told)
		}
		r.remove(alice)
		time.Sleep(3 * time.Second)
		w.store.tight.Store(false)
		w.pass(3 * time.Second)
		if len(c.denied()) != 1 || w.saved(id).Ended.IsZero() {
			t.Fatalf("got denials %q and record %+v, want one denial and an ended subscription", c.denied(), w.saved(id))
		}
		r.set(alice, time.Time{})
		c.says(nil)
		w.pass(time.Minute)
		c.check(0, 3)
	})
}

// What ends with the rights of its subscriber is what was subscribed to, in its form.
func TestRightsEndInAForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRegister()
		w := newLongWorld(t, callback.Options{Rights: r, Formats: map[string]*outlet.Format{"atom.xml": callback.AtomFormat}})
		made, asked := w.listen("made.example"), w.listen("asked.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: made.url, Form: "atom.xml", Lease: 5 * time.Minute})
		r.remove(alice)
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: asked.url, Form: "atom.xml"})
		time.Sleep(4 * time.Minute)
		for _, c := range []*callee{made, asked} {
			q := c.question()
			if q.Get("hub.mode") != "denied" || q.Get("hub.topic") != base+"/sets/demo/atom.xml" {
				t.Errorf("%s is told %v", c.url, q)
			}
		}
		if w.saved(id).Ended.IsZero() {
			t.Error("it has not ended")
		}
		w.pass(2 * time.Minute)
		if !w.gone(id) {
			t.Error("what is kept of it outlives its lease")
		}
	})
}

// After a renewal with another secret both sign for a day. What is asked of a callback, and
// what it is told, is signed too, and dated.
func TestTwoSecrets(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		c.url += "?own=1"
		ask := func(secret string) {
			t.Helper()
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: secret}, Start: w.head(), Lease: 72 * time.Hour})
		}
		asked := func(mode, secret, former string) {
			t.Helper()
			c.mu.Lock()
			defer c.mu.Unlock()
			r := c.asked[len(c.asked)-1]
			query := []byte(r.URL.RawQuery)
			for name, want := range map[string]string{"Rs-Signature": signed(secret, query), "Rs-Former-Signature": signed(former, query)} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %s is %q, want %q", mode, name, got, want)
				}
			}
			q := r.URL.Query()
			at, err := time.Parse(time.RFC3339, q.Get("rs.time"))
			if q.Get("hub.mode") != mode || q.Get("own") != "1" || secret != "" && (err != nil || time.Since(at).Abs() > 2*time.Second) || secret == "" && q.Has("rs.time") {
				t.Errorf("%s: the query is %s", mode, r.URL.RawQuery)
			}
			if r.Header.Get("X-Hub-Signature") != "" {
				t.Errorf("%s: a GET has no body to sign", mode)
			}
		}
		delivered := func(secret, former string) {
			t.Helper()
			w.published("x", 1)
			d := c.last()
			for name, want := range map[string]string{"X-Hub-Signature": signed(secret, d.body), "Rs-Former-Signature": signed(former, d.body)} {
				if got := d.header.Values(name); want == "" && len(got) != 0 || want != "" && (len(got) != 1 || got[0] != want) {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		}
		ask("")
		asked("subscribe", "", "")
		delivered("", "")
		ask("one")
		asked("subscribe", "one", "")
		delivered("one", "")
		c.agrees(status(http.StatusNotFound))
		ask("never")
		asked("subscribe", "never", "one")
		delivered("one", "")
		c.agrees(nil)
		ask("two")
		asked("subscribe", "two", "one")
		delivered("two", "one")
		ask("three")
		delivered("three", "two")
		w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url, Terms: subscription.Terms{Secret: "wrong"}})
		asked("unsubscribe", "three", "two")
		ask("four")
		asked("subscribe", "four", "")
		w.sent(subscription.Request{Mode: subscription.Remove, Callback: c.url})
		asked("denied", "four", "")
	})
}
