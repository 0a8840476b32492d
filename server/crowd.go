package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/problem"
)

// A crowd bounds the connections to a listener, so that they do not use up the file
// descriptors of the process, and so that one address does not use up those of all. When
// there are too many, it closes connections that wait for a request, those first that have
// waited longest. Some connections that do not fit are taken all the same, and get an answer
// that says why. What is more than that is closed without a word. A crowd is a net.Listener.
type crowd struct {
	net.Listener
	most int64 // connections that fit
	one  int64 // of one address; 0: any number
	away int64 // connections above that which get an answer, at the same time
	log  *slog.Logger

	now     atomic.Int64 // open connections
	said    atomic.Int64 // when the log was told last that there are too many, in microseconds
	refused prometheus.Counter
	ended   prometheus.Counter

	mu      sync.Mutex
	proxies []netip.Prefix // that are many clients each, and are no address of one
	guests  map[*guest]struct{}
	of      map[netip.Prefix]int64 // how many an address has
	scan    time.Time              // no idle connection is looked for before
	scanOne time.Time              // none of one address
}

// newCrowd returns a crowd that takes connections from l as d says.
func newCrowd(l net.Listener, d shares, log *slog.Logger, r prometheus.Registerer) *crowd {
	return &crowd{
		Listener: l, most: d.users, one: d.one, away: d.away, log: log, guests: map[*guest]struct{}{}, of: map[netip.Prefix]int64{},
		refused: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "rshub_connections_refused_total",
			Help: "Connections that were refused because there were too many for the limit of file descriptors, or too many of one address.",
		}),
		ended: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "rshub_connections_ended_total",
			Help: "Connections without a request that were closed to make room for others.",
		}),
	}
}

// beside returns a crowd for another listener, with the same log and metrics.
func (c *crowd) beside(l net.Listener, most int64) *crowd {
	return &crowd{
		Listener: l, most: most, one: most / 2, away: most / 4, log: c.log, guests: map[*guest]struct{}{}, of: map[netip.Prefix]int64{},
		refused: c.refused, ended: c.ended,
	}
}

// Accept waits for a connection that fits, or that can be told that it does not.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr, from := addressOf(conn)
		n := c.now.Add(1)
		if n > c.most && c.makeRoom(&c.scan, nil) {
			n = c.now.Load()
		}
		own := c.enter(from)
		if c.one == 0 || slices.ContainsFunc(c.proxies, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			own = 0
		} else if own > c.one && c.makeRoom(&c.scanOne, &from) {
			own = c.count(from)
		}
		if n <= c.most && own <= c.one {
			return c.guest(conn, from, false), nil
		}
		c.refused.Inc()
		c.say(from)
		if n <= c.most+c.away && own <= c.one+c.away/2 {
			return c.guest(conn, from, true), nil
		}
		c.leave(from)
		_ = conn.Close()
	}
}

// say tells the log that there are too many connections, at most once a minute.
func (c *crowd) say(from netip.Prefix) {
	if minutely(&c.said) {
		c.log.Error("there are too many connections, for the limit of file descriptors or from one address; further ones are refused", "most", c.most, "mostOfOne", c.one, "from", from.String())
	}
}

func (c *crowd) enter(from netip.Prefix) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[from]++
	return c.of[from]
}

func (c *crowd) count(from netip.Prefix) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[from]
}

