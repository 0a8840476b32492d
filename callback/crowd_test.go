package callback

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// New subscriptions are bounded by host and by set, renewals never are.
func TestMostSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		a, b := w.listen("a.example"), w.listen("b.example")
		s := NewServer(w.engine, w.log, ServerOptions{MaxPerHost: 3, MaxPerSet: 5})
		fill(t, w.log, "demo")
		fill(t, w.log, "other")
		post := func(status int, callback string, more ...string) {
			t.Helper()
			r := httptest.NewRecorder()
			body := asking(append([]string{"hub.callback", callback}, more...)...)
			s.ServeHub(r, httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(body)), may, may)
			w.settled()
			if r.Code != status {
				t.Errorf("%s %q is answered %d, want %d: %s", callback, more, r.Code, status, r.Body)
			}
			if limit := r.Body.String(); status == 403 && !strings.Contains(limit, "at most 3 subscriptions with callbacks at a.example:80") && !strings.Contains(limit, "at most 5 subscriptions to set demo") {
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
		if c := w.engine.crowd("demo", "a.example:80"); c != (crowd{host: 3, set: 5}) {
			t.Errorf("there are %+v", c)
		}
		// The place of one that ends is free.
		post(202, a.url+"0", "hub.mode", "unsubscribe")
		post(202, a.url+"3")
		post(403, a.url+"4")
		// So they are after a start.
		w.shutdown()
		w.start(Options{})
		s = NewServer(w.engine, w.log, s.opts)
		post(403, a.url+"4")
		post(202, a.url+"3")
	})
}

// What is not confirmed is bounded by host, until it is given up.
func TestMostUnverified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		made := w.subscribe(c)
		c.agrees(status(500))
		w.listen("b.example")
		s := NewServer(w.engine, w.log, ServerOptions{MaxUnverified: 4})
		fill(t, w.log, "demo")
		post := func(callback string) *httptest.ResponseRecorder {
			r := httptest.NewRecorder()
			s.ServeHub(r, httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(asking("hub.callback", callback))), may, may)
			w.settled()
			return r
		}
		for n := range 4 {
			for range 1 + 3 - n { // again is no other one
				if r := post(fmt.Sprint(c.url, n)); r.Code != 202 {
					t.Errorf("request %d is answered %d: %s", n, r.Code, r.Body)
				}
			}
		}
		if r := post(c.url + "4"); r.Code != 429 || r.Header().Get("Retry-After") != "30" || !strings.Contains(r.Body.String(), "4 subscriptions with callbacks at a.example:80") {
			t.Errorf("one too many is answered %d: %s", r.Code, r.Body)
		}
		if r := post(c.url); r.Code != 202 {
			t.Errorf("a renewal is answered %d: %s", r.Code, r.Body)
		}
		if r := post("http://b.example/"); r.Code != 202 {
			t.Errorf("another host is answered %d: %s", r.Code, r.Body)
		}
		time.Sleep(2 * time.Minute) // each request was tried three times
		w.settled()
		if got := w.engine.crowd("demo", "a.example:80"); got != (crowd{host: 1, set: 2}) {
			t.Errorf("there are %+v", got)
		}
		if r := post(c.url + "4"); r.Code != 202 {
			t.Errorf("afterwards it is answered %d: %s", r.Code, r.Body)
		}
		if w.gone(made) || len(w.engine.fresh) != 1 {
			t.Errorf("fresh are %v", w.engine.fresh)
		}
		// A shard that is lost takes its errands along.
		w.crash()
		if len(w.engine.fresh) != 0 || len(w.engine.places.hosts) != 0 {
			t.Errorf("left are %v, %v", w.engine.fresh, w.engine.places.hosts)
		}
		w.start(Options{})
	})
}

// A hub that has a part of the shards concludes on the whole; one that has none,
// or has not loaded them, on nothing.
func TestCrowdOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		w := newWorld(t, Options{})
		w.shutdown()
		fill(t, w.log, "demo")
		f := &front{t: t, registry: w.registry}
		for n := range n {
			r := record(n, w.head())
			r.LeaseEnd = time.Now().Add(time.Hour)
			f.put(r)
		}
		w.start(Options{})
		crowds := func() crowd { return w.engine.crowd("demo", "callback.example:443") }
		if c := crowds(); c != (crowd{host: n, set: n}) {
			t.Errorf("all hubs have %+v", c)
		}
		e := w.engine
		drop := func(wanted func(shard int) bool) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for i, s := range e.shards {
				if wanted(i) {
					e.drop(s)
				}
			}
		}
		drop(func(i int) bool { return i%3 != 0 })
		if c := crowds(); c.host < n*8/10 || c.host > n*12/10 || c.set != c.host {
			t.Errorf("a third knows %d of %d, and concludes on %+v", w.engine.present().subscriptions, n, c)
		}
		e.mu.Lock()
		e.shards[0].loaded = false
		e.mu.Unlock()
		if c := crowds(); c != (crowd{}) {
			t.Errorf("a part that is not loaded concludes on %+v", c)
		}
		drop(func(int) bool { return true })
		if c := crowds(); c != (crowd{}) {
			t.Errorf("without a shard there are %+v", c)
		}
	})
}
