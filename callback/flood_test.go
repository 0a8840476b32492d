package callback_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A tarpit is a machine at one address with many names and ports. It is one receiver that works, and
// otherwise hangs if hangs reports that.
type tarpit struct {
	hangs func(r *http.Request) bool // requests for which it reports false are confirmed
	good  *receiver                  // or nil

	mu        sync.Mutex
	now, most int // requests that hang
}

func (p *tarpit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.good != nil && "http://"+r.Host+"/cb" == p.good.url:
		p.good.ServeHTTP(w, r)
		return
	case !p.hangs(r):
		confirm(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has gone
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	p.mu.Unlock()
	hang(w, r)
	p.mu.Lock()
	p.now--
	p.mu.Unlock()
}

// wantMost fails the test unless the most requests that hung at once are in a range.
func (p *tarpit) wantMost(t *testing.T, least, most int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most < least || p.most > most {
		t.Errorf("%d requests hung at once, want %d to %d", p.most, least, most)
	}
}

const tarpitAddress = "198.51.100.7"

// flood requests n subscriptions for a stranger.
func (w *world) flood(n int, host func(i int) string) {
	w.t.Helper()
	for i := range n {
		w.send(subscription.Request{Callback: "http://" + host(i) + "/cb", Start: w.head(), By: stranger})
	}
	w.settle()
}

// wantQuick fails the test if a receiver waits for longer than most until it is verified, or for a change that
// is published then.
func (w *world) wantQuick(c *receiver, most time.Duration) {
	w.t.Helper()
	wait := func(what string, done func() bool) {
		w.t.Helper()
		start := time.Now()
		for w.settle(); !done() && time.Since(start) < 10*time.Minute; {
			w.pass(100 * time.Millisecond)
		}
		if d := time.Since(start); d > most {
			w.t.Errorf("%s waits %v for its first %s, want at most %v", c.url, d, what, most)
		}
	}
	id := w.request(c, subscription.Request{Start: w.head()})
	wait("verification", func() bool { return w.exists(id) })
	w.publish("late", 1)
	wait("delivery", func() bool { return c.accepted.len() == 1 })
}

// A stranger requests 3,000 subscriptions at 3,000 names of one machine, which hangs. It sees few requests at
// once, and other subscribers do not wait, even at the same machine.
func TestManyNamesOfOneAddress(t *testing.T) {
	long(t)
	for name, format := range map[string]string{"one domain": "name%d.flood.example", "many domains": "flood%d.example"} {
		t.Run(name, func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
				p := &tarpit{hangs: func(*http.Request) bool { return true }, good: newReceiver(t, "shared.example")}
				addr := netip.MustParseAddr(tarpitAddress)
				w.net.Serve(tarpitAddress+":80", p)
				w.names.Store("shared.example", addr)
				const n = 3000
				for i := range n {
					w.names.Store(fmt.Sprintf(format, i), addr)
				}
				elsewhere := w.receiver("good.example")
				w.publish("first", 1)
				w.flood(n, func(i int) string { return fmt.Sprintf(format, i) })
				w.wantQuick(elsewhere, 2*time.Second)
				w.wantQuick(p.good, 2*time.Second)
				w.pass(time.Minute)
				p.wantMost(t, 8, 32)
			})
		})
	}
}

// Callbacks at 600 ports of one machine confirm their subscriptions, and hang at deliveries. Neither other
// subscribers nor a shutdown wait for them.
func TestManyPortsOfOneAddress(t *testing.T) {
	long(t)
	for name, host := range map[string]string{"by name": "tarpit.example", "by address": tarpitAddress} {
		t.Run(name, func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
				p := &tarpit{hangs: func(r *http.Request) bool { return r.Method == http.MethodPost }}
				w.names.Store(host, netip.MustParseAddr(tarpitAddress))
				const n = 600
				for i := range n {
					w.net.Serve(fmt.Sprintf("%s:%d", tarpitAddress, 10_000+i), p)
				}
				w.publish("first", 1)
				w.flood(n, func(i int) string { return fmt.Sprintf("%s:%d", host, 10_000+i) })
				w.wantMetric("subscriptions", n)
				w.publish("second", 1)
				w.wantQuick(w.receiver("good.example"), time.Second)
				p.wantMost(t, 1, 16)
				w.wantShutdown(time.Second)
			})
		})
	}
}

