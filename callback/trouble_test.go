package callback_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
)

// Callbacks that misbehave in every way that a server can.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	hijack := func(do func(c net.Conn)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer c.Close()
			do(c)
		}
	}
	drip := func(text string, forever string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			for {
				time.Sleep(time.Second) // in fake time
				if _, err := io.WriteString(c, forever); err != nil {
					return
				}
			}
		}
	}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		within time.Duration // the slot is free again
		ok     bool          // it counts as delivered
		reason string
	}{
		"hangs":          {hijack(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), 15 * time.Second, false, "in time"},
		"closes":         {hijack(func(net.Conn) {}), time.Second, false, "closed"},
		"closes early":   {hijack(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 O") }), time.Second, false, "closed"},
		"no HTTP":        {hijack(func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n") }), time.Second, false, "not HTTP"},
		"slow header":    {hijack(drip("HTTP/1.1 200 OK\r\nX-A: ", "a")), 15 * time.Second, false, "in time"},
		"endless header": {hijack(drip("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 2000), "a")), time.Second, false, "not HTTP"},
		"slow body":      {hijack(drip("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "a")), 2 * time.Second, true, ""},
		"1 GiB":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 1<<30) }, time.Second, true, ""},
		"body cut short": {hijack(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") }), time.Second, true, ""},
		"not HTTP any more": {hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), time.Second, false, "Switching Protocols"},
		"informs endlessly": {hijack(drip(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), "HTTP/1.1 103 Early Hints\r\n\r\n")), 15 * time.Second, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c, id := w.subscribed()
				w.published("first", 1) // which has less time
				c.says(test.answer)
				w.publish("a", 1)
				w.pass(test.within + 50*time.Millisecond)
				if n := w.gauge("in_flight"); n != 0 {
					t.Fatalf("%d requests are in flight after %v", n, test.within)
				}
				w.pass(saveEvery)
				r := w.saved(id)
				last := r.Last[len(r.Last)-1]
				if (r.Cursor.Position == 2) != test.ok || !strings.Contains(last.Error, test.reason) || (last.Error == "") != test.ok {
					t.Errorf("saved %+v", r.Progress)
				}
				c.says(nil)
				w.publish("b", 1)
				w.pass(3 * time.Second)
				if r := w.saved(id); r.Cursor != w.head() {
					t.Errorf("afterwards: %+v", r.Progress)
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A thousand callbacks that hang do not delay one that answers.
func TestTarpits(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{InFlight: 128}, func(t *testing.T, w *world) {
		good := w.listen("good.example")
		w.subscribe(good)
		w.published("first", 1) // so that the subscription is proven
		for i := range 1000 {
			c := w.listen(fmt.Sprint("tarpit", i, ".example"))
			c.answer = hang
			w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		}
		w.settled()
		if n := w.gauge("subscriptions"); n != 1001 {
			t.Fatalf("%d subscriptions", n)
		}
		var worst time.Duration
		most := 0
		for i := range 20 {
			begin := time.Now()
			w.published(fmt.Sprint("n", i), 1)
			most = max(most, w.gauge("in_flight"))
			worst = max(worst, good.last().at.Sub(begin))
			if _, took, _ := good.counts(); took != i+2 {
				t.Fatalf("publish %d was not delivered at once", i)
			}
			time.Sleep(time.Second)
		}
		if worst > 0 || most > 65 { // of 128 places a quarter for those that were not called yet, and a quarter for those that failed
			t.Errorf("the worst delay is %v, at most %d were in flight", worst, most)
		}
		// A new subscription waits for its turn among those that hang, and gets it.
		begun := time.Now()
		late := w.listen("late.example")
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: late.url, Start: w.head()})
		w.publish("late", 1)
		for _, took, _ := late.counts(); took == 0 && time.Since(begun) < time.Hour; _, took, _ = late.counts() {
			time.Sleep(time.Minute)
		}
		w.settled()
		late.check(21, 1)
	})
}

// The memory overran a callback: it gets the oldest that is kept, marked.
func TestGap(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		c, id := w.subscribed()
		w.published("a", 5)
		c.check(0, 5)
		c.says(status(500))
		w.published("b", 60)
		time.Sleep(time.Minute)
		if removed, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 20}); err != nil || removed == 0 {
			t.Fatalf("%d removed, %v", removed, err)
		}
		w.crash() // otherwise the window still has all of it
		w.inventory = true
		w.start(callback.Options{})
		floor, err := w.log.State(t.Context(), "demo")
		ok(t, err)
		try := func() {
			w.send(subscription.Request{Mode: subscription.Retry, Callback: c.url})
			w.pass(saveEvery)
		}
		try()
		want := fmt.Sprintf("6-%d", floor.Floor.Position)
		for range 2 { // said again until a delivery succeeded
			if got := c.last().header.Get("RS-Gap"); got != want || c.last().header.Get("RS-Previous") != fmt.Sprint(floor.Floor.Position) {
				t.Errorf("RS-Gap %q, want %q; %v", got, want, c.last().header)
			}
			if links := feed.ParseLinks(c.last().header.Values("Link")); len(links) != 6 || !links[0].HasRel("self") || !links[1].HasRel("hub") || !links[2].HasRel("resourcesync") || !links[3].HasRel(feed.RelBaseline) || links[3].URI != string(base)+"/sets/demo/changes?since=baseline" {
				t.Errorf("where changes are gone, the links are %v", links)
			}
			if r := w.saved(id); r.Gaps != 1 || r.Gap.Position != 5 {
				t.Errorf("saved %+v", r.Progress)
			}
			w.shutdown()
			w.start(callback.Options{})
			try()
		}
		c.says(nil)
		try()
		w.published("c", 1)
		if got := c.last().header.Get("RS-Gap"); got != "" {
			t.Errorf("RS-Gap %q is said once too often", got)
		}
		if links := feed.ParseLinks(c.last().header.Values("Link")); len(links) != 3 {
			t.Errorf("where nothing is gone, the links are %v", links)
		}
		if got := len(c.locs()); got != 5+65-int(floor.Floor.Position)+1 {
			t.Errorf("%d changes were delivered", got)
		}
	})
}

// A subscription outlives its set, and follows the next of that name.
func TestDeletedSet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url}) // not made yet
		w.published("a", 3)
		c.check(0, 3)
		ok(t, w.hub.Delete(t.Context(), "demo"))
		time.Sleep(time.Minute)
		if tries, _, _ := c.counts(); tries != 1 {
			t.Errorf("%d tries", tries)
		}
		w.publish("b", 2)
		w.pass(time.Minute)
		if got := fmt.Sprint(c.locs()[3:]); got != "[b/0?a&b b/1?a&b]" || c.last().header.Get("RS-Gap") != "4-" {
			t.Errorf("after it was made anew: %v, RS-Gap %q", got, c.last().header.Get("RS-Gap"))
		}
	})
}

