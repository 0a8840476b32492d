package limit

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rshub/rshub/internal/problem"
)

// A Listener is a net.Listener that limits the open connections of an http.Server, so that they do not
// use all file descriptors of the process, nor one address all of them. At the limit, it
// closes idle connections, longest idle first. Of the connections above the limit, it accepts a few as
// excess, so that RefuseExcess can tell the client why. It closes all others immediately.
type Listener struct {
	net.Listener
	max     int64          // maximum number of connections
	perAddr int64          // maximum number of connections of one address; 0 means no limit
	excess  int64          // maximum number of further connections that get a response
	proxies []netip.Prefix // addresses without a limit, because each stands for many clients
	log     *slog.Logger
	logged  rate.Sometimes // rate of the log line about too many connections

	refused *atomic.Uint64
	ended   *atomic.Uint64

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	open    int64 // open connections, including one that is being accepted
	byAddr  map[netip.Prefix]int64
	scan    time.Time // earliest time of the next closeIdle
	scanOne time.Time // earliest time of the next closeIdle for one address
}

// Listen returns a Listener on l with the limits of d. Addresses in proxies have no limit per address.
func Listen(l net.Listener, d Descriptors, proxies []netip.Prefix, log *slog.Logger) *Listener {
	return &Listener{
		Listener: l, max: d.Users, perAddr: d.One, excess: d.Excess, proxies: proxies, log: log, logged: rate.Sometimes{Interval: time.Minute},
		conns: map[*Conn]struct{}{}, byAddr: map[netip.Prefix]int64{}, refused: new(atomic.Uint64), ended: new(atomic.Uint64),
	}
}

// Beside returns a Listener of at most max connections on another address, which shares the log and the
// counters of l.
func (l *Listener) Beside(other net.Listener, max int64) *Listener {
	beside := Listen(other, Descriptors{Users: max, One: max / 2, Excess: max / 4}, nil, l.log)
	beside.refused, beside.ended = l.refused, l.ended
	return beside
}

// Refused returns the number of refused connections, with or without a response.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

// Ended returns the number of idle connections that were closed in favor of others.
func (l *Listener) Ended() uint64 { return l.ended.Load() }

// Accept waits for a connection within the limits or an excess one. Its result is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr, from := addressOf(conn)
		all, own := l.add(from)
		if all > l.max && l.closeIdle(&l.scan, nil) {
			all, own = l.count(from)
		}
		if l.perAddr == 0 || slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			own = 0
		} else if own > l.perAddr && l.closeIdle(&l.scanOne, &from) {
			all, own = l.count(from)
		}
		if all <= l.max && own <= l.perAddr {
			return l.newConn(conn, from, false), nil
		}
		l.refused.Add(1)
		l.logged.Do(func() {
			l.log.Error("too many connections, in total or from one address; further connections are refused", "most", l.max, "mostOfOne", l.perAddr, "from", from.String())
		})
		if all <= l.max+l.excess && own <= l.perAddr+l.excess/2 {
			return l.newConn(conn, from, true), nil
		}
		l.remove(nil, from)
		_ = conn.Close()
	}
}

// add counts a connection. It returns the number of open connections, and that of its address.
func (l *Listener) add(from netip.Prefix) (all, own int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.byAddr[from]++
	return l.open, l.byAddr[from]
}

// count returns the number of open connections, and that of an address.
func (l *Listener) count(from netip.Prefix) (all, own int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.byAddr[from]
}

// remove uncounts a connection. c is nil if it was not accepted.
func (l *Listener) remove(c *Conn, from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.open--
	if l.byAddr[from]--; l.byAddr[from] == 0 {
		delete(l.byAddr, from)
	}
}

const (
	minIdleConn = time.Second            // minimum idle time of a connection before it is closed
	scanPause   = 100 * time.Millisecond // delay of the next closeIdle after one that found none
)

// closeIdle closes the sixteenth of the idle connections that have been idle longest, so that not every
// new connection scans all of them. It reports whether it closed any. Connections that have never sent
// a complete request are idle, too. If of is not nil, it considers only one address. It does nothing
// before scan.
func (l *Listener) closeIdle(scan *time.Time, of *netip.Prefix) bool {
	now := time.Now()
	l.mu.Lock()
	if now.Before(*scan) {
		l.mu.Unlock()
		return false
	}
	type idleConn struct {
		conn  *Conn
		since int64
	}
	var idle []idleConn
	for c := range l.conns {
		if since := c.idleSince.Load(); since != 0 && (of == nil || c.from == *of) && now.UnixMicro()-since >= minIdleConn.Microseconds() {
			idle = append(idle, idleConn{c, since})
		}
	}
	if len(idle) == 0 {
		*scan = now.Add(scanPause)
	}
	l.mu.Unlock()
	slices.SortFunc(idle, func(a, b idleConn) int { return cmp.Compare(a.since, b.since) })
	closed := false
	for _, w := range idle[:(len(idle)+15)/16] {
		if w.conn.idleSince.CompareAndSwap(w.since, 0) { // still idle
			_ = w.conn.Close()
			l.ended.Add(1)
			closed = true
		}
	}
	return closed
}

// RefuseExcess responds to requests on excess connections with 503 and closes the connection. They are
// counted but not logged individually, because there may be thousands per second.
func RefuseExcess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := ConnOf(r.Context()); c == nil || !c.excess {
			next.ServeHTTP(w, r)
			return
		}
		p := problem.New(http.StatusServiceUnavailable, "too-many-connections", "the hub or your address has reached its limit of connections; close some, or retry later")
		p.RetryAfter = 10
		w.Header().Set("Connection", "close")
		problem.Write(w, r, p)
	})
}

// addressOf returns the remote address of a connection, and the prefix that counts as one address; see
// Limiter.Address.
func addressOf(conn net.Conn) (netip.Addr, netip.Prefix) {
	t, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, netip.Prefix{}
	}
	addr := t.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits)
	return addr, p
}

type connKey struct{}

// ConnOf returns the connection of a request, or nil if it is not from a Listener.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Serve prepares an http.Server for connections of a Listener. It sets ConnContext and ConnState, so it
// must be called before srv.Serve.
func Serve(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if c := unwrapConn(conn); c != nil {
			return context.WithValue(ctx, connKey{}, c)
		}
		return ctx
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		c := unwrapConn(conn)
		switch {
		case c == nil:
		case state == http.StateActive, state == http.StateHijacked:
			c.idleSince.Store(0)
		case state == http.StateIdle:
			c.idleSince.Store(time.Now().UnixMicro())
		}
	}
}
