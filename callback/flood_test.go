package callback_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A pit is a machine at one address that hears many names and ports. It answers one
// callee as that wants, and hangs at everything else that hangs says.
type pit struct {
	addr  netip.Addr
	hangs func(r *http.Request) bool
	good  *callee

	mu        sync.Mutex
	now, most int // requests that hang
}

func (p *pit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.good != nil && "http://"+r.Host+"/cb" == p.good.url:
		p.good.ServeHTTP(w, r)
		return
	case !p.hangs(r):
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has gone
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	p.mu.Unlock()
	<-r.Context().Done()
	p.mu.Lock()
	p.now--
	p.mu.Unlock()
}

// flood asks for n subscriptions with callbacks at a pit.
func (w *world) flood(p *pit, n int, host func(i int) string) {
	for i := range n {
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: "http://" + host(i) + "/cb", Start: w.head(), By: stranger})
	}
	w.settled()
}

// waits returns how long a callee waits until it is asked to confirm, and how long it
// waits for a change that is published then.
func (w *world) waits(c *callee) (verified, delivered time.Duration) {
	w.t.Helper()
	until := func(done func() bool) time.Duration {
		begin := time.Now()
		for w.settled(); !done(); w.settled() {
			if time.Since(begin) > 10*time.Minute {
				w.t.Fatal("it waits for more than ten minutes")
			}
			time.Sleep(100 * time.Millisecond) // in fake time
		}
		return time.Since(begin)
	}
	id := w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
	verified = until(func() bool { return !w.gone(id) })
	w.publish("late", 1)
	delivered = until(func() bool { return len(c.locs()) == 1 })
	return verified, delivered
}

// A stranger asks for 3,000 subscriptions with callbacks at 3,000 names of one machine,
// which hangs. The machine sees a few requests at once, and others who subscribe wait for
// nothing, even at the same machine.
func TestManyNamesOfOneAddress(t *testing.T) {
	long(t)
	for name, host := range map[string]func(i int) string{
		"below one domain": func(i int) string { return fmt.Sprintf("name%d.flood.example", i) },
		"many domains":     func(i int) string { return fmt.Sprintf("flood%d.example", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, callback.Options{})
				p := &pit{addr: netip.MustParseAddr("198.51.100.7"), hangs: func(*http.Request) bool { return true }}
				w.net.Serve("198.51.100.7:80", p)
				const n = 3000
				for i := range n {
					w.names.Store(host(i), p.addr)
				}
				there := w.listen("good.example")
				w.names.Store("shared.example", p.addr)
				p.good = &callee{t: t, url: "http://shared.example/cb"}
				w.publish("first", 1)
				w.flood(p, n, host)
				for _, c := range []*callee{there, p.good} {
					verified, delivered := w.waits(c)
					if t.Logf("%s waits %v until it is verified, and %v for its first delivery", c.url, verified, delivered); verified > 2*time.Second || delivered > 2*time.Second {
						t.Error("that is too long")
					}
				}
				w.pass(time.Minute)
				p.mu.Lock()
				defer p.mu.Unlock()
				if t.Logf("the machine saw %d requests at once", p.most); p.most > 32 || p.most < 8 {
					t.Error("they should be few")
				}
			})
		})
	}
}

// Callbacks at 600 ports of one machine confirm their subscriptions and then hang. Others
// who subscribe wait for nothing, and neither does a hub that stops.
func TestManyPortsOfOneAddress(t *testing.T) {
	long(t)
	for name, machine := range map[string]string{"by name": "tarpit.example", "by address": "198.51.100.7"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, callback.Options{})
				p := &pit{addr: netip.MustParseAddr("198.51.100.7"), hangs: func(r *http.Request) bool { return r.Method == http.MethodPost }}
				w.names.Store(machine, p.addr)
				host := func(i int) string { return fmt.Sprintf("%s:%d", machine, 10_000+i) }
				const n = 600
				for i := range n {
					w.net.Serve(fmt.Sprintf("198.51.100.7:%d", 10_000+i), p)
				}
				w.publish("first", 1)
				w.flood(p, n, host)
				if got := w.gauge("subscriptions"); got != n {
					t.Fatalf("there are %d subscriptions", got)
				}
				w.published("second", 1)
				verified, delivered := w.waits(w.listen("good.example"))
				if t.Logf("another waits %v until it is verified, and %v for its first delivery", verified, delivered); verified > time.Second || delivered > time.Second {
					t.Error("that is too long")
				}
				p.mu.Lock()
				most := p.most
				p.mu.Unlock()
				if t.Logf("the machine saw %d requests at once", most); most > 16 {
					t.Error("they should be few")
				}
				begin := time.Now()
				w.shutdown()
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the hub took %v to stop", took)
				}
				w.start(callback.Options{})
			})
		})
	}
}

// The first delivery to a callback has less time than those behind it. A callback that is
// slow gets it again, with all of the time.
func TestFirstDeliveryIsShort(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		c.says(func(http.ResponseWriter, *http.Request) { time.Sleep(8 * time.Second) })
		w.published("a", 1)
		w.pass(5500 * time.Millisecond) // the next try begins after 5.8 s at the earliest
		if n := w.gauge("in_flight"); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
		w.pass(20 * time.Second)
		c.check(0, 1)
		if tries, _, _ := c.counts(); tries != 2 {
			t.Errorf("it took %d tries", tries)
		}
	})
}