// After a log has lost its tail, deliveries repeat rather than skip, and say so until one
// of them succeeded.
func TestDiverged(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("a", 3)
		c := w.listen("a.example")
		start := w.head()
		start.Micros += 5 // the subscription has seen another third entry
		c.says(status(500))
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: start})
		time.Sleep(time.Minute)
		c.says(nil)
		w.pass(2 * time.Minute)
		for _, d := range c.tries {
			if d.header.Get("RS-Diverged") != "true" || !strings.Contains(string(d.body), `h:diverged="true"`) {
				t.Errorf("RS-Diverged is missing: %v", d.header)
			}
		}
		c.check(0, 3)
		w.published("b", 1)
		if c.last().header.Get("RS-Diverged") != "" {
			t.Error("RS-Diverged is said once too often")
		}
		c.check(0, 4)
	})
}

// What a filter leaves out moves the cursor without a POST, and the intervals
// stay consecutive.
func TestFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		w.published("x", 1)
		until := c.last().doc.Header.Until
		for range 50 {
			w.publish("y", 100)
			time.Sleep(time.Second)
		}
		w.settled()
		if tries, _, _ := c.counts(); tries != 1 {
			t.Fatalf("%d tries", tries)
		}
		w.pass(skipEvery + time.Second)
		if r := w.saved(id); r.Cursor != w.head() || r.From.Position != 1 {
			t.Errorf("saved %+v", r.Progress)
		}
		w.crash()
		w.start(callback.Options{})
		w.publish("y", 1)
		w.published("x", 1)
		d := c.last()
		if !d.doc.Header.From.Equal(until) || d.header.Get("RS-Previous") != "1" || len(d.doc.Items) != 1 || d.header.Get("RS-Position") != "5003" {
			t.Errorf("from %v, want %v; %v", d.doc.Header.From, until, d.header)
		}
	})
}

