//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/resourcesync"
)

// benchSecret signs deliveries.
const benchSecret = "a secret of forty bytes, as one may have"

// A caller delivers to the callbacks of a sink: rshub, or the floor.
type caller struct {
	*server
	sink    *server
	publish poster
	sent    int // changes for each callback
}

// report waits until the sink has received the numbers in the query, and returns its report.
func (c *caller) report(query string) (r sinkReport) {
	resp := have(http.Get("http://" + c.sink.addr + "/report?" + query))
	defer resp.Body.Close()
	must(json.NewDecoder(resp.Body).Decode(&r))
	return r
}

// step publishes changes, and waits until all have arrived once and in order.
func (c *caller) step(body []byte, changes int) {
	must(c.publish(body))
	c.sent += changes
	want := c.sent * sinkHosts
	if r := c.report(fmt.Sprintf("changes=%d", want)); r.Changes != want || r.Disorder > 0 {
		must(fmt.Errorf("LOST or OUT OF ORDER: %d changes of %d arrived, %d out of order", r.Changes, want, r.Disorder))
	}
}

// calls publishes bodies of n changes for a while, each when all callbacks have received
// the one before. It counts deliveries.
func (b *bench) calls(c *caller, bodies [][]byte, n int) sample {
	for i := range 2 * warmUp { // and so all callbacks are proven
		c.step(bodies[i], n)
	}
	before := c.report("")
	s := measure(func() {
		for i, begin := 0, time.Now(); time.Since(begin) < b.length; i++ {
			c.step(bodies[i%len(bodies)], n)
		}
	}, c.server)
	s.count = float64(c.report("").Deliveries - before.Deliveries)
	return s
}

// callbacks measures the cost of a delivery.
func (b *bench) callbacks(t *table) {
	for _, n := range []int{1, 100} {
		for _, secret := range []string{"", benchSecret} {
			what := fmt.Sprintf("%d callbacks, by %d", sinkHosts, n)
			if secret != "" {
				what += ", signed"
			}
			b.compare(t, what, []metric{cpuEach("delivery").should(aim{limit: 1.3, ratio: true}), perSecond("deliveries")},
				func() sample { return b.callFloor(n, secret) },
				func() sample { return b.callOurs(n, secret) })
		}
	}
}

func (b *bench) callFloor(n int, secret string) sample {
	sink := b.floor("sink")
	floor := b.floor("callbacks", sink.addr, secret)
	c := &caller{server: floor, sink: sink, publish: b.posters(1, floor.addr, "/", "application/xml")[0]}
	return b.calls(c, b.changes.each(n, func(changes []resourcesync.Change) []byte { return delivered(changes).XML() }), n)
}

// callOurs subtracts the cost of the same publishes to a set without subscriptions. They
// come at the same pace, because a server that sleeps between publishes needs more for each.
func (b *bench) callOurs(n int, secret string) sample {
	ours := b.rshub(b.dir(), "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	c := &caller{server: ours, sink: b.floor("sink"), publish: b.posters(1, ours.addr, setPath, inLines)[0]}
	bodies := b.changes.each(n, ndjson)
	must(c.publish(bodies[0])) // makes the set
	c.subscribe(secret)
	s := b.calls(c, bodies, n)
	nobody := b.posters(1, ours.addr, "/sets/nobody/changes", inLines)[0]
	publishes := int(s.count) / sinkHosts
	every := time.Duration(s.seconds / float64(publishes) * float64(time.Second))
	bare := measure(func() {
		begin := time.Now()
		for i := range publishes {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * every)))
			must(nobody(bodies[i%len(bodies)]))
		}
	}, ours)
	s.cpu -= bare.cpu
	return s
}

// subscribe subscribes all callbacks of the sink, and returns when they are verified.
func (c *caller) subscribe(secret string) {
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {"http://" + c.addr + setPath}}
	if secret != "" {
		form.Set("hub.secret", secret)
	}
	for i := range sinkHosts {
		form.Set("hub.callback", callbackURL(c.sink.addr, i))
		resp := have(http.PostForm("http://"+c.addr+"/hub", form))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			must(errors.New("subscribe: " + resp.Status))
		}
	}
	if r := c.report(fmt.Sprintf("verified=%d", sinkHosts)); r.Verified != sinkHosts {
		must(fmt.Errorf("%d callbacks of %d were verified", r.Verified, sinkHosts))
	}
}

// idleSubscriptions measures the memory of subscriptions without deliveries, and compares it with
// the size of their texts.
func (b *bench) idleSubscriptions(t *table) {
	empty, full, texts := b.withSubscriptions(feed.Filter{})
	n := float64(b.subscriptions)
	of := func(dir string) (bytes float64) {
		must(b.scope(func() {
			s := b.rshub(dir)
			b.rest(s)
			bytes = rssOf(s.pid)
		}))
		return bytes
	}
	b.compare(t, count(b.subscriptions)+" subscriptions", []metric{memoryEach("KB/subscription", 1024).should(aim{limit: 2})},
		func() sample { return sample{memory: texts, count: n} },
		func() sample {
			grown := of(full) - of(empty)
			if grown < texts {
				must(fmt.Errorf("memory grew by only %.0f bytes; the subscriptions were not loaded", grown))
			}
			return sample{memory: grown, count: n}
		})
}

// withSubscriptions creates a data directory with a set, and another one that also has subscriptions
// to the set with a filter, which are up to date. It returns the bytes of their callbacks, secrets
// and tokens.
func (b *bench) withSubscriptions(f feed.Filter) (empty, full string, texts float64) {
	empty, full = b.dir(), b.dir()
	b.fillDisk(empty, 1, 1, 10_000)
	b.fillDisk(full, 1, 1, 10_000)
	m := b.diskAt(full)
	keep := m.log.(*disklog.Log).Bucket("callback")
	claims := have(claim.OpenLocal(b.ctx, keep, subscription.Shards))
	registry := have(subscription.OpenDisk(b.ctx, keep, claims, nil))
	shards := make([]int, subscription.Shards)
	for i := range shards {
		shards[i] = i
	}
	put := make([][]subscription.Record, subscription.Shards)
	at, now := have(m.log.State(b.ctx, benchSet)).Head, time.Now()
	for i := range b.subscriptions {
		r := subscription.Record{Subscription: subscription.Subscription{
			Set: benchSet, Callback: fmt.Sprintf("https://subscriber-%d.example.org/callbacks/resourcesync?key=%032x", i%1000, i),
			Terms: subscription.Terms{Secret: fmt.Sprintf("%032x", i), Filter: f}, LeaseEnd: now.Add(24 * time.Hour), Token: fmt.Sprintf("%026d", i), Made: now, Renewed: now,
		}}
		r.Cursor = at
		r.Last = []subscription.Attempt{{At: now, Kind: "deliver", Status: http.StatusOK, Took: time.Millisecond, Changes: 1}}
		texts += float64(len(r.Callback) + len(r.Secret) + len(r.Token))
		shard := r.ID().Shard()
		put[shard] = append(put[shard], r)
	}
	for _, c := range have(claims.Acquire(b.ctx, shards)) {
		must(registry.Commit(b.ctx, c, subscription.Changes{Put: put[c.Shard]}))
	}
	must(m.log.Close())
	return empty, full, texts
}
