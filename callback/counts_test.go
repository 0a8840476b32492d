package callback_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// A subscribeStep is a request for a subscription, and its response.
type subscribeStep struct {
	caller   string // default: alice
	callback string // host and query
	set      string // default: demo
	mode     string // default: subscribe
	want     int
	text     string // in the response
}

// follow does steps, whose callbacks are at receivers of the world.
func (a *api) follow(t *testing.T, steps ...subscribeStep) {
	t.Helper()
	for i, s := range steps {
		host, query, _ := strings.Cut(s.callback, "?")
		pairs := []string{"hub.topic", topic("demo"), "hub.mode", "subscribe"}
		if s.set != "" {
			pairs[1] = topic(s.set)
		}
		if s.mode != "" {
			pairs[3] = s.mode
		}
		a.caller = "alice"
		if s.caller != "" {
			a.caller = s.caller
		}
		r := a.subscribe("http://"+host+"/cb?"+query, pairs...)
		if r.Code != s.want || !strings.Contains(r.Body.String(), s.text) {
			t.Errorf("step %d, %+v: status = %d: %s", i, s, r.Code, r.Body)
		}
		if r.Code == 429 && r.Header().Get("Retry-After") != "30" {
			t.Errorf("step %d: Retry-After = %q, want 30", i, r.Header().Get("Retry-After"))
		}
	}
}

// count counts the subscriptions to the set demo with callbacks at a host.
func (w *world) count(host string) subscription.Count {
	return w.engine.Count(&subscription.Request{Set: "demo"}, host)
}

// New subscriptions are limited by host and by set; renewals are not.
func TestMostSubscriptions(t *testing.T) {
	const hostFull = "limit of 3 subscriptions with callbacks at a.example:80"
	const setFull = "limit of 5 subscriptions to set demo"
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		for _, host := range []string{"a.example", "b.example"} {
			w.receiver(host)
		}
		memorytest.Fill(t, w.log, "demo")
		memorytest.Fill(t, w.log, "other")
		limits := websub.Options{MaxPerHost: 3, MaxPerSet: 5}
		a := w.api(limits)
		a.follow(t,
			subscribeStep{callback: "a.example?0", want: 202},
			subscribeStep{callback: "a.example?1", want: 202},
			subscribeStep{callback: "a.example?2", want: 202},
			subscribeStep{callback: "a.example?3", want: 403, text: hostFull},
			subscribeStep{callback: "a.example?3", set: "other", want: 403, text: hostFull},
			subscribeStep{callback: "a.example?2", want: 202}, // a renewal
			subscribeStep{callback: "b.example?0", want: 202},
			subscribeStep{callback: "b.example?1", want: 202},
			subscribeStep{callback: "b.example?2", want: 403, text: setFull},
			subscribeStep{callback: "b.example?2", set: "other", want: 202},
			subscribeStep{callback: "a.example?0", want: 202},
			subscribeStep{callback: "b.example?0", want: 202},
		)
		if got, want := w.count("a.example:80"), (subscription.Count{Host: 3, Set: 5}); got != want {
			t.Errorf("Count() = %+v, want %+v", got, want)
		}
		a.follow(t,
			subscribeStep{callback: "a.example?0", mode: "unsubscribe", want: 202},
			subscribeStep{callback: "a.example?3", want: 202},
			subscribeStep{callback: "a.example?4", want: 403, text: hostFull},
		)
		w.restart()
		w.api(limits).follow(t,
			subscribeStep{callback: "a.example?4", want: 403, text: hostFull},
			subscribeStep{callback: "a.example?3", want: 202},
		)
	})
}

// Subscriptions that are not confirmed yet are limited by host. One that is given up makes room.
func TestMostUnverified(t *testing.T) {
	const hostFull = "4 subscriptions with callbacks at a.example:80"
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		c.url += "?"
		made := w.subscribe(c)
		c.verify(fail)
		w.receiver("b.example").verify(fail)
		memorytest.Fill(t, w.log, "demo")
		a := w.api(websub.Options{MaxUnverified: 4})
		for n := range 4 { // one caller may have half of the limit
			for range 4 - n { // repeated requests count once
				a.follow(t, subscribeStep{caller: fmt.Sprint("caller", n), callback: fmt.Sprint("a.example?", n), want: 202})
			}
		}
		a.follow(t,
			subscribeStep{callback: "a.example?4", want: 429, text: hostFull},
			subscribeStep{callback: "a.example", want: 202}, // a renewal
			subscribeStep{callback: "b.example?1", want: 202},
			subscribeStep{callback: "b.example?2", want: 202},
			subscribeStep{callback: "b.example?3", want: 429, text: "2 subscriptions of one caller"},
		)
		w.pass(2 * time.Minute) // each request was tried three times
		if got, want := w.count("a.example:80"), (subscription.Count{Host: 1, Set: 1}); got != want {
			t.Errorf("Count() = %+v, want %+v", got, want)
		}
		a.follow(t, subscribeStep{callback: "a.example?4", want: 202})
		if n := w.count("a.example:80").Fresh; n != 1 {
			t.Errorf("got %d unconfirmed subscriptions, want 1", n)
		}
		w.record(made)
		w.crash()
		w.wantNothingLeft()
	})
}