// A subscription whose filter matches nothing gets no gap when retention removes what it skipped, even if the
// hub crashes: its cursor is stored from time to time.
func TestFilterOutlivesRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		w.published("x", 1)
		before := w.saved(id)
		for range 10 {
			w.publish("y", 20)
			time.Sleep(skipEvery)
		}
		if n, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 50}); err != nil || n == 0 {
			t.Fatalf("Trim() = %d, %v", n, err)
		}
		w.crash()
		w.start(callback.Options{})
		w.published("x", 1)
		if h := c.last().header; h.Get("RS-Gap") != "" || h.Get("RS-Previous") != "1" || h.Get("RS-Position") != "202" {
			t.Errorf("got RS-Gap %q, RS-Previous %q, RS-Position %q; want no gap, 1 and 202", h.Get("RS-Gap"), h.Get("RS-Previous"), h.Get("RS-Position"))
		}
		if after := w.saved(id); after.Gaps != before.Gaps {
			t.Errorf("got %d gaps, want %d", after.Gaps, before.Gaps)
		}
	})
}

// What a filter leaves out is passed without being touched, until somebody asks where the
// subscription stands: an operator, or a hub that hands it over. Here it is older than its set.
func TestFilterPasses(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *world, c *callee){
		"retry": func(w *world, c *callee) { w.send(subscription.Request{Mode: subscription.Retry, Callback: c.url}) },
		"renewal": func(w *world, c *callee) {
			w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		},
		"shutdown": func(w *world, _ *callee) {
			w.shutdown()
			w.start(callback.Options{})
		},
		"failure": func(w *world, c *callee) {
			c.says(status(http.StatusInternalServerError))
			w.published("x", 1)
			c.says(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c := w.listen("a.example")
				id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
				first := w.publish("y", 2).Cursor
				end := w.publish("y", 1).Cursor
				w.settled()
				if c := w.engine.Cursor(id); !c.IsZero() {
					t.Errorf("what its filter left out has moved it to %v", c)
				}
				ask(w, c)
				w.pass(saveEvery)
				want := feed.Cursor{Micros: first.Micros - 2} // before the first of two entries
				if r := w.saved(id); r.Cursor != end || r.From != want {
					t.Errorf("saved is %v from %v, want %v from %v", r.Cursor, r.From, end, want)
				}
				w.publish("x", 1)
				w.pass(time.Minute)
				if d := c.tries[0]; d.header.Get("RS-Previous") != "0" || !d.doc.From.Equal(time.UnixMicro(want.Micros)) {
					t.Errorf("delivered is %v, from %v", d.header, d.doc.From)
				}
			})
		})
	}
}

// A subscription passes a backlog that its filter leaves out without a POST.
func TestFilterBacklog(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		for range 30 {
			w.publish("y", 1000)
		}
		w.publish("x", 2)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		if tries, _, _ := c.counts(); tries != 1 || len(c.locs()) != 2 || c.last().header.Get("RS-Previous") != "0" {
			t.Errorf("%d tries: %v", tries, c.locs())
		}
	})
}

// Progress is saved within 100 ms of a delivery, so a crash repeats no more than
// that; a shutdown repeats nothing.
func TestSaved(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		w.publish("a", 1)
		w.pass(saveEvery)
		if r := w.saved(id); r.Cursor.Position != 1 {
			t.Fatalf("saved %v after %v", r.Cursor, saveEvery)
		}
		w.published("b", 2) // not saved yet
		w.crash()
		w.start(callback.Options{})
		w.settled()
		if got := fmt.Sprint(c.locs()); got != "[a/0?a&b b/0?a&b b/1?a&b b/0?a&b b/1?a&b]" {
			t.Errorf("after the crash: %s", got)
		}
		w.published("c", 1)
		w.shutdown()
		w.start(callback.Options{})
		w.settled()
		if got := len(c.locs()); got != 6 {
			t.Errorf("%d changes after a shutdown, want 6", got)
		}
	})
}

