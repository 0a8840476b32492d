package callback_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// New subscriptions are bounded by host and by set, renewals never are.
func TestMostSubscriptions(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		a, b := w.listen("a.example"), w.listen("b.example")
		limits := websub.Options{MaxPerHost: 3, MaxPerSet: 5}
		d := w.desk(limits)
		memorytest.Fill(t, w.log, "demo")
		memorytest.Fill(t, w.log, "other")
		post := func(status int, callback string, more ...string) {
			t.Helper()
			r := d.post(asking(append([]string{"hub.callback", callback}, more...)...))
			w.settled()
			if r.Code != status {
				t.Errorf("%s %q is answered %d, want %d: %s", callback, more, r.Code, status, r.Body)
			}
			if limit := r.Body.String(); status == 403 && !strings.Contains(limit, "limit of 3 subscriptions with callbacks at a.example:80") && !strings.Contains(limit, "limit of 5 subscriptions to set demo") {
				t.Errorf("it does not name the limit: %s", limit)
			}
		}
		for n := range 3 {
			post(202, fmt.Sprint(a.url, n))
		}
		post(403, a.url+"3")
		post(403, a.url+"3", "hub.topic", base+"/sets/other/changes")
		post(202, a.url+"2") // renewed
		post(202, b.url+"0")
		post(202, b.url+"1")
		post(403, b.url+"2")
		post(202, b.url+"2", "hub.topic", base+"/sets/other/changes")
		post(202, a.url+"0")
		post(202, b.url+"0")
		if c := w.engine.Count(&subscription.Request{Set: "demo"}, "a.example:80"); c != (subscription.Count{Host: 3, Set: 5}) {
			t.Errorf("there are %+v", c)
		}
		// A subscription that ends makes room for another.
		post(202, a.url+"0", "hub.mode", "unsubscribe")
		post(202, a.url+"3")
		post(403, a.url+"4")
		// The limits hold after a start, too.
		w.shutdown()
		w.start(callback.Options{})
		d = w.desk(limits)
		post(403, a.url+"4")
		post(202, a.url+"3")
	})
}

// Subscriptions that are not confirmed yet are bounded by host. One that is given up
// makes room.
func TestMostUnverified(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		made := w.subscribe(c)
		c.agrees(status(500))
		w.listen("b.example").agrees(status(500))
		d := w.desk(websub.Options{MaxUnverified: 4})
		memorytest.Fill(t, w.log, "demo")
		post := func(status int, callback, says string) *httptest.ResponseRecorder {
			t.Helper()
			r := d.post(asking("hub.callback", callback))
			w.settled()
			if r.Code != status || !strings.Contains(r.Body.String(), says) {
				t.Errorf("%s is answered %d, want %d with %q: %s", callback, r.Code, status, says, r.Body)
			}
			return r
		}
		for n := range 4 {
			d.caller = fmt.Sprint("caller", n) // one of them may have half of it
			for range 1 + 3 - n {              // the same subscription again counts once
				post(202, fmt.Sprint(c.url, n), "")
			}
		}
		d.caller = "alice"
		if r := post(429, c.url+"4", "4 subscriptions with callbacks at a.example:80"); r.Header().Get("Retry-After") != "30" {
			t.Errorf("Retry-After is %q", r.Header().Get("Retry-After"))
		}
		post(202, c.url, "")               // a renewal
		post(202, "http://b.example/", "") // another host
		post(202, "http://b.example/2", "")
		post(429, "http://b.example/3", "2 subscriptions of one caller") // more than half of the limit for one caller
		w.pass(2 * time.Minute)                                          // each request was tried three times
		if got := w.engine.Count(&subscription.Request{Set: "demo"}, "a.example:80"); got != (subscription.Count{Host: 1, Set: 1}) {
			t.Errorf("there are %+v", got)
		}
		post(202, c.url+"4", "")
		if n := w.engine.Count(&subscription.Request{Set: "demo"}, "a.example:80").Fresh; w.gone(made) || n != 1 {
			t.Errorf("%d are to be made", n)
		}
		// The requests of a shard that is lost count no more.
		w.crash()
		if left := w.engine.Remains(); left != 0 {
			t.Errorf("got %d remains, want none", left)
		}
		w.start(callback.Options{})
	})
}