// One caller cannot use the limits of others, at a host or in a set, and has a limit of its own. It can
// renew its subscriptions. Operators have no such limits.
func TestMostSubscriptionsOfOneCaller(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		follow, err := access.ParseRights("follow:*")
		ok(t, err)
		for _, set := range []string{"demo", "other", "third"} {
			memorytest.Fill(t, w.log, set)
		}
		for i := range 5 {
			w.receiver(fmt.Sprintf("h%d.example", i))
		}
		a := w.api(websub.Options{MaxPerHost: 4, MaxPerSet: 6})
		a.rights = follow
		a.follow(t,
			subscribeStep{caller: "evil", callback: "h0.example?0", want: 202},
			subscribeStep{caller: "evil", callback: "h0.example?1", want: 202},
			subscribeStep{caller: "evil", callback: "h0.example?2", want: 403,
				text: "limit of 2 subscriptions of one caller with callbacks at h0.example:80"},
			subscribeStep{caller: "good", callback: "h0.example?2", want: 202},
			subscribeStep{caller: "evil", callback: "h1.example", want: 202},
			subscribeStep{caller: "evil", callback: "h2.example", want: 403,
				text: "limit of 3 subscriptions of one caller to set demo"},
			subscribeStep{caller: "good", callback: "h2.example", want: 202},
			subscribeStep{caller: "evil", callback: "h2.example", set: "other", want: 202},
			subscribeStep{caller: "evil", callback: "h3.example", set: "other", want: 202},
			subscribeStep{caller: "evil", callback: "h3.example", set: "third", want: 202},
			subscribeStep{caller: "evil", callback: "h4.example", set: "third", want: 403,
				text: "limit of 6 subscriptions of one caller reached"},
			subscribeStep{caller: "evil", callback: "h0.example?0", want: 202}, // a renewal
			subscribeStep{caller: "good", callback: "h4.example", set: "third", want: 202},
			subscribeStep{caller: "evil", callback: "h3.example", set: "third", mode: "unsubscribe", want: 202},
			subscribeStep{caller: "evil", callback: "h4.example?1", set: "third", want: 202},
		)
		a.rights = access.All()
		a.follow(t, subscribeStep{caller: "evil", callback: "h4.example?2", set: "third", want: 202})
		w.crash()
		w.wantNothingLeft()
	})
}

// A hub that has a part of the shards estimates all of them. A hub that has none, or has not loaded one of
// its shards, estimates zero.
func TestCountOfAPart(t *testing.T) {
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		const n = 1000
		w.shutdown()
		memorytest.Fill(t, w.log, "demo")
		for i := range n {
			w.put(subscription.Record{Subscription: subscription.Subscription{
				Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", i), Token: fmt.Sprint("token", i), LeaseEnd: time.Now().Add(time.Hour),
			}, Progress: subscription.Progress{Cursor: w.head()}})
		}
		w.start()
		const host = "callback.example:443"
		if got, want := w.count(host), (subscription.Count{Host: n, Set: n}); got != want {
			t.Errorf("Count() with all shards = %+v, want %+v", got, want)
		}
		third := func(i int) bool { return i%3 != 0 }
		w.lose(third)
		w.pass(time.Second)
		if got := w.count(host); got.Host < n*8/10 || got.Host > n*12/10 || got.Set != got.Host {
			t.Errorf("Count() with a third of the shards = %+v, want about %d; it has %d", got, n, w.metric("subscriptions"))
		}
		w.lose(func(i int) bool { return i%3 != 0 || i == 0 })
		w.pass(time.Second)
		w.store.onLoad(damaged)
		w.lose(third)
		w.pass(time.Second)
		if got := w.count(host); got != (subscription.Count{}) {
			t.Errorf("Count() with a shard that is not loaded = %+v, want zero", got)
		}
		w.lose(func(int) bool { return true })
		w.pass(time.Second)
		if got := w.count(host); got != (subscription.Count{}) {
			t.Errorf("Count() without shards = %+v, want zero", got)
		}
	})
}