// Shutdown lets the requests under way end, but does not wait long for them, and starts
// no new ones.
func TestShutdown(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		c.says(func(http.ResponseWriter, *http.Request) { time.Sleep(handOverTime - 100*time.Millisecond) })
		w.published("a", 1)
		w.publish("b", 1)
		begin := time.Now()
		w.shutdown()
		if took := time.Since(begin); took < handOverTime/2 || took > handOverTime {
			t.Errorf("it took %v", took)
		}
		if r := w.saved(id); r.Cursor.Position != 1 || len(c.tries) != 1 {
			t.Errorf("saved %+v after %d tries", r.Progress, len(c.tries))
		}
		c.says(hang)
		w.start(callback.Options{})
		begin = time.Now()
		w.shutdown()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("with a callback that hangs it took %v", took)
		}
		if r := w.saved(id); r.Cursor.Position != 1 || r.Failed != 0 {
			t.Errorf("what was given up counts as a failure of the callback: %+v", r.Progress)
		}
		w.start(callback.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), handOverTime/4)
		defer cancel()
		begin = time.Now()
		w.engine.Shutdown(ctx)
		<-w.ran
		if took := time.Since(begin); took > handOverTime/2 {
			t.Errorf("with a deadline of %v it took %v", handOverTime/4, took)
		}
		c.says(nil)
		w.start(callback.Options{})
		w.settled()
		c.check(0, 2)
	})
}

// A hub that lost a claim stops at once, and changes nothing.
func TestClaimLost(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		stopped := make(chan struct{})
		var once sync.Once
		c.says(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); once.Do(func() { close(stopped) }) })
		w.published("a", 1)
		claims, err := w.registry.Acquire(t.Context(), []int{id.Shard()}) // another hub takes the claim
		ok(t, err)
		w.publish("b", 1)
		w.pass(time.Second) // a renewal of the claim finds out
		select {
		case <-stopped:
		default:
			t.Error("the request was not cancelled")
		}
		if err := w.registry.Release(t.Context(), claims); err != nil && !errors.Is(err, claim.ErrLost) {
			t.Fatal(err)
		}
		c.says(nil)
		w.pass(20 * time.Second)
		c.check(0, 2)
	})
}

// A gap begins where the last delivery ended, also when a filter has left out what came directly
// after that. What the filter leaves out behind a gap is not in it.
func TestGapWithFilter(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		c := w.listen("a.example")
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x"}}})
		w.published("x", 5)
		w.published("y", 3)
		c.says(status(500))
		w.publish("x", 15)
		for range 3 {
			w.publish("y", 1000)
		}
		w.publish("x", 1)
		time.Sleep(time.Minute)
		if removed, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 2500}); err != nil || removed == 0 {
			t.Fatalf("%d removed, %v", removed, err)
		}
		state, err := w.log.State(t.Context(), "demo")
		ok(t, err)
		w.crash()
		w.start(callback.Options{})
		c.says(nil)
		w.sent(subscription.Request{Mode: subscription.Retry, Callback: c.url})
		floor := fmt.Sprint(state.Floor.Position)
		if h := c.last().header; h.Get("RS-Gap") != "6-"+floor || h.Get("RS-Previous") != floor || h.Get("RS-Position") != "3024" {
			t.Errorf("the floor is %s: %v", floor, h)
		}
	})
}

// A request that cannot be read holds up no other.
func TestBadRequest(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		shard := subscription.NewID("demo", "", c.url).Shard()
		ok(t, w.log.Bucket("callback").Apply(t.Context(), map[string][]byte{"inbox/" + string([]byte{byte(shard), 0, 0, 0, 0, 0, 0, 0, 1}): []byte("no JSON")}, false))
		w.subscribe(c)
		left, err := w.registry.Inbox(t.Context(), shard, 0, 10)
		if err != nil || len(left) != 1 || left[0].Number != 1 || left[0].Mode != "" {
			t.Errorf("%v are left (%v)", left, err)
		}
	})
}