// A hub that has a part of the shards estimates all of them. A hub that has none, or has
// not loaded one of its shards, estimates zero.
func TestCountOfAPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		w := newWorld(t, callback.Options{})
		w.shutdown()
		memorytest.Fill(t, w.log, "demo")
		for n := range n {
			r := subscription.Record{Subscription: subscription.Subscription{
				Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", n), Token: fmt.Sprint("token", n), LeaseEnd: time.Now().Add(time.Hour),
			}, Progress: subscription.Progress{Cursor: w.head()}}
			claims, err := w.registry.Acquire(t.Context(), []int{r.ID().Shard()})
			if err == nil {
				err = w.registry.Commit(t.Context(), claims[0], subscription.Changes{Put: []subscription.Record{r}})
			}
			ok(t, err)
		}
		w.start(callback.Options{})
		count := func() subscription.Count {
			return w.engine.Count(&subscription.Request{Set: "demo"}, "callback.example:443")
		}
		if c := count(); c != (subscription.Count{Host: n, Set: n}) {
			t.Errorf("all hubs have %+v", c)
		}
		w.lose(func(i int) bool { return i%3 != 0 })
		w.pass(time.Second)
		if c := count(); c.Host < n*8/10 || c.Host > n*12/10 || c.Set != c.Host {
			t.Errorf("a third knows %d of %d, and concludes on %+v", w.gauge("subscriptions"), n, c)
		}
		w.lose(func(i int) bool { return i%3 != 0 || i == 0 })
		w.pass(time.Second)
		w.store.damaged.Store(true)
		w.lose(func(i int) bool { return i%3 != 0 })
		w.pass(time.Second)
		if c := count(); c != (subscription.Count{}) {
			t.Errorf("a part that is not loaded concludes on %+v", c)
		}
		w.lose(func(int) bool { return true })
		w.pass(time.Second)
		if c := count(); c != (subscription.Count{}) {
			t.Errorf("without a shard there are %+v", c)
		}
	})
}

// One caller does not take the places of all others, at a host or in a set, and has only so
// many in all. Its own subscriptions it can renew, and operators have no such limit.
func TestMostSubscriptionsOfOneCaller(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		d := w.desk(websub.Options{MaxPerHost: 4, MaxPerSet: 6})
		follow, err := access.ParseRights("follow:*")
		ok(t, err)
		d.rights = &follow
		for _, set := range []string{"demo", "other", "third"} {
			memorytest.Fill(t, w.log, set)
		}
		post := func(caller string, status int, callback, set, want string) {
			t.Helper()
			d.caller = caller
			r := d.post(asking("hub.callback", callback, "hub.topic", base+"/sets/"+set+"/changes"))
			w.settled()
			if r.Code != status || !strings.Contains(r.Body.String(), want) {
				t.Errorf("%s for %s to %s is answered %d, want %d: %s", callback, caller, set, r.Code, status, r.Body)
			}
		}
		hosts := make([]string, 5)
		for i := range hosts {
			hosts[i] = w.listen(fmt.Sprintf("h%d.example", i)).url
		}
		post("evil", 202, hosts[0]+"0", "demo", "")
		post("evil", 202, hosts[0]+"1", "demo", "")
		post("evil", 403, hosts[0]+"2", "demo", "limit of 2 subscriptions of one caller with callbacks at h0.example:80")
		post("good", 202, hosts[0]+"2", "demo", "")
		post("evil", 202, hosts[1], "demo", "")
		post("evil", 403, hosts[2], "demo", "limit of 3 subscriptions of one caller to set demo")
		post("good", 202, hosts[2], "demo", "")
		post("evil", 202, hosts[2], "other", "")
		post("evil", 202, hosts[3], "other", "")
		post("evil", 202, hosts[3], "third", "")
		post("evil", 403, hosts[4], "third", "limit of 6 subscriptions of one caller reached")
		post("evil", 202, hosts[0]+"0", "demo", "") // renewed
		post("good", 202, hosts[4], "third", "")
		// A subscription that ends makes room.
		d.caller = "evil"
		if r := d.post(asking("hub.callback", hosts[3], "hub.topic", base+"/sets/third/changes", "hub.mode", "unsubscribe")); r.Code != 202 {
			t.Errorf("unsubscribe: %d %s", r.Code, r.Body)
		}
		w.settled()
		post("evil", 202, hosts[4]+"1", "third", "")
		all := access.All()
		d.rights = &all
		post("evil", 202, hosts[4]+"2", "third", "")
		w.crash()
		if left := w.engine.Remains(); left != 0 {
			t.Errorf("got %d remains, want none", left)
		}
		w.start(callback.Options{})
	})
}