func (c *crowd) leave(from netip.Prefix) {
	c.now.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// What makeRoom goes by.
const (
	silent    = time.Second            // so long a connection must have waited for a request
	scanPause = 100 * time.Millisecond // before it looks again, if it has found none
)

// makeRoom closes connections that have waited longest for a request: a sixteenth of those
// that wait, so that not each new connection looks at all of them. It reports whether it
// closed any. Connections that have never sent a whole request are among them. If of is not
// nil, they are those of one address. scan is when it may look.
func (c *crowd) makeRoom(scan *time.Time, of *netip.Prefix) bool {
	now := time.Now()
	c.mu.Lock()
	if now.Before(*scan) {
		c.mu.Unlock()
		return false
	}
	type waiter struct {
		guest *guest
		since int64
	}
	var waiting []waiter
	for g := range c.guests {
		if since := g.waits.Load(); since != 0 && (of == nil || g.from == *of) && now.UnixMicro()-since >= silent.Microseconds() {
			waiting = append(waiting, waiter{g, since})
		}
	}
	if len(waiting) == 0 {
		*scan = now.Add(scanPause)
	}
	c.mu.Unlock()
	slices.SortFunc(waiting, func(a, b waiter) int { return cmp.Compare(a.since, b.since) })
	closed := false
	for i := 0; i < (len(waiting)+15)/16; i++ {
		if w := waiting[i]; w.guest.waits.CompareAndSwap(w.since, 0) { // it still waits
			_ = w.guest.Close()
			c.ended.Inc()
			closed = true
		}
	}
	return closed
}

// A guest is a connection that a crowd counts until it is closed. It keeps the methods
// of a TCP connection, such as those for the socket.
type guest struct {
	*net.TCPConn
	crowd    *crowd
	from     netip.Prefix
	tooMany  bool
	left     atomic.Bool  // the crowd does not count it any more
	refusals atomic.Int64 // that are under way; see bounded
	waits    atomic.Int64 // since when it waits for a request, in microseconds; 0: it does not
}

func (c *crowd) guest(conn net.Conn, from netip.Prefix, tooMany bool) net.Conn {
	g := &guest{TCPConn: conn.(*net.TCPConn), crowd: c, from: from, tooMany: tooMany}
	g.waits.Store(time.Now().UnixMicro())
	c.mu.Lock()
	c.guests[g] = struct{}{}
	c.mu.Unlock()
	return g
}

// Write writes as a TCP connection does. But the kernel wakes a writer only when a third of
// its buffer is free. So at its deadline, Write tries once more, in case the client has
// taken something. A write over TLS that fails has spoiled the connection for good.
func (g *guest) Write(p []byte) (n int, err error) {
	if n, err = g.TCPConn.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = g.SetWriteDeadline(time.Now().Add(lastTry))
	m, err := g.TCPConn.Write(p[n:])
	return n + m, err
}

// lastTry is how long a write goes on at its deadline. It is there for the first attempt
// only, which does not wait.
const lastTry = 10 * time.Millisecond

func (g *guest) Close() error {
	defer g.leave()
	return g.TCPConn.Close()
}

// leave makes the crowd not count g any more. Further calls do nothing.
func (g *guest) leave() {
	if g.left.Swap(true) {
		return
	}
	g.crowd.leave(g.from)
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	delete(g.crowd.guests, g)
}

// guestOf returns the guest under a connection, or nil.
func guestOf(conn net.Conn) *guest {
	for {
		switch c := conn.(type) {
		case *guest:
			return c
		case interface{ NetConn() net.Conn }: // such as one with TLS
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// noteState notes whether a connection waits for a request. It is a ConnState of an
// http.Server.
func noteState(conn net.Conn, state http.ConnState) {
	g := guestOf(conn)
	switch {
	case g == nil:
	case state == http.StateActive, state == http.StateHijacked:
		g.waits.Store(0)
	case state == http.StateIdle:
		g.waits.Store(time.Now().UnixMicro())
	}
}

type guestKey struct{}

// noteGuest notes the guest in the context of its requests. It is a ConnContext of an
// http.Server.
func noteGuest(ctx context.Context, conn net.Conn) context.Context {
	if g := guestOf(conn); g != nil {
		return context.WithValue(ctx, guestKey{}, g)
	}
	return ctx
}

// turnAway answers requests on connections that are too many with 503. They are
// counted, and not logged one by one: there may be thousands a second.
func turnAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, _ := r.Context().Value(guestKey{}).(*guest); g == nil || !g.tooMany {
			next.ServeHTTP(w, r)
			return
		}
		p := problem.New(http.StatusServiceUnavailable, "too-many-connections", "this hub, or your address, has too many connections; try again later")
		p.RetryAfter = 10
		w.Header().Set("Connection", "close")
		problem.Write(w, r, p)
	})
}
