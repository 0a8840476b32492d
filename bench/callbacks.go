//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// calledSubscriptions is how many callbacks are called unless a case says otherwise. Each
// is at an address of its own.
const calledSubscriptions = sinkHosts

// benchSecret signs deliveries.
const benchSecret = "a secret of forty bytes, as one may have"

var (
	callbackCPU      = metric{name: "CPU µs/delivery", limit: 1.3, ratio: true}
	callbackPaced    = metric{name: "floor at that pace"}
	callbackLatency  = metric{name: "p99 ms"}
	caughtUpCallback = metric{name: "changes/s", limit: 100_000, least: true}
)

// A caller is a server that calls the callbacks of a sink.
type caller struct {
	*server
	sink    *server
	publish func(changes []resourcesync.Change) error
	feed    callbackFeed // the floor's
	end     []func()
	sent    int // changes for each callback
	to      int // callbacks
}

func (c *caller) stop() {
	for _, end := range c.end { // first: a server waits for connections that nothing came on
		end()
	}
	c.server.stop()
	c.sink.stop()
}

// report waits until the sink has received as much as the query says.
func (c *caller) report(query string) (r sinkReport, err error) {
	resp, err := http.Get("http://" + c.sink.addr + "/report?" + query)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// arrived waits until all published changes have arrived, each once and in order.
func (c *caller) arrived(query string) (sinkReport, error) {
	want := c.sent * c.to
	r, err := c.report(fmt.Sprintf("changes=%d&%s", want, query))
	if err == nil && (r.Changes != want || r.Disorder > 0) {
		err = fmt.Errorf("%d changes of %d arrived, %d out of order", r.Changes, want, r.Disorder)
	}
	return r, err
}

// callerFloor starts the floor for n callbacks.
func (b *bench) callerFloor(n int, secret string) (*caller, error) {
	s, err := b.floor("sink")
	if err != nil {
		return nil, err
	}
	floor, err := b.floor("callbacks", s.addr, fmt.Sprint(n), secret)
	if err != nil {
		s.stop()
		return nil, err
	}
	c := &caller{server: floor, sink: s, to: n}
	conn, err := net.Dial("tcp", floor.addr)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.end = append(c.end, func() { conn.Close() })
	c.feed = callbackFeed{conn}
	c.publish = func(changes []resourcesync.Change) error {
		return c.feed.post(1, len(changes), notification(changes))
	}
	return c, nil
}

// notification returns the body of a delivery of changes.
func notification(changes []resourcesync.Change) []byte {
	at := feed.Cursor{Position: 1_000_000, Micros: time.Now().UnixMicro()}
	after := feed.Cursor{Position: at.Position - uint64(len(changes)), Micros: at.Micros - 50_000}
	return feed.NewBatch(benchSet, after, at, changes).XML()
}

// callerOurs starts rshub on a data directory, without subscriptions.
func (b *bench) callerOurs(dir string) (*caller, error) {
	s, err := b.floor("sink")
	if err != nil {
		return nil, err
	}
	ours, err := b.rshub(dir, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	if err != nil {
		s.stop()
		return nil, err
	}
	c := &caller{server: ours, sink: s}
	p, err := newPoster(ours.addr, "/sets/"+benchSet+"/changes")
	if err != nil {
		c.stop()
		return nil, err
	}
	c.end = append(c.end, func() { p.conn.Close() })
	c.publish = func(changes []resourcesync.Change) error { return p.post(ndjson(changes)) }
	return c, nil
}

// subscribe subscribes n callbacks of the sink, and returns when all are verified.
func (c *caller) subscribe(n int, secret, since string) error {
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {"http://" + c.addr + "/sets/" + benchSet + "/changes"}, "rs.since": {since}}
	if secret != "" {
		form.Set("hub.secret", secret)
	}
	for i := range n {
		form.Set("hub.callback", callbackURL(c.sink.addr, i))
		resp, err := http.Post("http://"+c.addr+"/hub", "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return errors.New("subscribe: " + resp.Status)
		}
	}
	c.to = n
	r, err := c.report(fmt.Sprintf("verified=%d", n))
	if err == nil && r.Verified != n {
		err = fmt.Errorf("%d callbacks of %d were verified", r.Verified, n)
	}
	return err
}

// A call has the time and the CPU that deliveries took.
type call struct {
	usage
	count, changes float64
	p50, p99       float64 // ms
	paced          float64 // CPU seconds of the floor for a delivery, at the pace of the publishes
}

// call publishes n changes at a time for a while. It publishes the next ones when all
// callbacks have received the last ones and the pace allows it.
func (b *bench) call(c *caller, length, every time.Duration, n int) (d call, err error) {
	step := func(i int) error {
		c.sent += n
		if err := c.publish(b.content.batch(i, n)); err != nil {
			return err
		}
		_, err := c.arrived("")
		return err
	}
	for i := range 2 * warmUp { // and so all callbacks are proven
		if err := step(i); err != nil {
			return d, fmt.Errorf("warm-up: %w", err)
		}
	}
	before, err := c.report("")
	if err != nil {
		return d, err
	}
	d.usage, err = measure(func() error {
		for i, begin := 0, time.Now(); time.Since(begin) < length; i++ {
			if err := cmp.Or(step(i), b.ctx.Err()); err != nil {
				return err
			}
			time.Sleep(time.Until(begin.Add(time.Duration(i+1) * every)))
		}
		return nil
	}, c.server)
	if err != nil {
		return d, err
	}
	after, err := c.report("")
	d.count, d.changes = float64(after.Deliveries-before.Deliveries), float64(after.Changes-before.Changes)
	return d, err
}

// publishCPU returns the CPU seconds of a publish that is delivered to nobody. It publishes
// at a pace, because a server that sleeps between publishes needs more for each.
func (b *bench) publishCPU(length, every time.Duration, n int) (each float64, err error) {
	dir, err := b.dir()
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	c, err := b.callerOurs(dir)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	count := 0
	u, err := measure(func() error {
		for begin := time.Now(); time.Since(begin) < length; count++ {
			if err := c.publish(b.content.batch(count, n)); err != nil {
				return err
			}
			time.Sleep(time.Until(begin.Add(time.Duration(count+1) * every)))
		}
		return nil
	}, c.server)
	return u.cpu / float64(max(count, 1)), err
}

// callbacks measures what a delivery costs.
func (b *bench) callbacks(t *table) error {
	for _, n := range []int{1, 100} {
		for _, secret := range []string{"", benchSecret} {
			what := fmt.Sprintf("%d callbacks, %d changes a POST", calledSubscriptions, n)
			if secret != "" {
				what += ", signed"
			}
			err := alternate(b,
				func() (call, error) { return b.callFloor(n, secret, 0) },
				func() (call, error) { return b.callOurs(n, secret) },
				func(f, o call) {
					others := max(f.others, o.others)
					t.add(what, callbackCPU, 1e6*f.cpu/f.count, 1e6*o.cpu/o.count, others)
					t.add(what, callbackPaced, 1e6*o.paced, 1e6*o.cpu/o.count, others)
					t.add(what, deliveriesPerSecond, f.count/f.seconds, o.count/o.seconds, others)
					t.add(what, changesPerSecond, f.changes/f.seconds, o.changes/o.seconds, others)
				})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) callFloor(n int, secret string, every time.Duration) (d call, err error) {
	c, err := b.callerFloor(calledSubscriptions, secret)
	if err != nil {
		return d, err
	}
	defer c.stop()
	return b.call(c, b.called, every, n)
}

// callOurs subtracts the cost of the same publishes without subscriptions. It also lets the
// floor deliver at the same pace as rshub. A server that waits for the disk between
// deliveries needs more for each delivery than one that never waits.
func (b *bench) callOurs(n int, secret string) (d call, err error) {
	dir, err := b.dir()
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	c, err := b.callerOurs(dir)
	if err != nil {
		return d, err
	}
	err = c.publish(b.content.batch(0, n)) // makes the set
	if err == nil {
		err = c.subscribe(calledSubscriptions, secret, "")
	}
	if err == nil {
		d, err = b.call(c, b.called, 0, n)
	}
	c.stop()
	if err != nil {
		return d, err
	}
	publishes := d.changes / float64(n*calledSubscriptions)
	every := time.Duration(d.seconds / publishes * float64(time.Second))
	each, err := b.publishCPU(b.called/2, every, n)
	if err != nil {
		return d, err
	}
	d.cpu -= each * publishes
	floor, err := b.callFloor(n, secret, every)
	d.paced = floor.cpu / floor.count
	return d, err
}

// callbackTimes measures how long a change takes until the callbacks have it.
func (b *bench) callbackTimes(t *table) error {
	const to = 100
	for _, rate := range []int{20, 200} {
		what := fmt.Sprintf("%d callbacks, %d changes/s", to, rate)
		err := alternate(b,
			func() (call, error) {
				c, err := b.callerFloor(to, "")
				if err != nil {
					return call{}, err
				}
				defer c.stop()
				return b.pacedCalls(c, rate)
			},
			func() (call, error) { return b.pacedOurs(to, rate) },
			func(f, o call) {
				others := max(f.others, o.others)
				t.add(what, callbackLatency, f.p99, o.p99, others)
				t.add(what, latency50, f.p50, o.p50, others)
				t.add(what, metric{name: "changes/POST"}, f.changes/f.count, o.changes/o.count, others)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pacedOurs(to, rate int) (d call, err error) {
	dir, err := b.dir()
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	c, err := b.callerOurs(dir)
	if err != nil {
		return d, err
	}
	defer c.stop()
	if err := c.publish(b.content.batch(0, 1)); err != nil { // makes the set
		return d, err
	}
	if err := c.subscribe(to, "", ""); err != nil {
		return d, err
	}
	return b.pacedCalls(c, rate)
}

// pacedCalls publishes marked changes at a rate.
func (b *bench) pacedCalls(c *caller, rate int) (d call, err error) {
	one := func() error {
		c.sent++
		loc := make([]byte, markLen)
		copy(loc, markStart)
		putHex(loc[2:10], uint64(c.sent))
		putHex(loc[10:], uint64(time.Now().UnixNano()))
		change := b.content[0]
		change.Loc = "https://bench.example.org/" + string(loc)
		return c.publish([]resourcesync.Change{change})
	}
	for range 2 * warmUp {
		if err := one(); err != nil {
			return d, err
		}
		if _, err := c.arrived(""); err != nil {
			return d, fmt.Errorf("warm-up: %w", err)
		}
	}
	before, err := c.arrived("reset=1")
	if err != nil {
		return d, err
	}
	var after sinkReport
	d.usage, err = measure(func() (err error) {
		begin := time.Now()
		for i := range int(2 * b.called.Seconds() * float64(rate)) {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			if err := cmp.Or(one(), b.ctx.Err()); err != nil {
				return err
			}
		}
		after, err = c.arrived("")
		return err
	}, c.server)
	d.count, d.changes = float64(after.Deliveries-before.Deliveries), float64(after.Changes-before.Changes)
	d.p50, d.p99 = after.P50, after.P99
	return d, err
}

// callbackCatchUp measures a callback that subscribes to a set from its first change on.
func (b *bench) callbackCatchUp(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.fillDisk(dir, b.behindCallback, 100, 10_000); err != nil {
		return err
	}
	return alternate(b, b.catchUpFloor, func() (call, error) { return b.catchUpOurs(dir) }, func(f, o call) {
		what, others := format(float64(b.behindCallback))+" behind", max(f.others, o.others)
		t.add(what, caughtUpCallback, f.changes/f.seconds, o.changes/o.seconds, others)
		t.add(what, cpuPerChange, 1e6*f.cpu/f.changes, 1e6*o.cpu/o.changes, others)
	})
}

// catchUpFloor sends the same body again and again, of as many changes as a hub
// sends at most.
func (b *bench) catchUpFloor() (d call, err error) {
	c, err := b.callerFloor(1, "")
	if err != nil {
		return d, err
	}
	defer c.stop()
	const most = 1000
	c.sent, d.changes = b.behindCallback, float64(b.behindCallback)
	d.usage, err = measure(func() error {
		err := c.feed.post(b.behindCallback/most, most, notification(b.content.batch(0, most)))
		if err == nil {
			_, err = c.arrived("")
		}
		return err
	}, c.server)
	return d, err
}

func (b *bench) catchUpOurs(dir string) (d call, err error) {
	c, err := b.callerOurs(dir)
	if err != nil {
		return d, err
	}
	defer c.stop()
	c.sent, d.changes = b.behindCallback, float64(b.behindCallback)
	d.usage, err = measure(func() error {
		err := c.subscribe(1, "", "start")
		if err == nil {
			_, err = c.arrived("")
		}
		return err
	}, c.server)
	return d, err
}
