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

// A Listener is a net.Listener that bounds the open connections of an http.Server, so that
// they do not use up the file descriptors of the process, and so that one address does not
// use up those of all. When there are too many, it closes connections that wait for a
// request, first those that have waited longest. Of the connections that still do not fit,
// it accepts a few as excess, for RefuseExcess to tell the client why. It closes all others
// at once.
type Listener struct {
	net.Listener
	most    int64          // connections that fit
	one     int64          // of one address; 0: any number
	excess  int64          // connections above most that get an answer, at the same time
	proxies []netip.Prefix // each stands for many clients, and has no limit of its own
	log     *slog.Logger
	logged  rate.Sometimes // the log line that there are too many connections

	refused *atomic.Uint64
	ended   *atomic.Uint64

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	open    int64 // connections; more than conns while one is accepted
	of      map[netip.Prefix]int64
	scan    time.Time // makeRoom does nothing before
	scanOne time.Time // makeRoom for one address does nothing before
}

// Listen returns a Listener that takes connections from l, as d allows. Addresses in proxies
// have no limit of their own.
func Listen(l net.Listener, d Descriptors, proxies []netip.Prefix, log *slog.Logger) *Listener {
	return &Listener{
		Listener: l, most: d.Users, one: d.One, excess: d.Excess, proxies: proxies, log: log, logged: rate.Sometimes{Interval: time.Minute},
		conns: map[*Conn]struct{}{}, of: map[netip.Prefix]int64{}, refused: new(atomic.Uint64), ended: new(atomic.Uint64),
	}
}

// Beside returns a Listener for another address, which logs and counts with l, and where
// at most this many connections fit.
func (l *Listener) Beside(other net.Listener, most int64) *Listener {
	beside := Listen(other, Descriptors{Users: most, One: most / 2, Excess: most / 4}, nil, l.log)
	beside.refused, beside.ended = l.refused, l.ended
	return beside
}

// Refused returns how many connections were refused: those that got an answer that says why,
// and those that were closed at once.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

// Ended returns how many connections without a request were closed to make room for others.
func (l *Listener) Ended() uint64 { return l.ended.Load() }

// Accept waits for a connection that fits, or for one that can be told that it does not. Each
// is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr, from := addressOf(conn)
		all, own := l.enter(from)
		if all > l.most && l.makeRoom(&l.scan, nil) {
			all, own = l.count(from)
		}
		if l.one == 0 || slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			own = 0
		} else if own > l.one && l.makeRoom(&l.scanOne, &from) {
			all, own = l.count(from)
		}
		if all <= l.most && own <= l.one {
			return l.conn(conn, from, false), nil
		}
		l.refused.Add(1)
		l.logged.Do(func() {
			l.log.Error("too many connections, for the limit of file descriptors or from one address: further connections are refused", "most", l.most, "mostOfOne", l.one, "from", from.String())
		})
		if all <= l.most+l.excess && own <= l.one+l.excess/2 {
			return l.conn(conn, from, true), nil
		}
		l.leave(nil, from)
		_ = conn.Close()
	}
}

// enter counts a connection. It returns how many are open, and how many of its address.
func (l *Listener) enter(from netip.Prefix) (all, own int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.of[from]++
	return l.open, l.of[from]
}

func (l *Listener) count(from netip.Prefix) (all, own int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.of[from]
}

// leave counts off a connection. c is nil if it was not accepted.
func (l *Listener) leave(c *Conn, from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.open--
	if l.of[from]--; l.of[from] == 0 {
		delete(l.of, from)
	}
}

const (
	minIdleConn = time.Second            // a connection must have waited for a request this long before it is closed
	scanPause   = 100 * time.Millisecond // after makeRoom found none
)

// makeRoom closes connections that have waited longest for a request: a sixteenth of those
// that wait, so that not each new connection looks at all of them. It reports whether it
// closed any. Connections that have never sent a whole request are among them. If of is not
// nil, they are those of one address. scan is when it may look.
func (l *Listener) makeRoom(scan *time.Time, of *netip.Prefix) bool {
	now := time.Now()
	l.mu.Lock()
	if now.Before(*scan) {
		l.mu.Unlock()
		return false
	}
	type waiter struct {
		conn  *Conn
		since int64
	}
	var waiting []waiter
	for c := range l.conns {
		if since := c.waits.Load(); since != 0 && (of == nil || c.from == *of) && now.UnixMicro()-since >= minIdleConn.Microseconds() {
			waiting = append(waiting, waiter{c, since})
		}
	}
	if len(waiting) == 0 {
		*scan = now.Add(scanPause)
	}
	l.mu.Unlock()
	slices.SortFunc(waiting, func(a, b waiter) int { return cmp.Compare(a.since, b.since) })
	closed := false
	for _, w := range waiting[:(len(waiting)+15)/16] {
		if w.conn.waits.CompareAndSwap(w.since, 0) { // it still waits
			_ = w.conn.Close()
			l.ended.Add(1)
			closed = true
		}
	}
	return closed
}

// RefuseExcess answers requests on connections that are too many with 503, and closes the
// connection. They are counted, and not logged one by one: there may be thousands a second.
func RefuseExcess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := ConnOf(r.Context()); c == nil || !c.excess {
			next.ServeHTTP(w, r)
			return
		}
		p := problem.New(http.StatusServiceUnavailable, "too-many-connections", "too many connections: this hub, or your address, has reached its limit; close some, or try again later")
		p.RetryAfter = 10
		w.Header().Set("Connection", "close")
		problem.Write(w, r, p)
	})
}

// addressOf returns the address of the other end of a connection, and what counts as one
// address; see Limiter.Address.
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

// ConnOf returns the connection of a request, or nil if it came over no Listener.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Serve prepares an http.Server for connections of a Listener. It sets ConnContext and
// ConnState, and so comes before Serve of the http.Server.
func Serve(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if c := below(conn); c != nil {
			return context.WithValue(ctx, connKey{}, c)
		}
		return ctx
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		c := below(conn)
		switch {
		case c == nil:
		case state == http.StateActive, state == http.StateHijacked:
			c.waits.Store(0)
		case state == http.StateIdle:
			c.waits.Store(time.Now().UnixMicro())
		}
	}
}