// A thousand callbacks that hang do not delay one that responds.
func TestTarpits(t *testing.T) {
	long(t)
	inWorldOfClaims(t, callback.Options{InFlight: 128}, func(t *testing.T, w *world) {
		good := w.receiver("good.example")
		w.subscribe(good)
		w.publish("first", 1) // so that the subscription is proven
		for i := range 1000 {
			c := w.receiver(fmt.Sprint("tarpit", i, ".example"))
			c.respond(hang)
			w.send(subscription.Request{Callback: c.url, Start: w.head()})
		}
		w.settle()
		w.wantMetric("subscriptions", 1001)
		most := 0
		for i := range 20 {
			w.publish(fmt.Sprint("n", i), 1) // in no time
			most = max(most, w.metric("in_flight"))
			if got := good.accepted.len(); got != i+2 {
				t.Fatalf("got %d deliveries after publish %d, want %d", got, i, i+2)
			}
			w.pass(time.Second)
		}
		if most > 65 { // a quarter of the permits for callbacks that are new, a quarter for those that failed
			t.Errorf("got %d calls in flight, want at most 65", most)
		}
		// A new subscription waits among those that hang, but not forever.
		late, start := w.receiver("late.example"), time.Now()
		w.request(late, subscription.Request{Start: w.head()})
		w.publish("late", 1)
		for late.accepted.len() == 0 && time.Since(start) < time.Hour {
			w.pass(time.Minute)
		}
		late.wantChanges(21, 1)
	})
}

// Callbacks that hang at verifications and denials use no permits of others, although their deliveries
// succeeded before.
func TestSlowQuestions(t *testing.T) {
	for _, mode := range []subscription.Mode{subscription.Remove, subscription.Subscribe} {
		t.Run(string(mode), func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{InFlight: 64}, func(t *testing.T, w *world) {
				good := w.receiver("good.example")
				w.subscribe(good)
				var bad []*receiver
				for i := range 64 {
					bad = append(bad, w.receiver(fmt.Sprint("bad", i, ".example")))
					w.subscribe(bad[i])
				}
				w.publish("first", 1)
				sendAll := func() {
					for _, c := range bad {
						w.send(subscription.Request{Mode: mode, Callback: c.url, Start: w.head()})
					}
					w.settle()
				}
				for _, c := range bad {
					c.verify(hang)
					c.respond(hang)
				}
				if mode == subscription.Subscribe { // the first attempt shows that the callbacks hang
					sendAll()
				} else {
					w.publish("x", 1)
				}
				w.pass(15 * time.Second)
				sendAll()
				before := good.accepted.len()
				if w.publish("y", 1); good.accepted.len() != before+1 {
					t.Error("a callback that works waits")
				}
			})
		})
	}
}

// hijack returns a handler that uses the connection.
func hijack(f func(c net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		f(c)
	}
}

// write returns a handler that writes a text to the connection, and closes it.
func write(text string) http.HandlerFunc {
	return hijack(func(c net.Conn) { _, _ = io.WriteString(c, text) })
}

// drip returns a handler that writes a text to the connection, and then another one each second.
func drip(text, next string) http.HandlerFunc {
	return hijack(func(c net.Conn) {
		for _, err := io.WriteString(c, text); err == nil; _, err = io.WriteString(c, next) {
			time.Sleep(time.Second) // fake time
		}
	})
}

// zeros is an endless text.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Responses that violate HTTP, or are endless, occupy a permit for a bounded time, and a subscription recovers
// from them.
func TestHostileAnswers(t *testing.T) {
	const okHeader = "HTTP/1.1 200 OK\r\n"
	const hints = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for _, tt := range []struct {
		name    string
		respond http.HandlerFunc
		within  time.Duration // after which the permit is released
		success bool
		reason  string
	}{
		{"hangs", hijack(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), 15 * time.Second, false, "in time"},
		{"closes", write(""), time.Second, false, "closed"},
		{"closes early", write("HTTP/1.1 200 O"), time.Second, false, "closed"},
		{"no HTTP", write("SSH-2.0-OpenSSH\r\n\r\n"), time.Second, false, "not HTTP"},
		{"slow header", drip(okHeader+"X-A: ", "a"), 15 * time.Second, false, "in time"},
		{"endless header", drip(okHeader+strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 2000), "a"), time.Second, false, "not HTTP"},
		{"slow body", drip(okHeader+"Content-Length: 1000000\r\n\r\n", "a"), 2 * time.Second, true, ""},
		{"1 GiB", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 1<<30) }, time.Second, true, ""},
		{"short body", write(okHeader + "Content-Length: 10\r\n\r\nabc"), time.Second, true, ""},
		{"switches protocols", hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), time.Second, false, "Switching Protocols"},
		{"endless hints", drip(strings.Repeat(hints, 100), hints), 15 * time.Second, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
				c, id := w.subscriber()
				w.publish("first", 1) // which has less time
				c.respond(tt.respond)
				w.publish("a", 1)
				w.pass(tt.within + 50*time.Millisecond)
				w.wantMetric("in_flight", 0)
				w.pass(saveEvery)
				r := w.record(id)
				last := r.Last[len(r.Last)-1].Error
				if (r.Cursor.Position == 2) != tt.success || (last == "") != tt.success || !strings.Contains(last, tt.reason) {
					t.Errorf("got position %d and error %q, want success %t, error %q", r.Cursor.Position, last, tt.success, tt.reason)
				}
				c.respond(accept)
				w.publish("b", 1)
				w.pass(3 * time.Second)
				w.wantStored(id, w.head())
			})
		})
	}
}
